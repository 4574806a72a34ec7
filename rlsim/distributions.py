"""Censored distributions from the statistics that people have: mean, percentiles, cap, clip ratio.

A family is a curve `x = low + scale · q(z; spread)` of a standard normal score `z`; the spread grows with the width of
the distribution. `solve` finds scale and spread such that the *censored* variable `min(x, cap)` has the statistics
given: a mean, two of mean, percentile and clip ratio, or more of them in the least-squares sense.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from types import MappingProxyType

import numpy as np
from numpy.typing import NDArray
from scipy import special

Array = NDArray[np.float64]

DEFAULT_SIGMA = 0.45  # of the logarithm, when only a mean and a cap are known
UNSEEN = 5e-4  # a clip ratio printed as 0.000 is below this
_EXACT = 1e-9


class UnreachableError(ValueError):
    """No distribution of the family has these statistics; `fix` says what would be right."""

    def __init__(self, message: str, fix: str) -> None:
        super().__init__(message)
        self.message = message
        self.fix = fix


@dataclass(frozen=True)
class Family:
    """One family at scale 1.

    `quantile(z, spread)`: value at the normal score z. `limited(c, spread)`: E[min(X, c)]. `spreads`: range searched.
    `usual`: spread with the coefficient of variation of a lognormal of σ 0.45.
    """

    quantile: Callable[[Array, float], Array]
    limited: Callable[[float, float], float]
    spreads: tuple[float, float]
    usual: float


def _lognormal_limited(c: float, sigma: float) -> float:
    """e^{σ²/2}·Φ(ln c/σ − σ) + c·(1 − Φ(ln c/σ))."""
    if c <= 0:
        return 0.0
    if math.isinf(c):
        return math.exp(min(sigma**2 / 2, 700.0))
    z = math.log(c) / sigma
    return math.exp(sigma**2 / 2 + float(special.log_ndtr(z - sigma))) + c * float(special.ndtr(-z))


def _normal_limited(c: float, spread: float) -> float:
    """Mean 1, standard deviation `spread`: Φ(z) + c·(1 − Φ(z)) − spread·φ(z)."""
    if math.isinf(c):
        return 1.0
    z = (c - 1) / spread
    density = math.exp(-z * z / 2) / math.sqrt(2 * math.pi)
    return float(special.ndtr(z)) + c * float(special.ndtr(-z)) - spread * density


def _gamma_quantile(z: Array, spread: float) -> Array:
    """Shape 1/spread²; each tail from its own side."""
    k = spread**-2
    lower = special.gammaincinv(k, special.ndtr(np.minimum(z, 0)))
    upper = special.gammainccinv(k, special.ndtr(-np.maximum(z, 0)))
    return np.asarray(np.where(z < 0, lower, upper), dtype=np.float64)


def _gamma_limited(c: float, spread: float) -> float:
    """k·P(k+1, c) + c·Q(k, c), with the regularised incomplete gamma functions."""
    k = spread**-2
    if math.isinf(c):
        return k
    return float(k * special.gammainc(k + 1, c) + c * special.gammaincc(k, c)) if c > 0 else 0.0


def _weibull_limited(c: float, spread: float) -> float:
    """Shape 1/spread: Γ(1+spread)·P(1+spread, c^{1/spread}) + c·exp(−c^{1/spread})."""
    gamma = float(special.gamma(1 + spread))
    if math.isinf(c):
        return gamma
    if c <= 0:
        return 0.0
    power = math.exp(min(math.log(c) / spread, 700.0))
    return gamma * float(special.gammainc(1 + spread, power)) + c * math.exp(-power)


def _pareto_limited(c: float, spread: float) -> float:
    """Tail index α = 1/spread from 1 on: c below 1; else (α − c^{1−α})/(α − 1)."""
    if c <= 1:
        return max(c, 0.0)
    alpha = 1 / spread
    if math.isinf(c):
        return alpha / (alpha - 1) if alpha > 1 else math.inf
    if abs(alpha - 1) < 1e-9:
        return 1 + math.log(c)
    return float((alpha - c ** (1 - alpha)) / (alpha - 1))


FAMILIES: Mapping[str, Family] = MappingProxyType(
    {
        "lognormal": Family(lambda z, s: np.exp(s * z), _lognormal_limited, (1e-3, 40.0), DEFAULT_SIGMA),
        "normal": Family(lambda z, s: 1 + s * z, _normal_limited, (1e-3, 20.0), 0.474),
        "gamma": Family(_gamma_quantile, _gamma_limited, (1e-2, 8.0), 0.474),
        "weibull": Family(lambda z, s: (-special.log_ndtr(-z)) ** s, _weibull_limited, (1e-3, 12.0), 0.45),
        "pareto": Family(lambda z, s: np.exp(-special.log_ndtr(-z) * s), _pareto_limited, (1e-3, 20.0), 0.30),
    }
)


@dataclass(frozen=True)
class Statistics:
    """What is known of a variable: censored at `cap`, never below `low`; percentiles as (probability, value)."""

    family: str
    mean: float | None = None
    percentiles: tuple[tuple[float, float], ...] = ()
    low: float = 0.0
    cap: float = math.inf
    clip_ratio: float | None = None
    sigma: float | None = None


@dataclass(frozen=True)
class Curve:
    """A solved distribution: value of a normal score, uncensored, and how far it misses what was asked."""

    family: str
    low: float
    scale: float
    spread: float
    assumptions: tuple[str, ...] = ()

    def at(self, z: Array) -> Array:
        """Values at normal scores z, not yet censored."""
        if self.scale == 0:
            return np.full(np.shape(z), self.low)
        if self.family == "uniform":
            return np.asarray(self.low + self.scale * special.ndtr(z), dtype=np.float64)
        if self.family == "normal":
            return np.maximum(self.low, self.scale * FAMILIES["normal"].quantile(z, self.spread))
        return self.low + self.scale * FAMILIES[self.family].quantile(z, self.spread)


@lru_cache(maxsize=256)
def solve(known: Statistics) -> Curve:
    """Scale and spread of the family that give the known statistics after censoring.

    Raises `UnreachableError` where there are none, with the range that could be reached.
    """
    if known.family == "constant":
        value = known.mean if known.mean is not None else known.percentiles[0][1]
        return Curve("constant", value, 0.0, 0.0)
    if known.family == "uniform":
        return Curve("uniform", known.low, known.cap - known.low, 0.0)
    if known.sigma is not None and known.family != "lognormal":
        raise UnreachableError(f"sigma is of lognormal, not of {known.family}", "a percentile beside the mean")
    _refuse_impossible_mean(known)
    if known.mean is not None and known.mean >= known.cap * (1 - _EXACT):
        return Curve(known.family, known.cap, 0.0, 0.0)
    problem = _Problem(known)
    conditions = problem.conditions
    if not conditions:
        raise UnreachableError("a mean or a percentile below max is needed", "{mean: 900, max: 4096}")
    if known.sigma is not None:
        return problem.with_spread(known.sigma)
    if len(conditions) == 1:
        return problem.with_usual_spread()
    if len(conditions) == 2:
        return problem.of_two(*conditions)
    return problem.of_many()


def _refuse_impossible_mean(known: Statistics) -> None:
    """Clipped samples alone hold the mean up: mean ≥ low + clip·(cap − low)."""
    if known.mean is None or not known.clip_ratio:
        return
    least = known.low + known.clip_ratio * (known.cap - known.low)
    if known.mean <= least:
        raise UnreachableError(
            f"clip_ratio {known.clip_ratio:g} at max {known.cap:g} alone makes the mean more than {least:.4g}, "
            f"but mean is {known.mean:g}",
            f"mean above {least:.4g}, or a smaller clip_ratio",
        )


@dataclass(frozen=True)
class _Condition:
    """One statistic: its name and value; `score` is the normal score of a percentile, None for the mean."""

    name: str
    value: float
    score: float | None


class _Problem:
    """Equations of one `Statistics`."""

    def __init__(self, known: Statistics) -> None:
        self.known = known
        self.family = FAMILIES[known.family]
        self.shift = 0.0 if known.family == "normal" else known.low
        self.conditions = self._conditions()

    def _conditions(self) -> list[_Condition]:
        """The exact ones (percentiles and the clip ratio) first, the mean last."""
        known = self.known
        found = []
        if known.clip_ratio:
            found.append(_Condition("clip_ratio", known.cap, float(special.ndtri(1 - known.clip_ratio))))
        capped = False  # percentiles at the cap: the lowest of them says most
        for probability, value in known.percentiles:
            at_cap = value >= known.cap * (1 - _EXACT)
            if at_cap and capped:
                continue
            capped = capped or at_cap
            if not at_cap or known.clip_ratio is None:
                name = f"p{100 * probability:g}"
                found.append(_Condition(name, min(value, known.cap), float(special.ndtri(probability))))
            elif known.clip_ratio < 1 - probability:
                raise UnreachableError(
                    f"p{100 * probability:g} is max, but only {known.clip_ratio:g} of the samples reach max",
                    f"clip_ratio of at least {1 - probability:.2g}",
                )
        if known.mean is not None:
            found.append(_Condition("mean", known.mean, None))
        return found

    def mean(self, scale: float, spread: float) -> float:
        """E[min(max(x, low), cap)], from E[min(X, c)] of the family at scale 1."""
        top = (self.known.cap - self.shift) / scale
        bottom = (self.known.low - self.shift) / scale
        limited = self.family.limited(top, spread) - self.family.limited(bottom, spread)
        return self.known.low + scale * limited

    def value(self, condition: _Condition, scale: float, spread: float) -> float:
        """The statistic as the distribution has it."""
        if condition.score is None:
            return self.mean(scale, spread)
        return self.shift + scale * float(self.family.quantile(np.array([condition.score]), spread)[0])

    def scale_for(self, condition: _Condition, spread: float) -> float:
        """The scale that meets one condition."""
        if condition.score is not None:
            unit = float(self.family.quantile(np.array([condition.score]), spread)[0])
            return max((condition.value - self.shift) / max(unit, 1e-300), 1e-300)
        first = max(condition.value - self.shift, 1e-12)
        below, above = first, first
        while self.mean(below, spread) > condition.value:
            below /= 4
        for _ in range(200):
            if self.mean(above, spread) >= condition.value:
                break
            above *= 4
        return _root(lambda s: self.mean(math.exp(s), spread) - condition.value, math.log(below), math.log(above))

    def with_spread(self, spread: float) -> Curve:
        """Spread known, one condition left to meet; further ones are checked."""
        meets = next((c for c in self.conditions if c.score is None), self.conditions[0])
        scale = self.scale_for(meets, spread)
        self._check([c for c in self.conditions if c is not meets], scale, spread)
        return Curve(self.known.family, self.known.low, scale, spread)

    def with_usual_spread(self) -> Curve:
        """One condition only: the usual spread, narrower where the clip ratio is known to be nothing."""
        only, spread = self.conditions[0], self.family.usual
        scale = self.scale_for(only, spread)
        like = "" if self.known.family == "lognormal" else "the spread of a lognormal with "
        why = f"{self.known.family} with {like}σ {DEFAULT_SIGMA:g}: {only.name} is given, but nothing of the spread"
        if self.known.clip_ratio == 0:
            unseen = _Condition("max", self.known.cap, float(special.ndtri(1 - UNSEEN)))
            if self.value(unseen, scale, spread) > self.known.cap:
                curve = self.of_two(unseen, only)
                why = f"{self.known.family} with {UNSEEN:.2%} of samples at max: clip_ratio is given as 0"
                return Curve(curve.family, curve.low, curve.scale, curve.spread, (why,))
        return Curve(self.known.family, self.known.low, scale, spread, (why,))

    def of_two(self, exact: _Condition, other: _Condition) -> Curve:
        """Two conditions: the scale meets the first for every spread; the spread meets the second."""

        def miss(log_spread: float) -> float:
            spread = math.exp(log_spread)
            return self.value(other, self.scale_for(exact, spread), spread) - other.value

        grid = np.linspace(math.log(self.family.spreads[0]), math.log(self.family.spreads[1]), 49)
        misses = np.array([miss(s) for s in grid])
        crossings = np.flatnonzero(np.signbit(misses[:-1]) != np.signbit(misses[1:]))
        if not crossings.size:
            grid, misses = _with_turning_point(miss, grid, misses)
            crossings = np.flatnonzero(np.signbit(misses[:-1]) != np.signbit(misses[1:]))
        if not crossings.size:
            low, high = other.value + misses.min(), other.value + misses.max()
            raise UnreachableError(
                f"no {self.known.family} distribution has {self._text(exact)} and {self._text(other)}",
                f"{other.name} between {low:.4g} and {high:.4g}, or another family",
            )
        spread = math.exp(_root(miss, grid[crossings[0]], grid[crossings[0] + 1], log=False))
        return Curve(self.known.family, self.known.low, self.scale_for(exact, spread), spread)

    def of_many(self) -> Curve:
        """More than two conditions: least squares of relative misses; a miss above 10% is an error."""
        from scipy.optimize import least_squares

        def misses(point: Array) -> Array:
            scale, spread = np.exp(point)
            return np.array([self.value(c, scale, spread) / c.value - 1 for c in self.conditions])

        low, high = np.log(self.family.spreads)
        start = np.array(
            [math.log(self.scale_for(self.conditions[-1], self.family.usual)), math.log(self.family.usual)]
        )
        found = least_squares(misses, start, bounds=([-np.inf, low], [np.inf, high]))
        scale, spread = np.exp(found.x)
        text = self._check(self.conditions, float(scale), float(spread))
        return Curve(self.known.family, self.known.low, float(scale), float(spread), text)

    def _check(self, conditions: list[_Condition], scale: float, spread: float) -> tuple[str, ...]:
        """Error where a statistic is missed by more than 10%; a remark above 2%."""
        remarks = []
        for condition in conditions:
            got = self.value(condition, scale, spread)
            off = got / condition.value - 1
            if abs(off) > 0.10:
                raise UnreachableError(
                    f"no {self.known.family} distribution fits all statistics: "
                    f"{condition.name} would be {got:.4g} instead of {condition.value:g}",
                    "fewer statistics, another family, a mixture or a trace",
                )
            if abs(off) > 0.02:
                remarks.append(
                    f"{self.known.family} has {condition.name} {got:.4g} where {condition.value:g} was given"
                )
        return tuple(remarks)

    def _text(self, condition: _Condition) -> str:
        if condition.name == "clip_ratio":
            return f"clip_ratio {self.known.clip_ratio:g} at max {condition.value:g}"
        return f"{condition.name} {condition.value:g}"


def _with_turning_point(function: Callable[[float], float], grid: Array, values: Array) -> tuple[Array, Array]:
    """The grid with the point between its nearest ones where the function comes closest to zero: two roots may lie in
    one interval, as where a capped mean rises with the spread and then falls.
    """
    from scipy.optimize import minimize_scalar

    nearest = int(np.argmin(np.abs(values)))
    sign = -1.0 if values[nearest] < 0 else 1.0
    around = (grid[max(nearest - 1, 0)], grid[min(nearest + 1, len(grid) - 1)])
    found = minimize_scalar(lambda x: sign * function(x), bounds=around, method="bounded", options={"xatol": 1e-6})
    at = int(np.searchsorted(grid, found.x))
    return np.insert(grid, at, found.x), np.insert(values, at, sign * found.fun)


def _root(function: Callable[[float], float], low: float, high: float, log: bool = True) -> float:
    """Root in a bracket; with `log` the argument is a logarithm and its exponential is returned."""
    from scipy.optimize import brentq

    found = low == high or function(low) == 0
    root = low if found else float(brentq(function, low, high, xtol=1e-12, rtol=1e-12))
    return math.exp(root) if log else root
