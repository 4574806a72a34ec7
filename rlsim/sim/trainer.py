"""The trainer's process: log-prob passes, advantage, clipped updates; and the driver's own cost."""

from __future__ import annotations

from collections.abc import Generator
from typing import Any

import numpy as np
from simpy import Event

from rlsim.sim import ledger as fates
from rlsim.sim.clock import Clock
from rlsim.sim.ledger import Ints, Ledger
from rlsim.sim.prices import Costs, StepTime
from rlsim.sim.recorder import Recorder
from rlsim.sim.settings import Settings
from rlsim.sim.versions import Versions

Process = Generator[Event, Any, None]
CALLS = 4  # worker-group calls of a step: generate, reward, update, weight sync; a log-prob pass is one more


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
    ) -> None:
        self.clock = clock
        self.costs = costs
        self.settings = settings
        self.ledger = ledger
        self.versions = versions
        self.recorder = recorder
        self.updates = 0

    def stage(self, label: str, seconds: float, track: str = "trainer") -> Process:
        """Spend seconds under one label of the trainer group's clock."""
        if seconds > 0:
            start = self.clock.now
            yield self.clock.at(start + seconds)
            self.recorder.phase(label, start, self.clock.now, track)

    def wait(self, label: str, until: float) -> Process:
        """Stand still until a moment (at once if it is past)."""
        start = self.clock.now
        if until > start:
            yield self.clock.at(until)
            self.recorder.phase(label, start, until, None)

    def train(self, ids: Ints) -> Process:
        """One step on the samples int64[groups, group_size]: controller, log-probs, mini-batches x epochs."""
        settings, training = self.settings, self.costs.training
        lengths = self.ledger["prompt"][ids] + self.ledger["response"][ids]
        self._note(ids, int(lengths.sum()))
        yield from self.stage("other", self._controller_seconds(lengths), "controller")
        whole = lengths.ravel()
        if settings.recompute:
            yield from self._pass("logprob", training.logprob(whole, "actor"))
        if settings.reference:
            yield from self._pass("reference", training.logprob(whole, "reference"))
        prices = [training.update(part.ravel()) for part in np.array_split(lengths, settings.mini_batches)]
        for _ in range(settings.epochs):
            for price in prices:
                yield from self._pass("train", price)
                self.recorder.step.flops += price.flops
                self.updates += 1

    def _pass(self, label: str, price: StepTime) -> Process:
        self.recorder.price(price.sources)
        yield from self.stage(label, price.seconds)

    def _controller_seconds(self, lengths: Ints) -> float:
        """Fixed cost, one dispatch per worker-group call, and the batch through the driver."""
        controller = self.costs.controller
        calls = CALLS + self.settings.recompute + self.settings.reference
        batch = controller.batch_seconds(int(lengths.sum()), lengths.size)
        return controller.step_fixed_seconds + calls * controller.dispatch_seconds + batch

    def _note(self, ids: Ints, tokens: int) -> None:
        """Enter into the ledger which step and which policy train on these samples."""
        ledger, step = self.ledger, self.recorder.step
        begun = self.versions.at(ledger["start"][ids])
        ledger["begin_version"][ids] = begun
        ledger["train_version"][ids] = self.versions.current
        sizes = [len(part) for part in np.array_split(ids, self.settings.mini_batches)]
        nth = np.repeat(np.arange(len(sizes)), sizes)[:, None]
        ledger["updates_late"][ids] = self.updates + nth - self.versions.updates(begun)
        ledger["spans"][ids] = 1 + self.versions.at(ledger["end"][ids]) - begun
        ledger["step"][ids] = step.index
        ledger["fate"][ids] = fates.TRAINED
        step.version = self.versions.current
        step.samples = ids.size
        step.tokens = tokens
