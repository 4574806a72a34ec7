"""How fast an engine goes while its batches are fixed: straight pieces of time over iterations.

With the batch fixed every rank's mean context grows by one per iteration, so between two knots its seconds per
iteration are a straight line in the iteration number. Where several ranks decode, the slowest one's line holds until
another rank's crosses it or a knot comes. On one piece n iterations cost n·first + slope·n(n-1)/2.
"""

from __future__ import annotations

from bisect import bisect_right
from functools import cached_property
from math import ceil, sqrt

import numpy as np

from rlsim.sim.rank import NEVER, Rank
from rlsim.sim.surface import Floats, Surface

# n iterations from `start` on, the first of `first` seconds, each next one `slope` more: (start, n, first, slope)
Piece = tuple[float, int, float, float]


def boundary(piece: Piece, n: int) -> float:
    """Time after n iterations of a piece."""
    start, _, first, slope = piece
    return start + (n * first + slope * (n * (n - 1) * 0.5))


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


def fitting_all(pieces: list[Piece], bound: float) -> int:
    """Iterations of successive pieces whose boundaries are not after `bound`."""
    steps = 0
    for piece in pieces:
        n = fitting(piece, bound)
        steps += n
        if n < piece[1]:
            break
    return steps


def first_of(pieces: list[Piece], steps: int) -> list[Piece]:
    """The first iterations of successive pieces."""
    kept: list[Piece] = []
    for start, n, first, slope in pieces:
        if not steps:
            break
        n = min(n, steps)
        steps -= n
        kept.append((start, n, first, slope))
    return kept


class Rows:
    """A surface as plain Python numbers; per batch and segment the line a + m·c of a rank's iteration time."""

    def __init__(self, surface: Surface) -> None:
        self.surface = surface
        self.knots: list[float] = surface.knots.tolist()
        self.joint: list[float] = surface.joint.tolist()
        self._lines: list[tuple[list[float], list[float]] | None] = [None] * len(surface.rank_rows)
        self._prefill: dict[int, float] = {}

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

    def prefill(self, tokens: int) -> float:
        """Seconds that `tokens` prompt tokens add to an iteration, attention left out."""
        found = self._prefill.get(tokens)
        if found is None:
            found = self._prefill[tokens] = self.surface.prefill(tokens)
        return found


class OneRank:
    """Pace of an engine with one rank: its line is looked up when it is needed."""

    def __init__(self, rows: Rows, rank: Rank) -> None:
        self.rows = rows
        self.rank = rank

    def rewind(self) -> None:
        """Iterations that were looked at do not happen."""

    def slowest(self, k: int) -> float:
        """Seconds of the decodes of iteration k."""
        b, knots = self.rank.b, self.rows.knots
        if not b:
            return 0.0
        c = (b * k + self.rank.contexts) / b
        j = bisect_right(knots, c, 1, len(knots) - 1) - 1
        intercepts, slopes = self.rows.lines(b)
        return intercepts[j] + slopes[j] * c

    def pieces(self, k: int, stop: int, t: float, joint: float) -> tuple[list[Piece], float]:
        """Iterations k to `stop` from time t on, `joint` seconds added to each: pieces, and their end."""
        rank, knots = self.rank, self.rows.knots
        b, last = rank.b, len(knots) - 1
        c = (b * k + rank.contexts) / b
        j = bisect_right(knots, c, 1, last)
        intercepts, slopes = self.rows.lines(b)
        left = stop - k
        found: list[Piece] = []
        while j < last and c + left > knots[j] + 1.0:
            n = ceil(knots[j] - c)
            slope = slopes[j - 1]
            first = intercepts[j - 1] + slope * c + joint
            found.append((t, n, first, slope))
            t += n * first + slope * (n * (n - 1) * 0.5)
            left -= n
            c += n
            while j < last and knots[j] <= c:
                j += 1
        slope = slopes[j - 1]
        first = intercepts[j - 1] + slope * c + joint
        found.append((t, left, first, slope))
        return found, t + (left * first + slope * (left * (left - 1) * 0.5))


