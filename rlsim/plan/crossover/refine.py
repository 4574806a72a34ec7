"""Finding a boundary on a lattice without visiting all of it.

The lattice is cut into a few rectangles. A rectangle is cut further while its visited points lie on different sides, or
while the margin changes so much between its corners that it may change sign between them. Points that a neighbour
visits on a rectangle's edge count for it too, so a boundary that is found anywhere is followed to its ends. What is
left uncut lies on one side. A boundary that closes inside one rectangle of the first cut is seen by its margins or not
at all.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from itertools import pairwise, product

Point = tuple[int, int]
A, B, NONE = "a", "b", "none"
"""Sides: which of two is faster at a point, or that neither has a figure there."""
COARSE = 3
"""Intervals of the first cut along either axis, at most."""
WARY = 0.25
"""A rectangle on one side is cut while its least margin is below this share of its margins' spread."""


@dataclass(frozen=True)
class Look:
    """What a visit to a point found: the side it is on, and by what margin (None where only one side has a figure)."""

    side: str
    margin: float | None


@dataclass(frozen=True)
class Cell:
    """Lattice points (i, j) with i0 <= i <= i1 and j0 <= j <= j1."""

    i0: int
    j0: int
    i1: int
    j1: int

    @property
    def corners(self) -> tuple[Point, ...]:
        return tuple(dict.fromkeys(product((self.i0, self.i1), (self.j0, self.j1))))

    @property
    def smallest(self) -> bool:
        """Whether its corners are all its points."""
        return self.i1 - self.i0 <= 1 and self.j1 - self.j0 <= 1

    def holds(self, point: Point) -> bool:
        return self.i0 <= point[0] <= self.i1 and self.j0 <= point[1] <= self.j1

    def cut(self) -> list[Cell]:
        """Halves of whatever side is longer than one step."""
        across, up = _halves(self.i0, self.i1), _halves(self.j0, self.j1)
        return [Cell(i0, j0, i1, j1) for (i0, i1), (j0, j1) in product(across, up)]


def _halves(low: int, high: int) -> list[tuple[int, int]]:
    if high - low <= 1:
        return [(low, high)]
    middle = (low + high) // 2
    return [(low, middle), (middle, high)]


def refine(
    width: int, height: int, visit: Callable[[Iterable[Point]], Mapping[Point, Look]], first: Iterable[Point] = ()
) -> tuple[dict[Point, Look], list[Cell]]:
    """Visited points and the rectangles that are left, which cover the lattice. `visit` gets many points at a time."""
    cells = [Cell(i0, j0, i1, j1) for (i0, i1), (j0, j1) in product(_edges(width), _edges(height))]
    seen: dict[Point, Look] = {}
    wanted = {*first, *(corner for cell in cells for corner in cell.corners)}
    seen.update(visit(sorted(wanted)))
    while open_ := [cell for cell in cells if not cell.smallest and _may_cross(cell, seen)]:
        halves = [half for cell in open_ for half in cell.cut()]
        cells = [cell for cell in cells if cell not in open_] + halves
        wanted = {corner for half in halves for corner in half.corners} - seen.keys()
        if wanted:
            seen.update(visit(sorted(wanted)))
    return seen, cells


def _edges(count: int) -> list[tuple[int, int]]:
    """The first cut of one axis."""
    pieces = min(COARSE, max(1, count - 1))
    marks = sorted({round(n * (count - 1) / pieces) for n in range(pieces + 1)})
    return list(pairwise(marks)) or [(0, 0)]


def _may_cross(cell: Cell, seen: Mapping[Point, Look]) -> bool:
    """Whether a boundary runs through a cell, or may run through it without touching a visited point."""
    found = [look for point, look in seen.items() if cell.holds(point)]
    if len({look.side for look in found}) > 1:
        return True
    margins = [look.margin for look in found if look.margin is not None]
    return len(margins) > 1 and min(abs(m) for m in margins) < WARY * (max(margins) - min(margins))


def sides(width: int, height: int, seen: Mapping[Point, Look], cells: Iterable[Cell]) -> list[list[str]]:
    """The side of every lattice point, [j][i]: as visited, else as the corners of its rectangle."""
    grid = [[""] * width for _ in range(height)]
    for cell in cells:
        side = seen[cell.corners[0]].side
        for j in range(cell.j0, cell.j1 + 1):
            for i in range(cell.i0, cell.i1 + 1):
                grid[j][i] = side
    for (i, j), look in seen.items():
        grid[j][i] = look.side
    return grid
