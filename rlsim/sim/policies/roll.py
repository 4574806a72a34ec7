"""ROLL: batches ahead by a ratio, trained on in the order of the step that began them."""

from __future__ import annotations

import math
from collections import Counter

import numpy as np

from rlsim.sim.policies.base import Bools, Ints, Policy, Rank, Stand
from rlsim.sim.settings import Settings


class Roll(Policy):
    """accepted + running ≤ (s + 1)·B + ⌈α·B⌉ with step s and α = max_staleness; also running ≤ max_concurrent.

    A step takes the groups that the oldest steps began, waiting for those that still run: nothing begun in a later step
    overtakes them. Groups begun before step s-⌈α⌉ are given up; if α is no whole number, a step takes at most
    ⌊frac(α)·B⌋ groups of its oldest one.
    Source: roll/distributed/scheduler/generate_scheduler.py (ReplayBuffer).
    """

    drops = True

    def __init__(self, settings: Settings) -> None:
        self.prompts = settings.prompts
        self.extra = math.ceil(settings.max_staleness * settings.prompts - 1e-9)
        self.oldest = math.ceil(settings.max_staleness - 1e-9)
        share = settings.max_staleness - math.floor(settings.max_staleness)
        self.of_oldest = math.floor(share * settings.prompts + 1e-9) if share > 1e-9 else settings.prompts
        self.limit = settings.max_concurrent
        self.reacts = self.limit is not None
        self._begun: dict[int, int] = {}
        self._alive: Counter[int] = Counter()
        self._there: Counter[int] = Counter()
        self._order = 0

    def room(self, stand: Stand) -> int:
        room = (stand.version + 1) * self.prompts + self.extra - stand.accepted - stand.running
        return room if self.limit is None else min(room, self.limit - stand.running)

    def admitted(self, groups: range, stand: Stand) -> None:
        self._begun.update(dict.fromkeys(groups, stand.version))
        self._alive[stand.version] += len(groups)

    def accepted(self, group: int, stand: Stand) -> Rank:
        begun = self._begun[group]
        self._there[begun] += 1
        self._order += 1
        return (begun, self._order)

    def _gone(self, groups: list[int], there: bool) -> None:
        for group in groups:
            begun = self._begun.pop(group)
            self._alive[begun] -= 1
            self._there[begun] -= there

    def lost(self, group: int, ready: bool) -> None:
        self._gone([group], ready)

    def taken(self, groups: list[int]) -> None:
        self._gone(groups, True)

    def enough(self, wanted: int, stand: Stand) -> bool:
        for begun in range(stand.version - self.oldest, stand.version):
            share = min(wanted, self._alive[begun], self._most(begun, stand.version))
            if self._there[begun] < share:
                return False
            wanted -= share
        return self._there[stand.version] >= wanted

    def _most(self, begun: int, version: int) -> int:
        """Groups of one step that the step `version` may take."""
        return self.of_oldest if begun == version - self.oldest else self.prompts

    def too_old(self, groups: list[int], begun: Ints, version: int) -> Bools:
        steps = np.array([self._begun[group] for group in groups])
        oldest = version - self.oldest
        surplus = np.cumsum(steps == oldest) > self.of_oldest
        return np.asarray((steps < oldest) | ((steps == oldest) & surplus & (self.oldest > 0)))
