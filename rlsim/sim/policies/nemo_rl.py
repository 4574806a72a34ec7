"""NeMo-RL: every group is reserved for one training step."""

from __future__ import annotations

import math
from collections import Counter

import numpy as np

from rlsim.sim.policies.base import Bools, Ints, Policy, Rank, Stand
from rlsim.sim.settings import Settings


class NemoRl(Policy):
    """Generation under version g may serve the steps g+1 … g+A (the first version also its own), B groups each.

    A = max_staleness. Step t trains on exactly the B groups reserved for it and stalls until they are all there; a
    trajectory that began before version t-A would be evicted. Lock step: no group overtakes one of an earlier step.
    Source: nemo_rl/algorithms/async_utils (max_trajectory_age_steps).
    """

    drops = True

    def __init__(self, settings: Settings) -> None:
        self.prompts = settings.prompts
        self.age = math.floor(settings.max_staleness + 1e-9)
        self.step = 0
        self._reserved: Counter[int] = Counter()
        self._there: Counter[int] = Counter()
        self._target: dict[int, int] = {}
        self._order = 0

    def room(self, stand: Stand) -> int:
        return sum(self.prompts - self._reserved[step] for step in self._open(stand))

    def _open(self, stand: Stand) -> range:
        return range(self.step, stand.version + self.age + 1)

    def admitted(self, groups: range, stand: Stand) -> None:
        free = iter(groups)
        for step in self._open(stand):
            for _ in range(self.prompts - self._reserved[step]):
                group = next(free, None)
                if group is None:
                    return
                self._target[group] = step
                self._reserved[step] += 1

    def accepted(self, group: int, stand: Stand) -> Rank:
        target = self._target[group]
        self._there[target] += 1
        self._order += 1
        return (target, self._order)

    def lost(self, group: int, ready: bool) -> None:
        target = self._target.pop(group)
        self._reserved[target] -= 1
        self._there[target] -= ready

    def enough(self, wanted: int, stand: Stand) -> bool:
        return self._there[self.step] >= wanted

    def taken(self, groups: list[int]) -> None:
        self.step += 1

    def too_old(self, groups: list[int], begun: Ints, version: int) -> Bools:
        return np.asarray(version - begun > self.age)
