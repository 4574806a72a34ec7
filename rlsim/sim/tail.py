"""The long tail of one rollout."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]


def tail_seconds(start: Floats, end: Floats) -> float:
    """Seconds of one rollout, after its peak, in which fewer than a quarter of its peak of samples run.

    start, end: float64[samples], first and last moment of each sample on an engine.
    """
    times = np.concatenate([start, end])
    change = np.concatenate([np.ones(len(start), np.int64), np.full(len(end), -1, np.int64)])
    order = np.lexsort((-change, times))
    times, running = times[order], np.cumsum(change[order])
    peak = int(running.max())
    first = int(running.argmax())
    low = running[first:-1] * 4 < peak
    return float(np.diff(times[first:])[low].sum())
