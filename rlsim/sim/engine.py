"""One rollout engine with continuous batching, played from batch change to batch change; exact, no simpy.

`plan` decides what happens at the boundary between two iterations (preempt, admit) and how far the engine can go
without another decision; `play` finishes that stretch. Iterations with prompt tokens are stepped singly; stretches of
pure decode are jumped: with the batch fixed every rank's mean context grows by one per iteration, so on one linear piece
n iterations cost n·t0 + slope·n(n-1)/2. The slowest rank's line holds until another rank's crosses it or a knot comes.
"""

from __future__ import annotations

from array import array
from bisect import bisect_right
from dataclasses import dataclass
from functools import cached_property
from heapq import heappop, heappush
from math import ceil, inf, sqrt

import numpy as np

from rlsim.sim.rank import NEVER, Rank
from rlsim.sim.request import Request
from rlsim.sim.surface import Floats, Surface

TOLERANCE = 1e-12  # relative: a boundary at T counts as before T
INFINITY = inf
Piece = tuple[float, int, float, float]


class Rows:
    """A surface as plain Python numbers: per batch and segment the line a + m·c of a rank's iteration time."""

    def __init__(self, surface: Surface) -> None:
        self.surface = surface
        self.knots: list[float] = surface.knots.tolist()
        self.joint: list[float] = surface.joint.tolist()
        self._lines: list[tuple[list[float], list[float]] | None] = [None] * len(surface.rank_rows)

    @cached_property
    def arrays(self) -> tuple[Floats, Floats]:
        """(intercepts, slopes), float64[B+1, K-1]: row b on segment j is intercept + slope·c."""
        knots, rows = self.surface.knots, self.surface.rank_rows
        slopes = np.diff(rows, axis=1) / np.diff(knots)
        return rows[:, :-1] - slopes * knots[:-1], slopes

    def lines(self, b: int) -> tuple[list[float], list[float]]:
        """(intercepts, slopes) of row b by segment."""
        found = self._lines[b]
        if found is None:
            intercepts, slopes = self.arrays
            found = self._lines[b] = (intercepts[b].tolist(), slopes[b].tolist())
        return found


@dataclass
class Stats:
    """Cumulative figures of one engine, or of all.

    busy_seconds      time with an iteration under way
    batch_seconds     decoding sequences · time
    prefill_seconds   what prompt tokens added to iterations; of it reprefill_seconds for tokens done before
    """

    busy_seconds: float = 0.0
    batch_seconds: float = 0.0
    prefill_seconds: float = 0.0
    reprefill_seconds: float = 0.0
    generated_tokens: int = 0
    prefill_tokens: int = 0
    reprefilled_tokens: int = 0
    preemptions: int = 0
    iterations: int = 0
    jumps: int = 0


class Timeline:
    """Running sequences and KV tokens of an engine at its batch changes, in flat typed columns."""

    def __init__(self) -> None:
        self.time = array("d")
        self.running = array("q")
        self.kv_tokens = array("q")

    def add(self, time: float, running: int, kv_tokens: int) -> None:
        self.time.append(time)
        self.running.append(running)
        self.kv_tokens.append(kv_tokens)


