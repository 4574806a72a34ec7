"""The trainer's process: log-prob passes, advantage, clipped updates; and the driver's own cost."""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping
from typing import Any

import numpy as np
from simpy import Event

from rlsim.sim import ledger as fates
from rlsim.sim.clock import Clock
from rlsim.sim.faults import Weather
from rlsim.sim.ledger import Ints, Ledger
from rlsim.sim.prices import Costs, StepTime, Training
from rlsim.sim.recorder import UPKEEP, Recorder
from rlsim.sim.roles import OwnCritic, OwnReference
from rlsim.sim.settings import Settings
from rlsim.sim.versions import Versions

Process = Generator[Event, Any, None]
Awaited = tuple[float, Mapping[str, float]]  # a moment, and the provenance of what is there by then
COMPUTE = ("train", "logprob", "reference")
NOTHING: Awaited = (0.0, {})
CALLS = 4  # worker-group calls of a step: generate, reward, update, weight sync; every further pass is one more


class Trainer:
    """Turns samples into updates; knows nothing of where they come from."""

    def __init__(
        self,
        clock: Clock,
        costs: Costs,
        settings: Settings,
        ledger: Ledger,
        versions: Versions,
        recorder: Recorder,
        weather: Weather,
    ) -> None:
        self.clock = clock
        self.costs = costs
        self.settings = settings
        self.ledger = ledger
        self.versions = versions
        self.recorder = recorder
        self.weather = weather
        self.crashed: Callable[[float], None] = lambda _: None
        self.lost = False  # the step under way has been trained on and lost in a crash
        self.updates = 0
        own_critic = costs.critic is not None and costs.critic.gpus > 0
        self.own_critic = OwnCritic(costs.critic, recorder) if costs.critic and own_critic else None
        if costs.critic and not own_critic:
            recorder.groups["critic"] = recorder.groups["trainer"]
        self.own_reference = OwnReference(costs.reference, recorder) if costs.reference else None

    def stage(self, label: str, seconds: float, track: str = "trainer") -> Process:
        """Spend seconds under one label of the trainer group's clock.

        A crash ends it: what belongs to a step that is lost is left alone, anything else is begun again.
        """
        while seconds > 0 and not self.lost:
            start = self.clock.now
            end = self._end(label, start, seconds)
            cut = min(end, max(start, self.weather.crash))
            yield self.clock.at(cut)
            if label in UPKEEP:
                self.recorder.upkeep(label, start, cut)
            else:
                self.recorder.phase(label, start, cut, track)
            if cut == end:
                return
            yield from self.recover()

    def _end(self, label: str, start: float, seconds: float) -> float:
        if label == "weight_sync":
            return self.weather.sync_end(start, seconds, self.costs.sync.wire_seconds)
        return self.weather.compute_end(start, seconds) if label in COMPUTE else start + seconds

    def recover(self) -> Process:
        """A crash that is due: start again from the last checkpoint. The part of a restart that a wait hid is free."""
        if self.weather.crash > self.clock.now:
            return
        self.lost = self.recorder.step.samples > 0
        self.crashed(self.weather.crash)
        start, up = self.clock.now, self.weather.restart()
        if up > start:
            yield self.clock.at(up)
            self.recorder.upkeep("restart", start, up)

    def wait(self, label: str, until: float) -> Process:
        """Stand still until a moment (at once if it is past)."""
        start = self.clock.now
        if self.settings.colocated and start <= self.weather.crash < until:  # the engines crash with it
            yield self.clock.at(self.weather.crash)
            self.recorder.upkeep("lost", start, self.clock.now, drawn=False)
            yield from self.recover()
            start = self.clock.now
        if until > start:
            yield self.clock.at(until)
            self.recorder.phase(label, start, until, None)

    def train(self, ids: Ints, early: float = 0.0) -> Process:
        """One step on the samples int64[groups, group_size]; or one of its rounds (`Settings.rounds`).

        Controller, the reward model's and the critic's passes where they share these GPUs, [onload], log-probs, mini-
        batches x epochs. A model on GPUs of its own runs beside that; what is not there in time is waited for. `early`
        seconds of the log-prob pass are already done.
        """
        settings, training = self.settings, self.costs.training
        yield from self.recover()
        lengths = self._lengths(ids)
        self._note(ids, int(lengths.sum()))
        yield from self.stage("other", self._controller_seconds(lengths), "controller")
        whole = present(lengths)
        if self.costs.scoring:
            yield from self._pass("reward", self.costs.scoring.logprob(whole, "reward"))
        values, critic = yield from self._critic(lengths)
        if settings.colocated:
            yield from self.stage("onload", self.costs.switch.onload_seconds)
        if settings.recompute:
            yield from self._rest_of_logprob(training.logprob(whole, "actor"), early)
        if self.own_reference and self.costs.reference:
            yield from self._expose(
                "reference", self.own_reference.there(self.ledger, ids), self.costs.reference.sources
            )
        elif settings.reference:
            yield from self._pass("reference", training.logprob(whole, "reference"))
        yield from self._expose("logprob", *values)
        yield from self._updates(training, lengths)
        yield from self._expose("train", *critic)

    def _lengths(self, ids: Ints) -> Ints:
        """Prompt and response of each sample, 0 where the environment lost it: its group is trained without it."""
        lengths = self.ledger["prompt"][ids] + self.ledger["response"][ids]
        return np.where(self.ledger["fate"][ids] == fates.ENVIRONMENT, 0, lengths)

    def _rest_of_logprob(self, price: StepTime, early: float) -> Process:
        if self.lost:
            return
        early = min(early, price.seconds)
        self.recorder.step.early += early
        left = 1 - early / price.seconds if price.seconds else 1.0
        self.recorder.price({source: left * seconds for source, seconds in price.sources.items()})
        yield from self.stage("logprob", price.seconds - early)

    def _updates(self, training: Training, lengths: Ints, track: str = "trainer") -> Process:
        prices = [training.update(present(part)) for part in np.array_split(lengths, self.settings.round_mini_batches)]
        for _ in range(self.settings.epochs):
            for price in prices:
                yield from self._pass("train", price, track)
                if not self.lost:
                    self.recorder.step.flops += price.flops
                    self.updates += training is self.costs.training

    def _critic(self, lengths: Ints) -> Generator[Event, Any, tuple[Awaited, Awaited]]:
        """The critic's part of the step; returns what the policy has to wait for: (values, critic's updates).

        On the trainer's GPUs it goes first, its states coming in and leaving again, and nothing is left to wait for.
        """
        critic = self.costs.critic
        if critic is None:
            return NOTHING, NOTHING
        if self.own_critic:
            values = critic.passes.logprob(present(lengths))
            parts = np.array_split(lengths, self.settings.round_mini_batches)
            updates = [critic.passes.update(present(part)) for part in parts]
            there, done = self.own_critic.run(self.clock.now, values, updates * self.settings.epochs)
            return (there, values.sources), (done, updates[0].sources)
        yield from self.stage("onload", critic.onload_seconds, "critic")
        yield from self._pass("logprob", critic.passes.logprob(present(lengths)), "critic")
        yield from self._updates(critic.passes, lengths, "critic")
        yield from self.stage("offload", critic.offload_seconds, "critic")
        return NOTHING, NOTHING

    def _expose(self, label: str, until: float, sources: Mapping[str, float]) -> Process:
        """Wait under `label` for a model on other GPUs; the wait rests on what that model's seconds rest on."""
        start, whole = self.clock.now, sum(sources.values())
        if until > start and not self.lost:
            yield self.clock.at(until)
            self.recorder.exposed(label, start, until)
            self.recorder.price({source: (until - start) * share / whole for source, share in sources.items() if whole})

    def _pass(self, label: str, price: StepTime, track: str = "trainer") -> Process:
        if not self.lost:
            self.recorder.price(price.sources)
            yield from self.stage(label, price.seconds, track)

    def _controller_seconds(self, lengths: Ints) -> float:
        """Fixed cost, one dispatch per worker-group call, and the batch through the driver."""
        controller = self.costs.controller
        calls = CALLS + self.settings.recompute + self.settings.reference
        calls += 2 * (self.costs.critic is not None) + (self.costs.scoring is not None)
        batch = controller.batch_seconds(int(lengths.sum()), int(np.count_nonzero(lengths)))
        return controller.step_fixed_seconds + calls * controller.dispatch_seconds + batch

    def _note(self, ids: Ints, tokens: int) -> None:
        """Enter into the ledger which step and which policy train on these samples."""
        ledger, step = self.ledger, self.recorder.step
        begun = self.versions.at(ledger["start"][ids])
        ledger["begin_version"][ids] = begun
        ledger["train_version"][ids] = self.versions.current
        sizes = [len(part) for part in np.array_split(ids, self.settings.round_mini_batches)]
        nth = np.repeat(np.arange(len(sizes)), sizes)[:, None]
        ledger["updates_late"][ids] = self.updates + nth - self.versions.updates(begun)
        ledger["spans"][ids] = 1 + self.versions.at(ledger["end"][ids]) - begun
        ledger["step"][ids] = step.index
        lost = ids[ledger["fate"][ids] == fates.ENVIRONMENT]
        if lost.size:
            step.drop(fates.FATES[fates.ENVIRONMENT], lost.size, int(ledger["generated"][lost].sum()))
        ledger["fate"][ids] = fates.TRAINED
        ledger["fate"][lost] = fates.ENVIRONMENT
        step.version = self.versions.current
        if self.costs.reward_model:
            model = self.costs.reward_model
            busy = float(ledger["reward_seconds"][ids].sum()) * model.gpus / model.workers
            self.recorder.beside("reward_model", busy)
        step.samples += ids.size - lost.size
        step.tokens += tokens


def present(lengths: Ints) -> Ints:
    """Lengths of the samples that there are, int64[n]."""
    flat = lengths.ravel()
    return flat[flat > 0]
