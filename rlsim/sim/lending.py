"""Trainer GPUs as rollout engines for the time that the trainer would wait (verl's hybrid switch)."""

from __future__ import annotations

import math

from rlsim.sim.loop import Loop
from rlsim.sim.prices import Lent
from rlsim.sim.request import Request
from rlsim.sim.trainer import Process


class Lending:
    """Engines on the trainer's GPUs, out of service but while they are lent.

    The rule: lend while fewer than `below` of the groups that the trainer wants are ready, if the expected gain is
    above the cost of both switches,

        missing · seconds per group · (1 - G_rollout / (G_rollout + G_trainer)) > to_rollout + to_trainer

    with the seconds per group of the last step: engine-seconds ÷ (rollout engines · groups accepted).
    """

    def __init__(self, loop: Loop, below: float, lent: Lent) -> None:
        self.loop = loop
        self.below = below
        self.lent = lent
        self.numbers = loop.pool.lent
        gpus = loop.costs.gpus
        self._share = 1 - gpus.rollout / (gpus.rollout + gpus.trainer)
        self._pace = 0.0  # seconds per group of the rollout engines alone; 0: not known yet
        self._mark = (0.0, 0)  # engine-seconds and groups accepted, when the trainer last took some

    def enough(self, wanted: int) -> int:
        """Groups that end the lending."""
        return math.ceil(self.below * wanted - 1e-9)

    def pays(self, missing: int) -> bool:
        """Whether it is worth lending until `missing` groups more are ready."""
        return missing * self._pace * self._share > self.lent.to_rollout + self.lent.to_trainer

    def took(self, accepted: int) -> None:
        """The trainer takes groups, `accepted` so far: measure the pace since it last did."""
        busy = sum(e.stats.busy_seconds + e.under_way(self.loop.clock.now)[0] for e in self.loop.pool.fleet.engines)
        seconds, groups = busy - self._mark[0], accepted - self._mark[1]
        if groups > 0:
            self._pace = seconds / (self.numbers.start * groups)
        self._mark = (busy, accepted)

    def begin(self) -> Process:
        """The trainer's states leave, weights enter the engines; then samples spread over all engines."""
        yield from self.loop.trainer.stage("offload", self.lent.to_rollout)

    def serve(self) -> None:
        """The lent engines are in service: samples move there from the fuller ones."""
        pool, now = self.loop.pool, self.loop.clock.now
        pool.fleet.bring_up(self.numbers, now)
        moved = pool.fleet.abort([request.id for request in self._surplus()], now)
        pool.resubmit(moved)

    def _surplus(self) -> list[Request]:
        """What the engines hold above their even share: waiting samples first, then those with the least context."""
        fleet = self.loop.pool.fleet
        serving = [rank for number in sorted(fleet.in_service) for rank in fleet.engines[number].ranks]
        for number in fleet.in_service:
            fleet.engines[number].settle()
        share = -(-sum(rank.load for rank in serving) // len(serving))
        surplus: list[Request] = []
        for rank in serving:
            running = sorted(rank.running.values(), key=lambda request: (request.prompt + request.done, request.id))
            surplus += [*reversed(rank.waiting), *running][: max(0, rank.load - share)]
        return surplus

    def end(self, since: float) -> Process:
        """The GPUs go back: samples on them go on elsewhere with their tokens, the trainer's states return."""
        pool, recorder, now = self.loop.pool, self.loop.recorder, self.loop.clock.now
        pool.resubmit(pool.fleet.take_down(self.numbers, now))
        recorder.span("generate", "trainer", since, now, "rollout")
        recorder.step.lent += now - since
        recorder.step.lendings += 1
        yield from self.loop.trainer.stage("onload", self.lent.to_trainer)
