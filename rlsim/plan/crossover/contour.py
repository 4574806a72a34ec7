"""The line between two sides of a lattice, from the margins at its visited points."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from math import exp, log

from rlsim.plan.crossover.refine import NONE, Look, Point

Place = tuple[float, float]
Segment = tuple[Place, Place]


def segments(seen: Mapping[Point, Look], xs: Sequence[float], ys: Sequence[float]) -> tuple[Segment, ...]:
    """Pieces of the line, one or two in every smallest cell that it runs through (marching squares)."""
    found: list[Segment] = []
    for i in range(len(xs) - 1):
        for j in range(len(ys) - 1):
            ring = [(i, j), (i + 1, j), (i + 1, j + 1), (i, j + 1)]
            if all(point in seen for point in ring):
                edges = zip(ring, ring[1:] + ring[:1], strict=True)
                ends = [place for p, q in edges if (place := _between(seen, p, q, xs, ys)) is not None]
                found += list(zip(ends[::2], ends[1::2], strict=False))
    return tuple(found)


def crossings(seen: Mapping[Point, Look], xs: Sequence[float], ys: Sequence[float]) -> tuple[Place, ...]:
    """Where the line crosses the lattice's own lines, between neighbours that were both visited."""
    return tuple(sorted(_crossings(seen, xs, ys)))


def _crossings(seen: Mapping[Point, Look], xs: Sequence[float], ys: Sequence[float]) -> Iterator[Place]:
    for i, j in seen:
        for neighbour in ((i + 1, j), (i, j + 1)):
            if neighbour in seen:
                place = _between(seen, (i, j), neighbour, xs, ys)
                if place is not None:
                    yield place


def _between(seen: Mapping[Point, Look], p: Point, q: Point, xs: Sequence[float], ys: Sequence[float]) -> Place | None:
    """Where the margin is zero between two neighbours, linear in it; halfway where one has none.

    None where both are on one side, or neither regime has a figure at one of them.
    """
    one, other = seen[p], seen[q]
    if one.side == other.side or NONE in (one.side, other.side):
        return None
    share = 0.5
    if one.margin is not None and other.margin is not None:
        share = one.margin / (one.margin - other.margin)
    return _mix(xs[p[0]], xs[q[0]], share), _mix(ys[p[1]], ys[q[1]], share)


def _mix(low: float, high: float, share: float) -> float:
    """Between two values, in the logarithm where both have one."""
    if low == high:
        return low
    if low > 0 and high > 0:
        return exp(log(low) + share * (log(high) - log(low)))
    return low + share * (high - low)