class SlowestRank:
    """Pace of an engine whose ranks step together. A rank's seconds in iteration k are alpha + slope·k up to its knot.

    `_lead` is the slowest rank, surely so before iteration `_until` (-1: not known).
    """

    def __init__(self, rows: Rows, ranks: list[Rank]) -> None:
        self.rows = rows
        self.ranks = ranks
        self._lead = ranks[0]
        self._until = -1

    def changed(self, rank: Rank, k: int) -> None:
        """The rank's batch is another from iteration k on."""
        self._line(rank, k)
        lead = self._lead
        if rank is lead or k >= self._until:
            self._until = -1
            return
        value, mine = lead.alpha + lead.slope * k, rank.alpha + rank.slope * k
        if mine > value or (mine == value and rank.slope > lead.slope):
            self._until = -1
        else:
            self._watch(rank, k, value)

    def rewind(self) -> None:
        """Iterations that were looked at do not happen: knots passed there still lie ahead."""
        for rank in self.ranks:
            rank.knot = 0
        self._until = -1

    def slowest(self, k: int) -> float:
        """Seconds of the decodes of iteration k on the slowest rank."""
        if k >= self._until:
            self._scan(k)
        return max(0.0, self._lead.alpha + self._lead.slope * k)

    def of(self, rank: Rank, k: int) -> float:
        """A rank's own part of it; it decodes."""
        if rank.knot <= k:
            self._line(rank, k)
        return rank.alpha + rank.slope * k

    def pieces(self, k: int, stop: int, t: float, joint: float) -> tuple[list[Piece], float]:
        """Iterations k to `stop` from time t on, `joint` seconds added to each: pieces, and their end."""
        found: list[Piece] = []
        while k < stop:
            if k >= self._until:
                self._scan(k)
            slope = self._lead.slope
            n = min(stop, self._until) - k
            first = self._lead.alpha + slope * k + joint
            found.append((t, n, first, slope))
            t += n * first + slope * (n * (n - 1) * 0.5)
            k += n
        return found, t

    def _line(self, rank: Rank, k: int) -> None:
        """The rank's line at iteration k, and the iteration of its next knot. Below any other where it is idle."""
        b = rank.b
        if not b:
            rank.alpha, rank.slope, rank.knot = -1.0, 0.0, NEVER
            return
        knots = self.rows.knots
        c = (b * k + rank.contexts) / b
        j = bisect_right(knots, c)
        if j < len(knots) - 1:
            rank.knot = k + ceil(knots[j] - c)
        else:
            j, rank.knot = len(knots) - 1, NEVER
        intercepts, slopes = self.rows.lines(b)
        rank.slope = slope = slopes[j - 1]
        rank.alpha = intercepts[j - 1] + slope * (c - k)

    def _scan(self, k: int) -> None:
        """Find the slowest rank at iteration k, and how long it surely stays so."""
        lead, value = self.ranks[0], -2.0
        for rank in self.ranks:
            if rank.knot <= k:
                self._line(rank, k)
            v = rank.alpha + rank.slope * k
            if v > value or (v == value and rank.slope > lead.slope):
                lead, value = rank, v
        self._lead, self._until = lead, lead.knot
        for rank in self.ranks:
            if rank.b and (rank.slope > lead.slope or rank.knot < self._until):
                self._watch(rank, k, value)

    def _watch(self, rank: Rank, k: int, value: float) -> None:
        """The lead, `value` seconds at k, is sure only until this rank's knot, or until its line crosses."""
        until = rank.knot
        gap = rank.slope - self._lead.slope
        if gap > 0.0:
            until = min(until, k + int((value - rank.alpha - rank.slope * k) / gap) + 1)
        self._until = min(self._until, until)
