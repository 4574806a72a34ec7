"""Which points a fit never sees: their error is what the fit is worth."""

from __future__ import annotations

import operator
import re
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from rlsim.calibrate.forms import SIZES
from rlsim.errors import UserError

if TYPE_CHECKING:
    import pandas as pd

Mask = npt.NDArray[np.bool_]
KINDS = ("size", "world", "receivers", "nic", "none")
COMPARE = {"=": operator.eq, ">=": operator.ge, "<=": operator.le, ">": operator.gt, "<": operator.lt}
FEWEST = 4  # distinct sizes from which some can be spared


def held_out(points: pd.DataFrame, benchmark: str, rules: Sequence[str]) -> Mask:
    """The points of one benchmark that any of the rules keeps from the fit.

    size        every third distinct size, not the smallest nor the largest
    world, receivers, nic   the largest value
    COLUMN=VALUE, COLUMN>VALUE, …   the rows for which it is true
    """
    mask = np.zeros(len(points), dtype=bool)
    for rule in rules:
        mask |= _by_rule(points, benchmark, rule)
    return mask


def check_rules(rules: Sequence[str]) -> None:
    """Raise `UserError` for a rule that is none."""
    for rule in rules:
        if rule not in KINDS and _condition(rule) is None:
            fix = "size, world, receivers, nic, none, or a condition such as world=4 or bytes>=1e8"
            raise UserError(f"no rule {rule!r}", key="--hold-out", fix=fix)


def _by_rule(points: pd.DataFrame, benchmark: str, rule: str) -> Mask:
    nothing = np.zeros(len(points), dtype=bool)
    if rule == "none":
        return nothing
    if rule == "size":
        return _sizes(points, SIZES.get(benchmark, ("bytes",)))
    if rule in KINDS:
        values = _numbers(points, rule)
        found = np.unique(values[~np.isnan(values)])
        return np.asarray(values == found[-1]) if len(found) > 1 else nothing
    condition = _condition(rule)
    assert condition is not None  # check_rules has seen it
    name, compare, value = condition
    if name not in points.columns:
        return nothing
    try:
        return np.asarray(COMPARE[compare](_numbers(points, name), float(value)))
    except ValueError:
        return np.asarray(points[name].astype(str) == value)


def _sizes(points: pd.DataFrame, columns: Sequence[str]) -> Mask:
    mask = np.zeros(len(points), dtype=bool)
    for name in columns:
        values = _numbers(points, name)
        found = np.unique(values[~np.isnan(values)])
        if len(found) >= FEWEST:
            mask |= np.isin(values, found[1:-1:3])
    return mask


def _condition(rule: str) -> tuple[str, str, str] | None:
    match = re.fullmatch(r"\s*([A-Za-z_]\w*)\s*(>=|<=|=|>|<)\s*(\S+)\s*", rule)
    return (match[1], match[2], match[3]) if match else None


def _numbers(points: pd.DataFrame, name: str) -> npt.NDArray[np.float64]:
    import pandas as pd

    if name not in points.columns:
        return np.full(len(points), np.nan)
    return np.asarray(pd.to_numeric(points[name], errors="coerce").to_numpy(), dtype=np.float64)
