"""The finishes that lie ahead of an undisturbed engine, many at once, in array operations.

While nothing is admitted, preempted or prefilled, all finish iterations are known. Between two of them every rank's
batch is fixed, and between two knots its time is a straight line in the iteration number. The slowest rank's line is
the maximum of straight lines, which is convex: a line that is highest at both ends of a stretch is highest throughout.
The few stretches whose ends disagree are walked crossing by crossing. The times are those of plain jumps, up to
rounding.
"""

from __future__ import annotations

from dataclasses import dataclass
from operator import attrgetter
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from rlsim.sim.request import Request

if TYPE_CHECKING:
    from rlsim.sim.engine import Engine

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


@dataclass
class Schedule:
    """At iteration ends[i], at times[i], the samples finished[i] (by number) are done. `next` is the first to come."""

    ends: list[int]
    times: list[float]
    finished: list[list[Request]]
    stretches: Stretches
    seconds: Floats
    next: int = 0


def look_ahead(engine: Engine, most: int | None = None) -> Schedule | None:
    """The next finishes of an engine that decodes only: at most so many iterations with finishes, None: to the end.

    With `most` only as far as KV blocks suffice for sure; that may be nowhere. None: there is nothing to schedule.
    """
    ends = sorted(engine.finishes.at)
    if most is not None:
        ends = ends[: min(most, int(np.searchsorted(ends[:most], engine.safe, side="right")))]
    if not ends:
        return None
    finished = [engine.finishes.at[end] for end in ends]
    for requests in finished:
        if len(requests) > 1:
            requests.sort(key=attrgetter("id"))
    stretches = _between(engine, ends, finished)
    seconds = _seconds(engine, stretches)
    times = engine.t + np.cumsum(seconds)
    return Schedule(ends, times.tolist(), finished, stretches, seconds)


def can_run_out(engine: Engine) -> bool:
    """Whether nothing waits, nothing is prefilled, and every rank's KV holds all its sequences at their full length."""
    for rank in engine.ranks:
        # as if every sequence's last block held one token only
        most = (rank.lengths + rank.b * (rank.block - 1)) // rank.block + rank.fixed
        if rank.waiting or rank.prefilling or most > rank.capacity:
            return False
    return True


def account(engine: Engine, schedule: Schedule) -> None:
    """Enter what has been played of a schedule into the engine's figures and timeline."""
    m, stretches = schedule.next, schedule.stretches
    stats, n, seconds = engine.stats, stretches.n[:m], schedule.seconds[:m]
    batch, contexts = stretches.b.sum(axis=1), stretches.contexts.sum(axis=1)
    stats.iterations += int(n.sum())
    stats.jumps += m
    stats.busy_seconds += float(seconds.sum())
    stats.batch_seconds += float((batch[:m] * seconds).sum())
    stats.generated_tokens += int((batch[:m] * n).sum())
    after = batch[1 : m + 1]
    line = engine.timeline
    line.time.extend(schedule.times[:m])
    line.running.frombytes(after.tobytes())
    line.kv_tokens.frombytes((after * (stretches.start[:m] + n) + contexts[1 : m + 1]).tobytes())


def end_played(engine: Engine, schedule: Schedule) -> None:
    """Take the samples that are done out of their ranks, one iteration after another."""
    changed = {}
    for end, finished in zip(schedule.ends[: schedule.next], schedule.finished, strict=False):
        del engine.finishes.at[end]
        for request in finished:
            request.rank.prune(end)
            request.rank.end_decode(request)
            changed[request.rank.index] = request.rank
        if engine.keeps:
            engine.keep(finished, end)
    for rank in changed.values():
        engine.count(rank, rank.safe_until())


def _between(engine: Engine, ends: list[int], finished: list[list[Request]]) -> Stretches:
    """One stretch before each finish iteration: what still runs on each rank. One more, of no length, at the end."""
    m, ranks = len(ends), engine.ranks
    which = np.repeat(np.arange(1, m + 1), [len(requests) for requests in finished])
    rank = np.array([request.rank.index for requests in finished for request in requests], np.int64)
    offset = np.array([request.context for requests in finished for request in requests], np.int64)
    b, contexts = np.zeros((m + 1, len(ranks)), np.int64), np.zeros((m + 1, len(ranks)), np.int64)
    np.subtract.at(b, (which, rank), 1)
    np.subtract.at(contexts, (which, rank), offset)
    b[0] = [rank.b for rank in ranks]
    contexts[0] = [rank.contexts for rank in ranks]
    start = np.array([engine.k, *ends], np.int64)
    n = np.diff(start, append=start[-1])
    return Stretches(start, n, b.cumsum(axis=0), contexts.cumsum(axis=0))


def _seconds(engine: Engine, whole: Stretches) -> Floats:
    """Seconds of every stretch but the last, float64[m]."""
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
    return np.bincount(owner, seconds, minlength=len(whole.n) - 1).astype(np.float64, copy=False)


def _cut_at_knots(whole: Stretches, knots: Floats) -> tuple[Stretches, Ints]:
    """Stretches cut further wherever a rank's mean context passes a knot; and the stretch that each part belongs to."""
    whole = Stretches(whole.start[:-1], whole.n[:-1], whole.b[:-1], whole.contexts[:-1])
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
