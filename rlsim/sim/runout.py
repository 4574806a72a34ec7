"""An engine with nothing waiting, run out to its end in closed form: the whole tail in array operations.

Once nothing waits, nothing is prefilled and KV blocks suffice to the end, all finish iterations are known. Between two
of them every rank's batch is fixed, and between two knots its time is a straight line in the iteration number. The
slowest rank's line is the maximum of straight lines, which is convex: a line that is highest at both ends of a stretch
is highest throughout. The few stretches whose ends disagree are walked crossing by crossing. The times are those of
`Engine.play`, up to rounding.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from rlsim.sim.engine import Engine
from rlsim.sim.request import NOT_RUNNING, Completion, Request

Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Stretches:
    """Stretches of iterations with fixed batches. start, n: int64[m]; b, contexts: int64[m, ranks]."""

    start: Ints
    n: Ints
    b: Ints
    contexts: Ints

    def context(self) -> Floats:
        """Mean context of every rank at the start of every stretch, float64[m, ranks]; 0 where nothing runs."""
        return np.where(self.b > 0, self.start[:, None] + self.contexts / np.maximum(self.b, 1), 0.0)


def can_run_out(engine: Engine) -> bool:
    """Whether nothing waits, nothing is prefilled, and every rank's KV holds all its sequences at their full length."""
    if engine.prefilling:
        return False
    for rank in engine.ranks:
        # as if every sequence's last block held one token only
        most = (rank.lengths + rank.b * (rank.block - 1)) // rank.block + rank.fixed
        if rank.waiting or most > rank.capacity:
            return False
    return True


def run_out(engine: Engine) -> list[Completion]:
    """Play an engine for which `can_run_out` holds until it is empty; completions in the order of time and sample."""
    requests = [request for rank in engine.ranks for request in rank.running.values()]
    finish = np.array([request.finish for request in requests], np.int64)
    order = np.lexsort((np.array([request.id for request in requests]), finish))
    ends, which = np.unique(finish, return_inverse=True)
    stretches = _between_finishes(engine, requests, ends, which)
    seconds = _seconds(engine, stretches, ends)
    times = engine.t + np.cumsum(seconds)
    _account(engine, stretches, seconds, times)
    moments = times[which[order]].tolist()
    done = [Completion(moment, requests[i]) for moment, i in zip(moments, order.tolist(), strict=True)]
    for request in requests:
        request.done = request.response
        request.finish = NOT_RUNNING
    engine.clear(int(ends[-1]), float(times[-1]))
    return done


def _between_finishes(engine: Engine, requests: list[Request], ends: Ints, which: Ints) -> Stretches:
    """One stretch before each finish iteration: what still runs on each rank."""
    shape = (len(ends), len(engine.ranks))
    rank = np.repeat(np.arange(len(engine.ranks)), [len(rank.running) for rank in engine.ranks])
    offset = np.array([request.context for request in requests], np.int64)
    gone, gone_contexts = np.zeros(shape, np.int64), np.zeros(shape, np.int64)
    np.add.at(gone, (which, rank), 1)
    np.add.at(gone_contexts, (which, rank), offset)
    left = gone[::-1].cumsum(axis=0)[::-1]
    contexts = gone_contexts[::-1].cumsum(axis=0)[::-1]
    start = np.concatenate([[engine.k], ends[:-1]])
    return Stretches(start, ends - start, left, contexts)


def _seconds(engine: Engine, whole: Stretches, ends: Ints) -> Floats:
    """Seconds of every stretch, float64[m]."""
    parts, owner = _cut_at_knots(whole, engine.surface.knots)
    knots = engine.surface.knots
    intercepts, slopes = engine.rows.arrays
    c = parts.context()
    segment = np.clip(np.searchsorted(knots, c, side="right") - 1, 0, len(knots) - 2)
    slope = slopes[parts.b, segment]
    first = np.where(parts.b > 0, intercepts[parts.b, segment] + slope * c, -1.0)
    last = first + slope * (parts.n - 1)[:, None]
    lead = np.argmax(first, axis=1)
    rows = np.arange(len(lead))
    n = parts.n.astype(np.float64)
    joint = engine.surface.joint[parts.b.sum(axis=1)]
    seconds = n * (first[rows, lead] + joint) + slope[rows, lead] * (n * (n - 1) * 0.5)
    for row in np.flatnonzero(last.max(axis=1) > last[rows, lead]).tolist():
        seconds[row] = n[row] * joint[row] + _envelope(first[row], slope[row], int(parts.n[row]))
    return np.bincount(owner, seconds, minlength=len(ends)).astype(np.float64, copy=False)


def _cut_at_knots(whole: Stretches, knots: Floats) -> tuple[Stretches, Ints]:
    """Stretches cut further wherever a rank's mean context passes a knot; and the stretch that each part belongs to."""
    c = whole.context()
    low = np.searchsorted(knots, c, side="right")
    high = np.searchsorted(knots, c + (whole.n - 1)[:, None], side="right")
    row, rank = np.nonzero((high > low) & (whole.b > 0))
    passed = high[row, rank] - low[row, rank]
    nth = np.arange(passed.sum()) - np.repeat(passed.cumsum() - passed, passed)
    row, rank = np.repeat(row, passed), np.repeat(rank, passed)
    cuts = whole.start[row] + np.ceil(knots[low[row, rank] + nth] - c[row, rank]).astype(np.int64)
    start = np.unique(np.concatenate([whole.start, cuts]))
    owner = np.searchsorted(whole.start, start, side="right") - 1
    n = np.diff(start, append=whole.start[-1] + whole.n[-1])
    return Stretches(start, n, whole.b[owner], whole.contexts[owner]), owner


def _envelope(value: Floats, slope: Floats, n: int) -> float:
    """Sum over n iterations of the highest of straight lines value + slope·i."""
    total, i = 0.0, 0
    while i < n:
        now = value + slope * i
        best = now.max()
        lead = int(np.flatnonzero(now == best)[np.argmax(slope[now == best])])
        gap = slope - slope[lead]
        rising = gap > 0
        crossing = int(((best - now[rising]) / gap[rising]).min()) + 1 if rising.any() else n
        step = min(n - i, crossing)
        total += step * best + slope[lead] * (step * (step - 1) * 0.5)
        i += step
    return float(total)


def _account(engine: Engine, stretches: Stretches, seconds: Floats, times: Floats) -> None:
    """Enter the stretches into the engine's figures and timeline."""
    stats, n = engine.stats, stretches.n
    batch = stretches.b.sum(axis=1)
    stats.iterations += int(n.sum())
    stats.jumps += len(n)
    stats.busy_seconds += float(seconds.sum())
    stats.batch_seconds += float((batch * seconds).sum())
    stats.generated_tokens += int((batch * n).sum())
    after = np.append(batch[1:], 0)
    contexts = np.append(stretches.contexts.sum(axis=1)[1:], 0)
    line = engine.timeline
    line.time.frombytes(times.tobytes())
    line.running.frombytes(after.tobytes())
    line.kv_tokens.frombytes((after * (stretches.start + n) + contexts).tobytes())
