"""The RL loop's processes on one clock, and the moves that several regimes make."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from rlsim.errors import UserError
from rlsim.sim.checkpoints import Checkpoints
from rlsim.sim.clock import Clock
from rlsim.sim.engine_faults import EngineFaults
from rlsim.sim.evaluation import Evaluated, Evaluator
from rlsim.sim.faults import Weather
from rlsim.sim.ledger import CRASH, FATES, TRAINED, Ints, Ledger
from rlsim.sim.prices import Costs, Sync
from rlsim.sim.recorder import Recorder
from rlsim.sim.rollout import RolloutPool
from rlsim.sim.settings import ASYNC, Settings
from rlsim.sim.trainer import Process, Trainer
from rlsim.sim.versions import Versions
from rlsim.sim.work import Draw, Work

HOPELESS = 100  # crashes in a row without a step that none before had reached


class Loop:
    """One run: clock, prompts, rollout pool, trainer, versions, and what is recorded of them."""

    def __init__(self, settings: Settings, costs: Costs, draw: Draw, seed: int) -> None:
        self.settings = settings
        self.costs = costs
        self.clock = Clock()
        self.ledger = Ledger()
        self.recorder = Recorder(settings.colocated)
        self.versions = Versions()
        self.work = Work(draw, costs.reward, seed, self.ledger, settings.pass_rate)
        turns = self.work.turns if settings.rollout.turns else None
        self.pool = RolloutPool(self.clock, costs, self.ledger, self.recorder, settings.rollout, turns)
        weather = Weather(costs.faults, seed)
        self.trainer = Trainer(self.clock, costs, settings, self.ledger, self.versions, self.recorder, weather)
        self.trainer.crashed = self._crashed
        EngineFaults(self.pool, self.recorder, costs.faults, seed)
        self.checkpoints = Checkpoints(settings.checkpoint_every, costs.checkpoint, settings.warmup)
        self.evaluator = Evaluator(settings.evaluation, costs, draw, seed)
        self.catch_up: Callable[[], None] = lambda: None  # bring the rollout up to now
        self._restored = 0  # steps that the checkpoint held which the last crash went back to
        self._farthest = self._crashes = 0

    @property
    def done(self) -> int:
        """Steps that count: done, and not lost in a crash."""
        return len(self.recorder.steps)

    def groups(self, ids: range) -> Ints:
        """Sample numbers as int64[groups, group_size]."""
        return np.arange(ids.start, ids.stop).reshape(-1, self.settings.group_size)

    @property
    def sync(self) -> Sync:
        """What the next weight sync costs: the first of a run may be dearer than the rest."""
        first = self.costs.first_sync
        return self.costs.sync if first is None or self.versions.current else first

    def rewarded(self, ids: Ints) -> float:
        """When a batch, all of whose samples have ended, has all its rewards."""
        return float(self.pool.scored(ids.reshape(1, -1))[0])

    def blocking_sync(self) -> Process:
        """Weight sync with nothing in flight: both sides take part from beginning to end."""
        start = self.clock.now
        self.recorder.step.lost.group += self.sync.group_seconds
        yield from self.trainer.stage("weight_sync", self.sync.seconds)
        self.pool.renew()
        self.recorder.pool("weight_sync", start, self.clock.now)
        self.versions.publish(self.clock.now, self.trainer.updates)
        yield from self.evaluate()

    def evaluate(self) -> Process:
        """An evaluation pass if one is due; the engines have nothing else to do and the trainer waits."""
        if self.evaluator.due(self.done):
            start = self.clock.now
            yield from self.trainer.stage("evaluation", self.evaluated().seconds)
            self.recorder.pool("evaluation", start, self.clock.now)

    def evaluated(self) -> Evaluated:
        """An evaluation pass, entered into the accounts."""
        one = self.evaluator.play(self.done)
        self.recorder.step.evaluated += one.tokens
        self.recorder.step.evaluating += one.busy
        return one

    def drop(self, ids: Ints, fate: int, tokens: int | None = None) -> None:
        """Give samples up, for the reason `fate`; `tokens` generated for them in vain (default: all of theirs)."""
        self.ledger["fate"][ids] = fate
        wasted = int(self.ledger["generated"][ids].sum()) if tokens is None else tokens
        self.recorder.step.drop(FATES[fate], ids.size, wasted)

    def close_step(self, tail: float | None = None) -> Process:
        """The updates of a step are done: save if a checkpoint is due, and end it; or go back, if a crash lost it."""
        if self.checkpoints.due(self.done + 1):
            yield from self._save()
            self.catch_up()
        if self.trainer.lost:
            self.trainer.lost = False
            self._roll_back(whole=True)
        else:
            self.end_step(tail)

    def _save(self) -> Process:
        stops = self.settings.save_pauses_rollout and self.settings.schedule == ASYNC
        if stops:
            self.pool.stand_still()
        yield from self.trainer.stage("checkpoint", self.checkpoints.seconds(self.clock.now))
        if stops:
            self.pool.go_on()
        if not self.trainer.lost:
            self.checkpoints.saved(self.done + 1, self.clock.now)

    def _crashed(self, moment: float) -> None:
        """The trainer crashed: the steps since its last safe checkpoint do not count."""
        self._crashes = self._crashes + 1 if self.done <= self._farthest else 1
        self._farthest = max(self._farthest, self.done)
        if self._crashes > HOPELESS:
            raise UserError(
                f"the trainer crashes {HOPELESS} times without getting any further than step {self._farthest}",
                key="faults",
                fix="a longer mtbf, or run.checkpoint_every: 1",
            )
        self._restored = self.checkpoints.restore(moment, self.done)
        if not self.trainer.lost:
            self._roll_back(whole=False)

    def _roll_back(self, whole: bool) -> None:
        """Only the steps that the checkpoint holds count; the samples of the others are lost with them."""
        done = self._restored
        self.recorder.roll_back(done, self.clock.now, self.pool.counts() if whole else None)
        self.evaluator.back_to(done)
        rows = np.flatnonzero((self.ledger["step"] >= done) & (self.ledger["fate"] == TRAINED))
        if len(rows):
            self.drop(rows, CRASH)

    def end_step(self, tail: float | None = None) -> None:
        """Close the step; `tail` of its rollout, where a rollout is a batch."""
        self.recorder.step.tail = tail
        self.recorder.end_step(self.clock.now, self.pool.counts())