class Engine:
    """State of one engine. `t` and `k` stand at the last boundary played; `end` is the boundary planned next."""

    def __init__(self, rows: Rows, share_prompts: bool = True) -> None:
        surface = rows.surface
        self.rows = rows
        self.surface = surface
        self.share = share_prompts
        self.ranks = [
            Rank(surface.max_num_seqs, surface.kv_capacity_tokens, surface.block_size) for _ in range(surface.ranks)
        ]
        self.t = 0.0
        self.k = 0
        self.end = INFINITY
        self.stats = Stats()
        self.timeline = Timeline()
        self._steps = 0
        self._pieces: list[Piece] = []
        self._chunks: list[tuple[int, Request, int]] = []
        self._mixed = (0.0, 0.0)
        self._ends: list[tuple[int, int, int, int, Request]] = []
        self._serial = 0
        self._dirty: set[int] = set()
        self._prefilling: set[int] = set()
        self._seen = [(0, 0, 0)] * surface.ranks
        self._batch = self._contexts = self._running = 0
        self._safe = [NEVER] * surface.ranks
        self._lead = self.ranks[0]
        self._lead_until = -1

    # --- from outside ---------------------------------------------------------------------------------------------------

    @property
    def in_flight(self) -> int:
        """Samples that wait or run here."""
        return sum(rank.load for rank in self.ranks)

    def under_way(self, now: float) -> tuple[float, int, int]:
        """What of the planned stretch lies before `now`, in whole iterations: (seconds, decoding sequences, tokens)."""
        steps, end, bound = 0, self.t, now + TOLERANCE * abs(now)
        if self.end == INFINITY:
            return 0.0, 0, 0
        for piece in self._pieces:
            n = fitting(piece, bound)
            if n:
                steps, end = steps + n, boundary(piece, n)
            if n < piece[1]:
                break
        return end - self.t, self._batch, steps * self._batch

    def submit(self, index: int, request: Request) -> None:
        """Queue a request at rank `index`; `notice` makes the engine look at it."""
        self.ranks[index].waiting.append(request)
        self._dirty.add(index)

    def notice(self, now: float) -> None:
        """Something new waits: an idle engine plans now; a running one stops at the first boundary from `now` on."""
        if self.end == INFINITY:
            self.t = now
            self.plan()
        elif any(self._may_admit(self.ranks[index]) for index in self._dirty):
            self._shorten(now, beyond=True)

    def stop(self, now: float) -> list[Request]:
        """Play the boundaries up to `now`, drop the iteration under way, stand still. Returns what finished."""
        done: list[Request] = []
        if self.end != INFINITY:
            self._shorten(now, beyond=False)
            done = self.play()
        self._idle()
        self.t = now
        self._record()
        return done

    def start(self, now: float) -> None:
        """Go on from a standstill."""
        self.t = now
        self._dirty.update(index for index, rank in enumerate(self.ranks) if rank.load)
        self.plan()

    def forget_kv(self) -> None:
        """All that runs loses its KV and goes to the front of its queue, the oldest first. Only at a standstill."""
        for index, rank in enumerate(self.ranks):
            rank.grow_to(self.k)
            while rank.running:
                rank.preempt(self.k)
            self._refresh(index, rank)

    def remove(self, wanted: set[int] | None) -> list[Request]:
        """Take samples out (None: all of them). Only at a standstill."""
        gone: list[Request] = []
        for index, rank in enumerate(self.ranks):
            rank.grow_to(self.k)
            here = [*rank.running.values(), *rank.waiting]
            lost = {r.id: r for r in here if wanted is None or r.id in wanted}
            for request in lost.values():
                if request.id in rank.running:
                    rank.take_out(request, self.k)
            kept = [r for r in rank.waiting if r.id not in lost]
            rank.waiting.clear()
            rank.waiting.extend(kept)
            gone += lost.values()
            self._refresh(index, rank)
        return gone

    def clear(self, k: int, t: float) -> None:
        """Stand idle at boundary k with nothing on any rank: all that ran has finished."""
        self.k, self.t = k, t
        self._ends.clear()
        for index, rank in enumerate(self.ranks):
            rank.clear(k)
            self._refresh(index, rank)
        self._dirty.clear()
        self._idle()

    # --- decide ---------------------------------------------------------------------------------------------------------

    def plan(self) -> None:
        """At boundary k: preempt, admit, choose the next stretch."""
        if min(self._safe) <= self.k:
            self._dirty.update(index for index, safe in enumerate(self._safe) if safe <= self.k)
        if self._dirty:
            for index in sorted(self._dirty):
                self._decide(index)
            self._dirty.clear()
        if self._prefilling:
            self._plan_mixed()
        elif self._batch:
            self._plan_jump()
        else:
            self._idle()
        self._record()

    def _decide(self, index: int) -> None:
        """One rank at boundary k: preempt the youngest until this iteration's growth fits; else admit."""
        rank, k = self.ranks[index], self.k
        rank.grow_to(k)
        preempted = False
        while rank.b and rank.need(k) > rank.capacity - rank.used:
            if len(rank.running) == 1:
                raise RuntimeError("one sequence does not fit into the KV cache of its rank")
            rank.preempt(k)
            self.stats.preemptions += 1
            preempted = True
        if rank.waiting and not preempted:
            budget = self.surface.max_num_batched_tokens - rank.b
            for request in rank.prefilling:
                budget -= min(budget, request.todo)
            rank.admit(k, budget, self.t, self.share)
        self._refresh(index, rank)

    def _plan_mixed(self) -> None:
        """One iteration with prompt tokens: every rank's chunks, the slowest rank's time."""
        surface, k = self.surface, self.k
        slowest = plain = 0.0
        self._chunks = []
        for index, rank in enumerate(self.ranks):
            b = rank.b
            c = k + rank.contexts / b if b else 0.0
            seconds = decode = surface.row(b, c) if b else 0.0
            if rank.prefilling:
                tokens, pairs = self._chunk(index, rank)
                seconds = surface.mixed(b, c, tokens, pairs)
                self._dirty.add(index)
            slowest, plain = max(slowest, seconds), max(plain, decode)
        seconds = slowest + self.rows.joint[self._batch]
        again = sum(n for _, request, n in self._chunks if request.prefilled)
        share = again / max(1, sum(n for _, _, n in self._chunks))
        self._mixed = (slowest - plain, share)
        self._steps = 1
        self._pieces = [(self.t, 1, seconds, 0.0)]
        self.end = self.t + seconds

    def _chunk(self, index: int, rank: Rank) -> tuple[int, int]:
        """Prompt tokens of a rank in this iteration within the token budget, and their token-context pairs."""
        tokens = pairs = 0
        budget = self.surface.max_num_batched_tokens - rank.b
        for request in rank.prefilling:
            n = min(request.todo, budget)
            if n <= 0:
                break
            before = request.prompt + request.done - request.todo
            tokens += n
            pairs += n * before + n * (n + 1) // 2
            budget -= n
            self._chunks.append((index, request, n))
        return tokens, pairs

    def _plan_jump(self) -> None:
        """Pure decode until the next batch change: a finish, or KV blocks that run out."""
        k, ends = self.k, self._ends
        while ends[0][4].finish != ends[0][0]:
            heappop(ends)
        stop = ends[0][0]
        if min(self._safe) < stop:
            stop = self._kv_stop(stop)
        t, joint = self.t, self.rows.joint[self._batch]
        pieces = []
        self._steps = stop - k
        while k < stop:
            if k >= self._lead_until:
                self._scan(k)
            slope = self._lead.slope
            n = min(stop, self._lead_until) - k
            first = self._lead.alpha + slope * k + joint
            pieces.append((t, n, first, slope))
            t += n * first + slope * (n * (n - 1) * 0.5)
            k += n
        self._pieces = pieces
        self.end = t

    def _kv_stop(self, stop: int) -> int:
        """The first iteration before `stop` at which a rank's KV blocks run out."""
        for index, safe in enumerate(self._safe):
            if safe < stop:
                rank = self.ranks[index]
                rank.grow_to(self.k)
                self._safe[index] = rank.exhausted_at(self.k)
        return min(stop, *self._safe)

    def _idle(self) -> None:
        self._steps, self._pieces, self._chunks, self.end = 0, [], [], INFINITY

    def _may_admit(self, rank: Rank) -> bool:
        return not rank.blocked and len(rank.running) < rank.slots

    # --- the slowest rank -------------------------------------------------------------------------------------------------

    def _line(self, rank: Rank, k: int) -> None:
        """The rank's line at iteration k, and the iteration of its next knot."""
        b = rank.b
        if not b:
            rank.alpha, rank.slope, rank.knot = -1.0, 0.0, NEVER
            return
        knots = self.rows.knots
        shift = rank.contexts / b
        c = k + shift
        last = len(knots) - 2
        j = min(bisect_right(knots, c) - 1, last)
        intercepts, slopes = self.rows.lines(b)
        rank.slope = slopes[j]
        rank.alpha = intercepts[j] + slopes[j] * shift
        rank.knot = NEVER if j == last else k + max(1, ceil(knots[j + 1] - c))

    def _scan(self, k: int) -> None:
        """Find the slowest rank at iteration k, and how long it stays so."""
        ranks = self.ranks
        lead, value = ranks[0], -2.0
        for rank in ranks:
            if rank.knot <= k:
                self._line(rank, k)
            v = rank.alpha + rank.slope * k
            if v > value or (v == value and rank.slope > lead.slope):
                lead, value = rank, v
        self._lead, self._lead_until = lead, lead.knot
        for rank in ranks:
            self._watch(rank, k, value)

    def _watch(self, rank: Rank, k: int, value: float) -> None:
        """The lead, `value` seconds at k, is sure only until this rank's knot, or until its line crosses."""
        until = rank.knot
        gap = rank.slope - self._lead.slope
        if gap > 0.0:
            until = min(until, k + int((value - rank.alpha - rank.slope * k) / gap) + 1)
        self._lead_until = min(self._lead_until, until)

    def _refresh(self, index: int, rank: Rank) -> None:
        """After a change of a rank's batch: the engine's totals, the rank's line and KV limit, who leads."""
        now = (rank.b, rank.contexts, len(rank.running))
        before, self._seen[index] = self._seen[index], now
        self._running += now[2] - before[2]
        if rank.prefilling:
            self._prefilling.add(index)
        else:
            self._prefilling.discard(index)
        self._safe[index] = rank.safe_until(self.k)
        if now[:2] == before[:2]:
            return
        self._batch += now[0] - before[0]
        self._contexts += now[1] - before[1]
        k, lead = self.k, self._lead
        self._line(rank, k)
        if rank is lead or k >= self._lead_until:
            self._lead_until = -1
            return
        value, mine = lead.alpha + lead.slope * k, rank.alpha + rank.slope * k
        if mine > value or (mine == value and rank.slope > lead.slope):
            self._lead_until = -1
        else:
            self._watch(rank, k, value)

    # --- play -------------------------------------------------------------------------------------------------------------

    def play(self) -> list[Request]:
        """Finish the planned stretch; returns the samples that are done at its end. `plan` comes next."""
        n, seconds = self._steps, self.end - self.t
        stats = self.stats
        stats.iterations += n
        stats.jumps += 1
        stats.busy_seconds += seconds
        stats.batch_seconds += self._batch * seconds
        stats.generated_tokens += self._batch * n
        self.k += n
        self.t = self.end
        k, ends = self.k, self._ends
        done = self._prefilled() if self._chunks and n else []
        while ends and ends[0][0] <= k:
            finish, _, _, index, request = heappop(ends)
            if request.finish == finish:
                rank = self.ranks[index]
                rank.grow_to(k)
                rank.end_decode(request, k)
                self._dirty.add(index)
                done.append(request)
        return done

    def _prefilled(self) -> list[Request]:
        """Take over the chunks of the iteration that just ended; those complete begin to decode."""
        k, stats, done = self.k, self.stats, []
        seconds, again = self._mixed
        stats.prefill_seconds += seconds
        stats.reprefill_seconds += seconds * again
        for index, request, n in self._chunks:
            rank = self.ranks[index]
            stats.prefill_tokens += n
            if request.prefilled:
                stats.reprefilled_tokens += n
            request.todo -= n
            if request.todo:
                continue
            stats.generated_tokens += 1
            rank.grow_to(k)
            rank.prefilling.remove(request)
            if request.done + 1 == request.response:
                rank.end_prefill(request)
                request.done += 1
                done.append(request)
                continue
            rank.begin_decode(request, k)
            self._serial += 1
            heappush(self._ends, (request.finish, request.id, self._serial, index, request))
        self._chunks = []
        return done

    def _shorten(self, now: float, beyond: bool) -> None:
        """End the planned stretch at the last boundary up to `now`, or (beyond) at the first one from `now` on."""
        bound = now + TOLERANCE * abs(now)
        kept: list[Piece] = []
        steps, end = 0, self.t
        for piece in self._pieces:
            n = fitting(piece, bound)
            if n:
                kept.append((piece[0], n, piece[2], piece[3]))
                steps, end = steps + n, boundary(piece, n)
            if n < piece[1]:
                if beyond and end < now - TOLERANCE * abs(now):
                    kept = kept[:-1] if n else kept
                    kept.append((piece[0], n + 1, piece[2], piece[3]))
                    steps, end = steps + 1, boundary(piece, n + 1)
                break
        if len(kept) < len(self._pieces):
            for rank in self.ranks:
                rank.knot = min(rank.knot, 0)
            self._lead_until = -1
        if not steps:
            self._chunks = []
        self._pieces, self._steps, self.end = kept, steps, end

    def _record(self) -> None:
        self.timeline.add(self.t, self._running, self._batch * self.k + self._contexts)


def boundary(piece: Piece, n: int) -> float:
    """Time after n iterations of a piece (its start, iterations, first iteration's seconds, growth per iteration)."""
    start, _, first, slope = piece
    return start + n * first + slope * (n * (n - 1) * 0.5)


def fitting(piece: Piece, bound: float) -> int:
    """Iterations of a piece whose boundary is not after `bound`: the root of the quadratic, then bracketed."""
    start, n, first, slope = piece
    if boundary(piece, n) <= bound:
        return n
    room = bound - start
    if room <= 0.0:
        return 0
    half = first - 0.5 * slope
    root = room / first if slope == 0.0 else 2.0 * room / (half + sqrt(max(0.0, half * half + 2.0 * slope * room)))
    guess = min(n, max(0, int(root)))
    while guess and boundary(piece, guess) > bound:
        guess -= 1
    while guess < n and boundary(piece, guess + 1) <= bound:
        guess += 1
    return guess
