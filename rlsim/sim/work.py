"""Where prompts come from: the batches of the workload, drawn one after another, the same in every regime."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

import numpy as np

from rlsim.sim.ledger import ENVIRONMENT, Batch, Ledger
from rlsim.sim.passing import PassRate
from rlsim.sim.prices import Reward

Draw = Callable[[np.random.Generator, int], Batch]
LENGTHS, REWARDS, PASSES = 0, 1, 2


class Plans(Protocol):
    """Turns of the samples of one batch."""

    def of(self, sample: int) -> Sequence[tuple[int, int, float]]: ...


class Work:
    """Draws batches into the ledger. Batch k has its own random streams, so variants see the same samples."""

    def __init__(
        self, draw: Draw, reward: Reward, seed: int, ledger: Ledger, pass_rate: PassRate | None = None
    ) -> None:
        self._draw = draw
        self._reward = reward
        self._pass_rate = pass_rate
        self._seed = seed
        self._ledger = ledger
        self.batches = 0
        self.groups = 0
        self._plans: list[Plans] = []
        self._size = 0

    def turns(self, sample: int) -> Sequence[tuple[int, int, float]]:
        """Turns of a sample that passes through the engines more than once."""
        batch, number = divmod(sample, self._size)
        return self._plans[batch].of(number)

    def batch(self, step: int | None = None) -> range:
        """Sample numbers of the next batch, whose lengths are those of `step` (drift); default one batch a step."""
        lengths = np.random.default_rng([self._seed, self.batches, LENGTHS])
        rewards = np.random.default_rng([self._seed, self.batches, REWARDS])
        batch = self._draw(lengths, self.batches if step is None else step)
        given = getattr(batch, "reward_seconds", None)  # a trace has its own
        seconds = self._reward.seconds(rewards, batch.response_tokens.size) if given is None else given.ravel()
        groups, size = batch.response_tokens.shape
        informative = np.ones(groups, np.bool_)
        if self._pass_rate is not None:
            passes = np.random.default_rng([self._seed, self.batches, PASSES])
            informative = self._pass_rate.informative(passes, groups, size)
        ids = self._ledger.admit(batch, seconds, informative, self.groups)
        plan = getattr(batch, "plan", None)
        if plan is not None:
            self._plans.append(plan)
            self._size = len(ids)
            self._ledger["fate"][np.array(ids)[plan.lost]] = ENVIRONMENT
        self.batches += 1
        self.groups += groups
        return ids
