"""Length of a pipeline schedule from the times of its micro-batches, stage by stage.

The schedules are longest paths over real micro-batch times, so uneven micro-batches and uneven stages cost what they
cost; with equal times they give the textbook (m + p - 1)·(f + b).
"""

from __future__ import annotations

from functools import lru_cache
from itertools import pairwise
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

Floats: TypeAlias = npt.NDArray[np.float64]
Index: TypeAlias = npt.NDArray[np.int64]
Wave: TypeAlias = tuple[int, int, Index]


def one_forward_one_backward(forward: Floats, backward: Floats) -> Floats:
    """Seconds of a 1F1B schedule for each of R independent pipelines.

    `forward`, `backward`: seconds [stages, micro-batches, R]. Stage s runs min(m, p - 1 - s) forwards, then forward and
    backward in turn, then the remaining backwards; F(s, j) waits for F(s-1, j), B(s, j) for B(s+1, j)
    (Narayanan et al. 2021, PipeDream-flush). Returns seconds[R].
    """
    p, m, ranks = forward.shape
    if p == 1 or m == 0:
        return np.asarray((forward + backward).sum(axis=(0, 1)))
    order, waves = _waves(p, m)
    duration = np.concatenate([forward.reshape(p * m, ranks), backward.reshape(p * m, ranks)])[order]
    end = np.zeros((2 * p * m + 1, ranks))
    for first, last, waits_for in waves:
        ready = end[waits_for]
        np.add(np.maximum(ready[0], ready[1]), duration[first:last], out=end[first:last])
    return np.asarray(end.max(axis=0))


def forward_only(forward: Floats) -> Floats:
    """Seconds of forwards alone through the pipeline, seconds [stages, micro-batches, R] -> [R].

    F(s, j) starts after F(s-1, j) and F(s, j-1); the last stage's end of j is
    cumulative_j + max over i <= j of (arrival_i - cumulative_(i-1)), with cumulative the sum of the stage's own times.
    """
    p, m, ranks = forward.shape
    if m == 0:
        return np.zeros(ranks)
    arrival = np.zeros((m, ranks))
    for s in range(p):
        total = np.cumsum(forward[s], axis=0)
        before = total - forward[s]
        arrival = total + np.maximum.accumulate(arrival - before, axis=0)
    return np.asarray(arrival[-1])


def interleaved(schedule: Floats, busiest: Floats, chunks: int) -> Floats:
    """Interleaved schedule: what a stage waits in 1F1B is divided by its chunks; its own work stays."""
    return busiest + (schedule - busiest) / chunks


@lru_cache(maxsize=32)
def _waves(p: int, m: int) -> tuple[Index, tuple[Wave, ...]]:
    """1F1B's operations sorted into waves that do not depend on each other.

    Operation s·m + j is F(s, j), p·m + s·m + j is B(s, j). Returns the operations in wave order, and per wave (first,
    last + 1, places [2, n] of the two operations each waits for: the stage's previous one and the neighbour's), where
    place 2·p·m is the start.
    """
    start = 2 * p * m
    order = [_stage_order(s, p, m) for s in range(p)]
    waits = np.full((2, start + 1), start, dtype=np.int64)
    j = np.arange(m)
    for s in range(p):
        ops = order[s]
        waits[0, ops[1:]] = ops[:-1]
        if s > 0:
            waits[1, s * m + j] = (s - 1) * m + j
        waits[1, p * m + s * m + j] = p * m + (s + 1) * m + j if s < p - 1 else s * m + j
    level = _unit_levels(p, m, order)
    by_wave = np.argsort(level, kind="stable")
    place = np.full(start + 1, start, dtype=np.int64)
    place[by_wave] = np.arange(start)
    cuts = [0, *(np.flatnonzero(np.diff(level[by_wave])) + 1).tolist(), start]
    waves = tuple((a, b, place[waits[:, by_wave[a:b]]]) for a, b in pairwise(cuts))
    return by_wave, waves


def _stage_order(s: int, p: int, m: int) -> Index:
    """Operations of stage s in the order it runs them."""
    warm = min(m, p - 1 - s)
    forwards = s * m + np.arange(m)
    backwards = p * m + s * m + np.arange(m)
    steady = np.stack([forwards[warm:], backwards[: m - warm]], axis=1).ravel()
    return np.concatenate([forwards[:warm], steady, backwards[m - warm :]])


def _unit_levels(p: int, m: int, order: list[Index]) -> Index:
    """Slot of every operation when each takes one unit: an order in which all dependencies point backwards."""
    level = np.zeros(2 * p * m, dtype=np.int64)
    done = [False] * (2 * p * m)
    at = [0] * p
    lists = [o.tolist() for o in order]
    slot = 0
    left = 2 * p * m
    while left:
        ready: list[int] = []
        for s in range(p):
            if at[s] == len(lists[s]):
                continue
            op = lists[s][at[s]]
            forward_waits = op - m if s > 0 else -1
            backward_waits = op + m if s < p - 1 else op - p * m
            waits = forward_waits if op < p * m else backward_waits
            if waits < 0 or done[waits]:
                ready.append(s)
        for s in ready:
            op = lists[s][at[s]]
            level[op] = slot
            done[op] = True
            at[s] += 1
            left -= 1
        slot += 1
    return level
