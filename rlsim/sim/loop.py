"""The RL loop's processes on one clock, and the moves that several regimes make."""

from __future__ import annotations

import numpy as np

from rlsim.sim.clock import Clock
from rlsim.sim.ledger import FATES, Ints, Ledger
from rlsim.sim.prices import Costs
from rlsim.sim.recorder import Recorder
from rlsim.sim.rollout import RolloutPool
from rlsim.sim.settings import Settings
from rlsim.sim.trainer import Process, Trainer
from rlsim.sim.versions import Versions
from rlsim.sim.work import Draw, Work


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
        self.pool = RolloutPool(self.clock, costs, self.ledger, self.recorder)
        self.trainer = Trainer(self.clock, costs, settings, self.ledger, self.versions, self.recorder)

    def groups(self, ids: range) -> Ints:
        """Sample numbers as int64[groups, group_size]."""
        return np.arange(ids.start, ids.stop).reshape(-1, self.settings.group_size)

    def rewarded(self, ids: Ints) -> float:
        """When a batch, all of whose samples have ended, has all its rewards."""
        return float(self.pool.scored(ids.reshape(1, -1))[0])

    def blocking_sync(self) -> Process:
        """Weight sync with nothing in flight: both sides take part from beginning to end."""
        start = self.clock.now
        yield from self.trainer.stage("weight_sync", self.costs.sync.seconds)
        self.recorder.pool("weight_sync", start, self.clock.now)
        self.versions.publish(self.clock.now, self.trainer.updates)

    def drop(self, ids: Ints, fate: int, tokens: int | None = None) -> None:
        """Give samples up, for the reason `fate`; `tokens` generated for them in vain (default: all of theirs)."""
        self.ledger["fate"][ids] = fate
        wasted = int(self.ledger["response"][ids].sum()) if tokens is None else tokens
        self.recorder.step.drop(FATES[fate], ids.size, wasted)

    def end_step(self, tail: float | None = None) -> None:
        """Close the step; `tail` of its rollout, where a rollout is a batch."""
        self.recorder.step.tail = tail
        self.recorder.end_step(self.clock.now, self.pool.counts())
