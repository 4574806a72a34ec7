"""The driver: prompts to engines, samples to rewards and advantages, batches to the trainer, weights back.

One clock, the driver's: every instant of a step carries one stage, as in rlsim's accounts (co-located and synchronous:
what is waited for; overlapped: wait_rollout). Order of the stages as in `rlsim.sim.regimes` and `asynchronous`.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace

import numpy as np
import torch

from rlsim.costs.training_packing import deal
from validation.minigrpo.loss import group_advantages
from validation.minigrpo.setting import Setting
from validation.minigrpo.task import Request, Sample, reward
from validation.minigrpo.trainer import Job, Row
from validation.minigrpo.world import World

STAGES = ("offload", "weight_sync", "rollout", "reward", "wait_rollout", "other", "onload", "logprob", "train")


@dataclass(frozen=True)
class Step:
    """What a step recorded.

    phases     seconds by stage; they add up to `seconds`
    reward     mean over the samples
    gap        mean |log p of the trainer - log p of the engine| over tokens; weight: mean truncated importance weight
    staleness  versions between a sample's begin and its training: mean, max
    """

    seconds: float
    phases: dict[str, float]
    reward: float
    gap: float
    weight: float
    staleness: tuple[float, int]
    tokens: int
    loss: float


@dataclass
class Group:
    """Samples of a prompt as they come in, with their rewards."""

    size: int
    samples: list[Sample] = field(default_factory=list)
    rewards: list[float] = field(default_factory=list)

    @property
    def complete(self) -> bool:
        return len(self.samples) == self.size

    def in_order(self) -> Group:
        """The samples by number: which finished first makes no difference to the training."""
        order = np.argsort([sample.id for sample in self.samples])
        return Group(self.size, [self.samples[i] for i in order], [self.rewards[i] for i in order])


class Driver:
    """State of a run. Groups are numbered in the order of their submission."""

    def __init__(self, world: World, setting: Setting) -> None:
        self.world, self.setting = world, setting
        self.rules = setting.inputs.settings
        self.version = 0
        self.groups: dict[int, Group] = {}
        self.history: list[Step] = []
        self._load = [0] * setting.engines
        self._batches: list[list[Request]] = []  # groups drawn, not yet submitted
        self._drawn = self._submitted = self._dropped = 0
        self._phases = dict.fromkeys(STAGES, 0.0)
        self._begun = self._marked = time.perf_counter()
        world.finished = self._finished

    # --- clock --------------------------------------------------

    @contextmanager
    def stage(self, label: str) -> Iterator[None]:
        """What happens inside carries the label; what happened since the last stage is `other`."""
        start = time.perf_counter()
        self._phases["other"] += start - self._marked
        yield
        self._marked = time.perf_counter()
        self._phases[label] += self._marked - start

    def _close(self, **figures: object) -> None:
        now = time.perf_counter()
        self._phases["other"] += now - self._marked
        self.history.append(Step(now - self._begun, self._phases, **figures))  # type: ignore[arg-type]
        self._phases = dict.fromkeys(STAGES, 0.0)
        self._begun = self._marked = now

    # --- rollout --------------------------------------------------

    def submit(self, groups: int) -> list[int]:
        """The next groups to the engines, sample by sample to the one with the fewest; returns their numbers."""
        while len(self._batches) < groups:
            self._batches += self.setting.requests(self._drawn)
            self._drawn += 1
        numbers = list(range(self._submitted, self._submitted + groups))
        to: list[list[Request]] = [[] for _ in self._load]
        for number in numbers:
            requests = self._batches.pop(0)
            self.groups[number] = Group(len(requests))
            for request in requests:
                engine = min(range(len(to)), key=lambda e: self._load[e])
                self._load[engine] += 1
                to[engine].append(request)
        for engine, requests in enumerate(to):
            if requests:
                self.world.submit(engine, requests)
        self._submitted += groups
        return numbers

    def _finished(self, engine: int, samples: list[Sample]) -> None:
        """Score what an engine finished."""
        self._load[engine] -= len(samples)
        for sample in samples:
            group = self.groups[sample.id // self.rules.group_size]
            group.samples.append(sample)
            group.rewards.append(reward(sample.prompt, sample.response, self.setting.config.vocab))

    def _complete(self, numbers: Sequence[int]) -> bool:
        return all(self.groups[number].complete for number in numbers)

    def wait(self, label: str, numbers: Sequence[int]) -> None:
        with self.stage(label):
            self.world.pump(lambda: self._complete(numbers))

    def sync(self) -> None:
        with self.stage("weight_sync"):
            self.world.sync(self.version)
        self.version += 1

    # --- training --------------------------------------------------

    def train(self, numbers: Sequence[int]) -> None:
        """Advantages, log-probs, mini-batches; co-located with the trainer's states coming back before."""
        groups = [self.groups.pop(number).in_order() for number in numbers]
        rewards = torch.tensor([g.rewards for g in groups])
        advantages = group_advantages(rewards)
        rows = [
            [Row(s.tokens, len(s.prompt), float(a), s.logprobs) for s, a in zip(g.samples, weights, strict=True)]
            for g, weights in zip(groups, advantages, strict=True)
        ]
        if self.setting.colocated:
            with self.stage("onload"):
                self.world.call(self.world.engines, "sleep")
                self.world.call(self.world.trainers, "onload")
        flat = self._logprobs([row for group in rows for row in group])
        loss = 0.0
        per_mini = len(flat) // self.rules.round_mini_batches
        for _ in range(self.rules.epochs):
            for start in range(0, len(flat), per_mini):
                loss += self._update(flat[start : start + per_mini])
        late = [self.version - 1 - s.versions[0] for g in groups for s in g.samples]
        engine, old = (np.concatenate([getattr(row, name) for row in flat]) for name in ("engine", "old"))
        self._close(
            reward=float(rewards.mean()),
            gap=float(np.abs(old - engine).mean()),
            weight=float(np.minimum(np.exp(old - engine), 2.0).mean()),
            staleness=(float(np.mean(late)), max(late)),
            tokens=sum(len(row.tokens) for row in flat),
            loss=loss,
        )

    def _split(self, rows: Sequence[Row]) -> list[list[list[int]]]:
        """Numbers of the rows by rank and micro-batch: balanced by tokens, equally many to each rank."""
        rank = deal(np.array([len(row.tokens) for row in rows]), self.setting.trainers)
        size = self.setting.micro_batch
        mine = [np.flatnonzero(rank == r).tolist() for r in range(self.setting.trainers)]
        return [[one[i : i + size] for i in range(0, len(one), size)] for one in mine]

    def _logprobs(self, rows: list[Row]) -> list[Row]:
        """Every row with the log-probs of the trainer's weights as they are now."""
        split = self._split(rows)
        work = [[[rows[i] for i in micro] for micro in mine] for mine in split]
        with self.stage("logprob"):
            found = self.world.call(self.world.trainers, "logprob", work)
        for mine, values in zip(split, found, strict=True):
            for micro, part in zip(mine, values, strict=True):
                for i, old in zip(micro, part, strict=True):
                    rows[i] = replace(rows[i], old=old)
        return rows

    def _update(self, rows: Sequence[Row]) -> float:
        tokens = sum(len(row.tokens) - row.prompt - 1 for row in rows)
        jobs = [Job([[rows[i] for i in micro] for micro in mine], tokens) for mine in self._split(rows)]
        with self.stage("train"):
            return float(sum(self.world.call(self.world.trainers, "update", jobs)))

    # --- regimes --------------------------------------------------

    def run(self, steps: int) -> list[Step]:
        """Train so many steps; returns what they recorded."""
        schedule = {"sync": self._synchronous, "one-step-off": self._one_step_off, "async": self._asynchronous}
        schedule[self.rules.schedule](steps)
        return self.history

    def _synchronous(self, steps: int) -> None:
        for _ in range(steps):
            if self.setting.colocated:
                with self.stage("offload"):
                    self.world.call(self.world.trainers, "offload")
                    self.world.call(self.world.engines, "wake")
            self.sync()
            numbers = self.submit(self.rules.prompts)
            self.wait("rollout", numbers)
            self.train(numbers)

    def _one_step_off(self, steps: int) -> None:
        self.sync()
        numbers = self.submit(self.rules.prompts)
        for step in range(steps):
            self.wait("wait_rollout", numbers)
            if step:
                self.sync()
            following = self.submit(self.rules.prompts)
            self.train(numbers)
            numbers = following
        self.world.pump(lambda: self._complete(numbers))

    def _asynchronous(self, steps: int) -> None:
        """AReaL's bound: accepted and running ≤ (η + version + 1)·B; of what is ready the oldest groups are taken.

        Groups that others overtook until they were more than η versions late are dropped.
        """
        size, ahead = self.rules.prompts, int(self.rules.max_staleness * self.rules.prompts)
        self.sync()
        for step in range(steps):
            if step:
                self.sync()
            self._admit(ahead)
            with self.stage("wait_rollout"):
                while (ready := len(self._ready())) < size:
                    self._admit(ahead)
                    before = ready, self._dropped
                    self.world.pump(lambda old=before: (len(self._ready()), self._dropped) != old)  # type: ignore[misc]
            self.train(self._ready()[:size])
        self.world.pump(lambda: self._complete(list(self.groups)))

    def _admit(self, ahead: int) -> None:
        room = (self.version * self.rules.prompts + ahead) - (self._submitted - self._dropped)
        if room > 0:
            self.submit(room)

    def _ready(self) -> list[int]:
        """Complete groups that are young enough; the others are given up."""
        complete = sorted(number for number, group in self.groups.items() if group.complete)
        oldest = self.version - 1 - self.rules.max_staleness
        late = [n for n in complete if min(s.versions[0] for s in self.groups[n].samples) < oldest]
        for number in late:
            del self.groups[number]
        self._dropped += len(late)
        return [number for number in complete if number in self.groups]
