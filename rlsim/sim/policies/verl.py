"""verl's fully asynchronous trainer: so many samples between two weight syncs, those carried over included."""

from __future__ import annotations

import math

from rlsim.sim.policies.base import Policy, Rank, Stand
from rlsim.sim.settings import Settings


class Verl(Policy):
    """Pauses when the queue holds M groups, or M were submitted since the sync with those carried over.

    M = ⌊R·(1 + θ)·K⌋: R groups are one round of the trainer (a mini-batch's prompts · require_batches), K rounds lie
    between two syncs (sync_every). At a sync the counter becomes what is in flight and in the queue. As the trainer
    took K·R meanwhile, that is at most θ·R·K: with B = R·K it is AReaL's bound for η = θ. The queue is first in,
    first out. In flight: at most 16 groups an engine (max_concurrent), and M.
    Source: verl/experimental/fully_async_policy/fully_async_rollouter.py.
    """

    reacts = True

    def __init__(self, settings: Settings) -> None:
        self.most = math.floor(settings.round_prompts * (1 + settings.theta) * settings.sync_every + 1e-9)
        self.limit = min(self.most, settings.max_concurrent or self.most)
        self.counter = 0
        self._order = 0

    def room(self, stand: Stand) -> int:
        if stand.queued >= self.most:
            return 0
        return min(self.most - self.counter, self.limit - stand.running)

    def admitted(self, groups: range, stand: Stand) -> None:
        self.counter += len(groups)

    def lost(self, group: int, ready: bool) -> None:
        self.counter -= 1

    def accepted(self, group: int, stand: Stand) -> Rank:
        self._order += 1
        return (self._order,)

    def published(self, stand: Stand) -> None:
        self.counter = stand.running + stand.ready
