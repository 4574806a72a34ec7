"""TRL's asynchronous GRPO: a bounded number in flight, a bounded queue, and what got too old is dropped."""

from __future__ import annotations

import math

import numpy as np

from rlsim.sim.policies.base import Bools, Ints, Policy, Rank, Stand
from rlsim.sim.settings import Settings

QUEUE_SAMPLES = 1024  # queue_maxsize


class Trl(Policy):
    """In flight ≤ max_staleness · B groups (max_concurrent), finished ≤ queue (1,024 samples).

    A sample whose version is more than max_staleness behind when the trainer takes it is dropped. First in, first out.
    Source: trl/experimental/async_grpo/async_grpo_config.py.
    """

    reacts = True
    drops = True

    def __init__(self, settings: Settings) -> None:
        self.oldest = math.floor(settings.max_staleness + 1e-9)
        self.limit = settings.max_concurrent or max(1, math.floor(settings.max_staleness * settings.prompts + 1e-9))
        waiting = math.ceil(QUEUE_SAMPLES / settings.group_size)
        self.queue = max(settings.prompts, waiting if settings.queue is None else settings.queue * settings.prompts)
        self._order = 0

    def room(self, stand: Stand) -> int:
        return self.limit - stand.running if stand.queued < self.queue else 0

    def accepted(self, group: int, stand: Stand) -> Rank:
        self._order += 1
        return (self._order,)

    def too_old(self, groups: list[int], begun: Ints, version: int) -> Bools:
        return np.asarray(version - begun > self.oldest)
