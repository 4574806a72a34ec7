"""Measured times on a grid, kept as efficiency = floor / time and interpolated log-log between the knots."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import product

import numpy as np
import numpy.typing as npt

from rlsim.costs.kernels.tables import Floats

DISAGREE = 2.0
COMPARE_ABOVE = 20e-6


@dataclass(frozen=True)
class Grid:
    """`efficiency[i, j, ...]` at the knots (log of the coordinates in `axes`); `replaced` marks the points not
    measured.
    """

    axes: tuple[Floats, ...]
    efficiency: Floats
    replaced: npt.NDArray[np.bool_]

    def at(self, *coordinates: float | Floats) -> tuple[Floats, npt.NDArray[np.bool_], npt.NDArray[np.bool_]]:
        """(efficiency, inside the measured range, near a replaced point); multilinear in log coordinates, flat
        outside.

        Below the first knot a call is launch time only and counts as inside.
        """
        values = np.broadcast_arrays(*[np.asarray(c, dtype=np.float64) for c in coordinates])
        inside = np.ones(values[0].shape, dtype=bool)
        low: list[npt.NDArray[np.intp]] = []
        share: list[Floats] = []
        for axis, value in zip(self.axes, values, strict=True):
            inside &= value <= axis[-1] * (1 + 1e-9)
            if len(axis) == 1:
                low.append(np.zeros(value.shape, dtype=np.intp))
                share.append(np.zeros(value.shape))
                continue
            x, knots = np.log(np.maximum(value, 1e-9)), np.log(axis)
            i = np.clip(np.searchsorted(knots, x, side="right") - 1, 0, len(axis) - 2)
            low.append(i)
            share.append(np.clip((x - knots[i]) / (knots[i + 1] - knots[i]), 0.0, 1.0))
        total = np.zeros(values[0].shape)
        replaced = np.zeros(values[0].shape)
        for corner in product((0, 1), repeat=len(low)):
            weight = np.ones(values[0].shape)
            for up, s in zip(corner, share, strict=True):
                weight = weight * (s if up else 1 - s)
            index = tuple(
                np.minimum(i + up, n - 1) for i, up, n in zip(low, corner, self.efficiency.shape, strict=True)
            )
            total += weight * np.log(self.efficiency[index])
            replaced += weight * self.replaced[index]
        return np.exp(total), inside, replaced >= 0.5


@dataclass(frozen=True)
class Checked:
    """Result of holding a table against its floor and its rivals."""

    grid: Grid
    below_floor: int
    disagreeing: int
    measured: int


def checked_grid(
    axes: list[Floats], seconds: Floats, floor: Floats, rivals: list[Floats], fallback: Floats, decisive: bool
) -> Checked:
    """Drop points below `floor`, and points off the median of the back ends by more than 2x where either
    exceeds 20 µs.

    (Shorter calls differ by launch overhead and fused quantisation, which are properties of the back end.)
    `rivals` are the other back ends' seconds on the same knots (NaN: none); `fallback` the scaled roofline's.
    Holes take the efficiency of the nearest measured knot along the last axis, then along the others.
    """
    have = np.isfinite(seconds)
    with np.errstate(invalid="ignore"):
        low = have & (seconds < floor * (1 - 1e-6))
        off = np.zeros_like(low)
        if rivals:
            asked = np.isfinite(np.stack([seconds, *rivals])).sum(axis=0)
            stack = np.stack([seconds, *[np.where(r < floor, np.nan, r) for r in rivals]])
            if decisive:
                tie = (asked > 1) & (np.isfinite(stack).sum(axis=0) <= 2)
                stack = np.concatenate([stack, np.where(tie, np.maximum(fallback, floor), np.nan)[None]])
            count = np.isfinite(stack).sum(axis=0)
            ordered = np.sort(stack, axis=0)
            median = 0.5 * (_pick(ordered, (count - 1) // 2) + _pick(ordered, count // 2))
            ratio = seconds / median
            matters = np.maximum(seconds, median) > COMPARE_ABOVE
            off = have & ~low & (count > 1) & matters & ((ratio > DISAGREE) | (ratio < 1 / DISAGREE))
    bad = low | off
    efficiency = floor / seconds
    efficiency[bad] = (floor / np.maximum(fallback, floor))[bad]
    efficiency = np.minimum(efficiency, 1.0)
    for axis in reversed(range(efficiency.ndim)):
        efficiency = _fill(efficiency, axis)
    grid = Grid(tuple(axes), efficiency, bad)
    return Checked(grid, int(low.sum()), int(off.sum()), int(have.sum()))


def _pick(ordered: Floats, index: npt.NDArray[np.intp]) -> Floats:
    i = np.clip(index, 0, ordered.shape[0] - 1)
    return np.asarray(np.take_along_axis(ordered, i[None], axis=0)[0])


def _fill(values: Floats, axis: int) -> Floats:
    """NaN -> the last value before it along `axis`, else the first after it."""
    x = np.moveaxis(values, axis, -1)
    for view in (x, x[..., ::-1]):
        n = view.shape[-1]
        index = np.where(np.isfinite(view), np.arange(n), -1)
        index = np.maximum.accumulate(index, axis=-1)
        filled = np.take_along_axis(view, np.maximum(index, 0), axis=-1)
        view[...] = np.where(np.isfinite(view), view, np.where(index >= 0, filled, np.nan))
    return np.moveaxis(x, -1, axis)


def align(axes: list[Floats], other_axes: list[Floats], other: Floats) -> Floats:
    """`other` on the knots `axes`, NaN where it has no such knot."""
    out = np.full([len(a) for a in axes], np.nan)
    mine: list[npt.NDArray[np.intp]] = []
    theirs: list[npt.NDArray[np.intp]] = []
    for a, b in zip(axes, other_axes, strict=True):
        _, i, j = np.intersect1d(a, b, return_indices=True)
        mine.append(i)
        theirs.append(j)
    out[np.ix_(*mine)] = other[np.ix_(*theirs)]
    return out
