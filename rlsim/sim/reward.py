"""The reward pool: samples are scored as they finish, first come first served, by a number of workers.

Not a simpy process: nothing can interrupt a score, so the moment it is done follows from the moment the
sample finished (Lindley's recursion over the workers), an event per sample would cost more than engines do.
"""

from __future__ import annotations

from heapq import heapreplace

import numpy as np
import numpy.typing as npt

Seconds = npt.NDArray[np.float64]


class RewardPool:
    """State: when each worker is free again."""

    def __init__(self, workers: int | None) -> None:
        self.free = None if workers is None else [0.0] * workers

    def score(self, finished: Seconds, seconds: Seconds) -> Seconds:
        """When each score is there; `finished` ascends, also over calls.

        done_i = max(finished_i, earliest free worker) + seconds_i
        """
        if self.free is None:
            return finished + seconds
        done = np.empty_like(finished)
        free = self.free
        for i, (at, cost) in enumerate(zip(finished.tolist(), seconds.tolist(), strict=True)):
            done[i] = end = max(at, free[0]) + cost
            heapreplace(free, end)
        return done
