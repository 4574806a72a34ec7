"""The long tail of one rollout."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]


def tail_seconds(start: Floats, end: Floats) -> float:
    """Seconds of one rollout, after its peak, in which fewer than a quarter of its peak of samples run.

    start, end: float64[samples], first and last moment of each sample on an engine.
    """
    times, running = running_over_time(start, end)
    peak = int(running.max())
    first = int(running.argmax())
    low = running[first:-1] * 4 < peak
    return float(np.diff(times[first:])[low].sum())


def peak_running(start: Floats, end: Floats) -> int:
    """Most samples that run at a time; `end` is inf while one runs."""
    return int(running_over_time(start, end)[1].max())


def running_over_time(start: Floats, end: Floats) -> tuple[Floats, npt.NDArray[np.int64]]:
    """Moments at which the number of running samples changes, and what it is from then on."""
    times = np.concatenate([start, end])
    change = np.concatenate([np.ones(len(start), np.int64), np.full(len(end), -1, np.int64)])
    order = np.lexsort((-change, times))
    return times[order], np.cumsum(change[order])
