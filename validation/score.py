"""Errors of predictions: how many, median, 90th percentile, bias; and the trivial rival's beside them."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from validation.published.rows import Row


@dataclass(frozen=True)
class Score:
    """Over n rows: median and 90th percentile of |error|, and bias = exp(mean log ratio) - 1.

    An error is predicted/measured - 1 of a time (rates turned round): +0.1 is 10% too slow.
    """

    n: int
    median: float
    p90: float
    bias: float


def score(errors: Iterable[float]) -> Score | None:
    """Score of the errors; None where there are none."""
    values = np.array(list(errors), dtype=np.float64)
    if not values.size:
        return None
    size = np.abs(values)
    bias = math.exp(float(np.log1p(values).mean())) - 1.0
    return Score(len(values), float(np.median(size)), float(np.percentile(size, 90)), bias)


def errors(rows: Iterable[Row], axis: str | None = None) -> list[float]:
    """Errors of the rows that have a prediction; with an axis, of the fits that never saw that of the row."""
    found = (row.error if axis is None else row.error_without(axis) for row in rows)
    return [e for e in found if e is not None]


def trivial_errors(rows: Sequence[Row]) -> list[float]:
    """What a constant MFU per mode gets: measured = constant · work, the constant the best one for these very rows.

    The best constant for the median of |log error| is the median ratio. It has seen every row: a rival with an unfair
    advantage.
    """
    modes: dict[str, list[Row]] = defaultdict(list)
    for row in rows:
        if row.error is not None and row.work > 0:
            modes[row.mode].append(row)
    out = []
    for group in modes.values():
        constant = float(np.median([_ratio(row) for row in group]))
        out += [constant / _ratio(row) - 1.0 for row in group]
    return out


def _ratio(row: Row) -> float:
    """Measured time over the time at peak."""
    return row.work / row.measured if row.is_rate else row.measured / row.work


def by(rows: Iterable[Row], key: Callable[[Row], str]) -> Mapping[str, list[Row]]:
    """Rows grouped, groups in order of appearance."""
    groups: dict[str, list[Row]] = {}
    for row in rows:
        groups.setdefault(key(row), []).append(row)
    return groups


def version_drift(pairs: Iterable[tuple[float, float]]) -> Score | None:
    """Two versions of one recipe: later over earlier time, as an error. What no prediction can beat."""
    return score(later / earlier - 1.0 for earlier, later in pairs)
