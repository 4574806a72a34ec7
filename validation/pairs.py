"""Two rows that differ in one thing: is the sign of the difference right, and its size?

Rows of one source with the same model and workload are compared where one axis differs: the mode (co-located against
asynchronous, at the same number of GPUs), the number of GPUs, the staleness threshold, the batches that the trainer
waits for, the GPU, or the trainer's layout (then by seconds per unit of work).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations

from validation.published.rows import SKIPPED, Row

WHOLE = ("step_time_s", "update_s")
DISTINCT = 0.15
"""Relative difference from which a ranking counts: under it lies what versions differ by."""


@dataclass(frozen=True)
class Pair:
    """a over b, measured and predicted. `axis`: what differs."""

    a: str
    b: str
    axis: str
    measured: float
    predicted: float

    @property
    def right(self) -> bool:
        """The same side of 1."""
        return (self.measured > 1) == (self.predicted > 1)

    @property
    def distinct(self) -> bool:
        """The measured difference is over 15%."""
        return max(self.measured, 1 / self.measured) > 1 + DISTINCT


def pairs(rows: Sequence[Row]) -> list[Pair]:
    """All pairs of rows of one workload that differ along one axis."""
    groups: dict[str, list[Row]] = {}
    for row in rows:
        if row.same and row.quantity in WHOLE and row.status != SKIPPED and row.predicted:
            groups.setdefault(row.same, []).append(row)
    return [pair for group in groups.values() for a, b in combinations(group, 2) if (pair := _pair(a, b))]


def _pair(a: Row, b: Row) -> Pair | None:
    differing = [k for k in a.axes if a.axes[k] != b.axes.get(k)]
    if "mode" in differing:  # staleness is a part of the mode
        differing = [k for k in differing if k not in ("staleness", "batches")]
    if len(differing) != 1:
        return None
    left, right = _cost(a), _cost(b)
    return Pair(a.id, b.id, differing[0], left[0] / right[0], left[1] / right[1])


def _cost(row: Row) -> tuple[float, float]:
    """(measured, predicted) seconds; of training by unit of work, as its batches differ."""
    scale = row.work if row.quantity == "update_s" and row.work > 0 else 1.0
    return row.measured / scale, (row.predicted or 0.0) / scale


def judged(found: Sequence[Pair]) -> dict[str, dict[str, float]]:
    """By axis: how many pairs, how many differ by over 15%, and the share of those with the right direction."""
    out = {}
    for axis in dict.fromkeys(pair.axis for pair in found):
        mine = [pair for pair in found if pair.axis == axis]
        clear = [pair for pair in mine if pair.distinct]
        sizes = sorted(abs(pair.predicted / pair.measured - 1) for pair in mine)
        out[axis] = {
            "pairs": len(mine),
            "distinct": len(clear),
            "right": sum(pair.right for pair in clear) / len(clear) if clear else float("nan"),
            "median_error_of_ratio": sizes[len(sizes) // 2],
        }
    return out
