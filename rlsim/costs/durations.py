"""Durations drawn from the few statistics that people know: a mean, a median, a high percentile, a limit."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from math import gamma, log, sqrt
from statistics import NormalDist
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from rlsim.scenario.schema import SecondsSpec

Array = NDArray[np.float64]
PERCENTILES = {"p90": 0.90, "p95": 0.95, "p99": 0.99}
DEFAULT_SPREAD = {"lognormal": 0.5, "gamma": 0.7, "weibull": 1.0, "pareto": 0.5}


@dataclass(frozen=True)
class Durations:
    """Seconds of independent events. `shape`: float64[n] uniform in (0, 1) -> quantiles of a unit-scale
    family.

    duration = clip(scale * shape(u), low, high); `scale` makes the mean (or the median) what it should be.
    """

    shape: Callable[[Array], Array]
    scale: float
    low: float = 0.0
    high: float = np.inf

    def sample(self, rng: np.random.Generator, n: int) -> Array:
        """float64[n] seconds."""
        drawn: Array = np.clip(self.scale * self.shape(1.0 - rng.random(n)), self.low, self.high)
        return drawn


def constant(seconds: float) -> Durations:
    """Every event takes the same time."""
    return Durations(np.ones_like, seconds)


def durations(spec: SecondsSpec) -> Durations:
    """The distribution of a `SecondsSpec`, limited to its min and max.

    Two statistics fix location and spread; with one, the spread is the family's default: lognormal sigma 0.5,
    gamma and Weibull with standard deviation 0.7 and 1 of the mean, Pareto with tail index 2.
    """
    low = spec.min if spec.min is not None else 0.0
    high = spec.max if spec.max is not None else np.inf
    centre = spec.mean if spec.mean is not None else spec.p50
    family = spec.distribution or "lognormal"
    if family == "constant" and centre is not None:
        return constant(centre)
    if family == "uniform":
        return Durations(partial(_between, low, high), 1.0)
    if centre is None:
        name, centre = next((n, v) for n in PERCENTILES if (v := getattr(spec, n)) is not None)
        unit = partial(FAMILIES[family], spec.sigma or DEFAULT_SPREAD[family])
        return Durations(unit, centre / float(unit(np.array([PERCENTILES[name]]))[0]), low, high)
    unit = partial(FAMILIES[family], _spread(spec, family, centre))
    scale = centre if spec.mean is not None else centre / float(unit(np.array([0.5]))[0])
    return Durations(unit, scale, low, high)


def _between(low: float, high: float, u: Array) -> Array:
    return low + (high - low) * u


def _lognormal(sigma: float, u: Array) -> Array:
    """Mean 1: exp(sigma*z - sigma^2/2)."""
    from scipy.special import ndtri

    return np.asarray(np.exp(sigma * ndtri(u) - sigma * sigma / 2))


def _gamma(variation: float, u: Array) -> Array:
    """Mean 1, standard deviation `variation`."""
    from scipy.special import gammaincinv

    shape = 1.0 / variation**2
    return np.asarray(gammaincinv(shape, u) / shape)


def _weibull(inverse_shape: float, u: Array) -> Array:
    """Mean 1: (-ln(1-u))^(1/k) / Gamma(1 + 1/k)."""
    return np.asarray((-np.log1p(-np.minimum(u, 1 - 1e-16))) ** inverse_shape / gamma(1 + inverse_shape))


def _pareto(inverse_index: float, u: Array) -> Array:
    """Mean 1 with tail index a = 1/inverse_index > 1: (a-1)/a * (1-u)^(-1/a)."""
    return np.asarray((1 - inverse_index) * np.maximum(1 - u, 1e-16) ** -inverse_index)


FAMILIES: dict[str, Callable[[float, Array], Array]] = {
    "lognormal": _lognormal,
    "gamma": _gamma,
    "weibull": _weibull,
    "pareto": _pareto,
}


def _spread(spec: SecondsSpec, family: str, centre: float) -> float:
    """The family's spread parameter, from sigma or from the highest percentile that is given.

    Lognormal from median and quantile: ln(q/p50)/z; from mean and quantile: z - sqrt(z^2 - 2*ln(q/mean)). The
    other families by bisection on quantile / mean (or median), which grows with the spread.
    """
    if spec.sigma is not None:
        return spec.sigma
    name = next((n for n in ("p99", "p95", "p90") if getattr(spec, n) is not None), None)
    if spec.mean is not None and spec.p50 is not None and name is None and family == "lognormal":
        return sqrt(max(0.0, 2 * log(spec.mean / spec.p50)))
    if name is None:
        return DEFAULT_SPREAD[family]
    ratio, p = getattr(spec, name) / centre, PERCENTILES[name]
    if family == "lognormal":
        z = NormalDist().inv_cdf(p)
        if spec.mean is None:
            return max(0.0, log(ratio) / z)
        return float(z - sqrt(max(0.0, z * z - 2 * log(max(1.0, ratio)))))
    return _bisect(FAMILIES[family], p, ratio, median=spec.mean is None, top=0.95 if family == "pareto" else 3.0)


def _bisect(family: Callable[[float, Array], Array], p: float, ratio: float, *, median: bool, top: float) -> float:
    low, high = 1e-3, top
    for _ in range(60):
        middle = (low + high) / 2
        found = float(family(middle, np.array([p]))[0])
        found /= float(family(middle, np.array([0.5]))[0]) if median else 1.0
        low, high = (middle, high) if found < ratio else (low, middle)
    return (low + high) / 2
