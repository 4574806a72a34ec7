"""Which points a sweep visits: grids of values, random samples and Latin hypercubes of ranges."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from rlsim.catalog.profiles import Profile
from rlsim.errors import UserError
from rlsim.plan.case import Setting
from rlsim.plan.keys import attribute_of, resolve_key
from rlsim.scenario.quantity import DIMENSIONS, Dimension, MistakeError, parse, render

Sampler = Literal["grid", "random", "lhs"]
Point = tuple[Setting, ...]
MOST = 1_000_000


@dataclass(frozen=True)
class Range:
    """From `low` to `high` (SI), uniform in the value or, with `log`, in its logarithm."""

    low: float
    high: float
    log: bool
    whole: bool
    dimension: Dimension | None

    def at(self, share: float) -> str:
        """The value at a share 0..1 of the range, as a scenario has it; six digits."""
        if self.log:
            value = math.exp(math.log(self.low) + share * (math.log(self.high) - math.log(self.low)))
        else:
            value = self.low + share * (self.high - self.low)
        return self.text(value)

    def text(self, value: float) -> str:
        """A value as a scenario has it."""
        if self.whole:
            return str(round(value))
        value = float(f"{value:.6g}")
        return render(value, self.dimension) if self.dimension is not None else f"{value:.6g}"


@dataclass(frozen=True)
class Axis:
    """One key and what it takes on: values as written, or a range."""

    key: str
    values: tuple[str, ...]
    range: Range | None = None


@dataclass(frozen=True)
class Space:
    """The axes, and how points are taken: every combination, or `n` samples."""

    axes: tuple[Axis, ...]
    sampler: Sampler = "grid"
    n: int = 0
    seed: int = 0

    def points(self) -> tuple[Point, ...]:
        """All points in their order: the last axis runs fastest; samples as they are drawn."""
        if self.sampler == "grid":
            combinations = itertools.product(*(axis.values for axis in self.axes))
            return tuple(tuple(zip(self.keys, values, strict=True)) for values in combinations)
        shares = _shares(self.sampler, self.n, len(self.axes), self.seed)
        return tuple(tuple((a.key, _at(a, u)) for a, u in zip(self.axes, row, strict=True)) for row in shares)

    @property
    def keys(self) -> tuple[str, ...]:
        return tuple(axis.key for axis in self.axes)


def _at(axis: Axis, share: float) -> str:
    if axis.range is not None:
        return axis.range.at(share)
    return axis.values[min(int(share * len(axis.values)), len(axis.values) - 1)]


def _shares(sampler: Sampler, n: int, dimensions: int, seed: int) -> Sequence[Sequence[float]]:
    """float[n, dimensions] in 0..1: independent, or one in each of n equal slices of every axis."""
    rng = np.random.default_rng(seed)
    inside = rng.random((n, dimensions))
    if sampler == "lhs":
        slices = np.stack([rng.permutation(n) for _ in range(dimensions)], axis=1)
        inside = (slices + inside) / n
    return inside.tolist()  # type: ignore[no-any-return]


def space(over: Sequence[str], profile: Profile, sampler: Sampler = "grid", n: int = 0, seed: int = 0) -> Space:
    """A space from `key=value,value` and `key=low..high[:log]` texts."""
    if not over:
        raise UserError("nothing to vary", key="--over", fix="for example --over cluster.nic=25GB/s,50GB/s")
    axes = tuple(axis(text, profile) for text in over)
    keys = [one.key for one in axes]
    twice = next((key for key in keys if keys.count(key) > 1), None)
    if twice is not None:
        raise UserError("given twice", key=f"--over {twice}", fix="one --over with all its values")
    ranges = [one for one in axes if one.range is not None]
    if sampler == "grid" and ranges:
        fix = f"--lhs 20 (or --random 20), or values: --over {ranges[0].key}=a,b,c"
        raise UserError("a range has no end of values", key=f"--over {ranges[0].key}", fix=fix)
    if sampler != "grid" and n < 1:
        raise UserError(f"{n} samples", key=f"--{sampler}", fix="at least 1")
    total = math.prod(len(one.values) for one in axes) if sampler == "grid" else n
    if total > MOST:
        raise UserError(f"{total:,} points", key="--over", fix=f"at most {MOST:,}; or samples of them: --lhs 1000")
    return Space(axes, sampler, n, seed)


def axis(text: str, profile: Profile, option: str = "--over") -> Axis:
    """One `key=values` or `key=low..high[:log]`."""
    name, equals, given = text.partition("=")
    if not equals or not name.strip() or not given.strip():
        fix = f"for example {option} cluster.nic=25GB/s,50GB/s or cluster.nic=25GB/s..100GB/s:log"
        raise UserError("not KEY=VALUES", key=f"{option} {text}", fix=fix)
    key = resolve_key(name, option, profile)
    if ".." in given:
        return Axis(key, (), range_of(key, given, option))
    values = tuple(dict.fromkeys(part.strip() for part in _split(given)))
    if "" in values:
        raise UserError("an empty value", key=f"{option} {key}", fix="values between commas; `null` for the default")
    return Axis(key, values)


def range_of(key: str, text: str, option: str) -> Range:
    """`low..high` with units where the key has one; `:log` samples its logarithm evenly."""
    bare, colon, scale = text.partition(":")
    low_text, _, high_text = bare.partition("..")
    option = f"{option} {key}"
    if colon and scale.strip() not in ("log", "linear"):
        raise UserError(f"no scale {scale.strip()!r}", key=option, fix=":log, or nothing for linear")
    known = attribute_of(key)
    dimension = next((d for d in DIMENSIONS if known is not None and known.type == d.name), None)
    low, high = (_number(one.strip(), dimension, option) for one in (low_text, high_text))
    if not low < high:
        raise UserError(f"{low_text.strip()} is not below {high_text.strip()}", key=option, fix="low..high")
    if scale.strip() == "log" and low <= 0:
        raise UserError("a logarithm needs values above 0", key=option, fix="a positive low end, or no :log")
    whole = known is not None and ("whole number" in known.type or known.unit == "tokens")
    if known is not None and dimension is None and "number" not in known.type:
        raise UserError("no numbers: a range makes no sense", key=option, fix="values: a,b,c")
    return Range(low, high, scale.strip() == "log", whole, dimension)


def _number(text: str, dimension: Dimension | None, option: str) -> float:
    try:
        return parse(text, dimension) if dimension is not None else float(text)
    except MistakeError as error:
        raise UserError(error.message, key=option, fix=error.fix) from None
    except ValueError:
        raise UserError(f"{text!r} is not a number", key=option, fix="low..high, for example 1..8") from None


def _split(text: str) -> list[str]:
    """Parts between commas, those inside brackets and quotes not counted."""
    parts, depth, quote = [""], 0, ""
    for letter in text:
        if quote:
            quote = "" if letter == quote else quote
        elif letter in "'\"":
            quote = letter
        elif letter in "[{":
            depth += 1
        elif letter in "]}":
            depth -= 1
        if letter == "," and depth == 0 and not quote:
            parts.append("")
        else:
            parts[-1] += letter
    return parts
