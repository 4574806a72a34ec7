"""Distributions fitted to the lengths of a trace: maximum likelihood, censored at the cap, ranked by AIC.

A sample at the cap only says that its length is at least that: `ln L = Σ ln f(x) + n_cap · ln S(cap)`. Whole tokens are
taken as continuous. Each fit comes as the block of a scenario that has it, and is shown as that block draws it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from scipy import optimize, special

from rlsim.distributions import Array
from rlsim.errors import UserError
from rlsim.scenario.schema_lengths import Component, LengthSpec
from rlsim.trace import read_trace
from rlsim.workload import LengthModel, length_model

QUANTILES = (0.1, 0.25, 0.5, 0.75, 0.9, 0.95, 0.99)
PILED = 3  # samples at the longest length that make it a cap
PILED_SHARE = 0.002
LEVEL = 10.0  # Burnham and Anderson: beyond it no support is left; within it fewer parameters come first
DISTINCT = 5  # different lengths below the cap that a fit needs


@dataclass(frozen=True)
class LengthFit:
    """One distribution fitted to a trace.

    `aic` = 2·parameters − 2·ln L; `ks`: largest distance between its distribution function and the trace's below the
    cap; `spec` is the block to paste, `model` what a scenario draws from it.
    """

    distribution: str
    parameters: Mapping[str, float]
    aic: float
    ks: float
    spec: LengthSpec
    model: LengthModel

    @property
    def block(self) -> str:
        """The length block as it is pasted into a scenario."""
        return _flow(self.spec.model_dump(exclude_defaults=True, exclude_none=True))


@dataclass(frozen=True)
class LengthFits:
    """Lengths of one column of a trace (or of a scenario's block, then without fits), best fit first.

    `cap` is inf where nothing is censored; `correlation` is that within prompts.
    """

    source: str
    column: str
    given: LengthModel
    samples: int | None
    cap: float
    correlation: float | None
    fits: tuple[LengthFit, ...]
    notes: tuple[str, ...]


@dataclass(frozen=True)
class _Data:
    """Different lengths below the cap, how often each comes, and how many samples are at the cap."""

    values: Array
    counts: Array
    capped: int
    cap: float

    @property
    def total(self) -> float:
        return float(self.counts.sum()) + self.capped


@dataclass(frozen=True)
class _Family:
    """`log_density`, `log_survival` of (x, point), `point` being free of bounds; `starts` to search from; `named`: the
    parameters in the words of the textbook.
    """

    log_density: Callable[[Array, Array], Array]
    log_survival: Callable[[Array, Array], Array]
    starts: Callable[[Array, Array], list[Array]]
    named: Callable[[Array], dict[str, float]]


def fit_lengths(trace: str | Path, column: str = "response_tokens", cap: float | None = None) -> LengthFits:
    """Fit lognormal, gamma, Weibull, Pareto and a mixture of two lognormals to a column of a trace.

    `cap`: lengths from here on are censored; None: the longest length, if samples pile up there.
    """
    read = read_trace(str(trace))
    lengths, correlation = read.column(column), read.correlation(column)
    if column == "prompt_tokens":
        correlation = None
        if read.prompts is not None:  # a prompt counts once, however many samples it has
            lengths = lengths[np.unique(read.prompts, return_index=True)[1]]
    longest = float(lengths.max())
    piled = int((lengths >= longest - 0.5).sum())
    notes = []
    if cap is None:
        enough = piled >= PILED and piled >= PILED_SHARE * len(lengths) and len(np.unique(lengths)) > 1
        cap = longest if enough else math.inf
        notes.append(
            f"{piled:,} of {len(lengths):,} samples have the longest length, {longest:,.0f}: taken as the cap"
            if enough
            else "samples do not pile up at the longest length: nothing is taken as censored, max is that length"
        )
    given = length_model(LengthSpec(trace=str(trace), max=None if math.isinf(cap) else cap), column=column)
    data = _data(lengths, cap)
    found = _fits(data, longest if math.isinf(cap) else cap, str(trace), column)
    return LengthFits(str(trace), column, given, len(lengths), cap, correlation, found, tuple(notes))


def _data(lengths: Array, cap: float) -> _Data:
    below = lengths[lengths < cap - 0.5]
    values, counts = np.unique(below, return_counts=True)
    return _Data(values, counts.astype(np.float64), len(lengths) - len(below), cap)


def _fits(data: _Data, top: float, path: str, column: str) -> tuple[LengthFit, ...]:
    if len(data.values) < DISTINCT:
        raise UserError(
            f"different lengths of {column} below the cap: {len(data.values)}, too few to fit",
            file=path,
            fix=f"at least {DISTINCT} of them",
        )
    fits = [fit for name in _FAMILIES if (fit := _fit(name, data, top)) is not None]
    level = min((fit.aic for fit in fits), default=0.0) + LEVEL
    return tuple(sorted(fits, key=lambda fit: (fit.aic > level, len(fit.parameters) if fit.aic <= level else fit.aic)))


def _fit(name: str, data: _Data, top: float) -> LengthFit | None:
    """Maximum likelihood by one family; None where it has none that a scenario can say."""
    family = _FAMILIES[name]
    point, log_likelihood = _pareto(data) if name == "pareto" else _search(family, data)
    spec = _spec(name, family, point, top)
    if spec is None or not math.isfinite(log_likelihood):
        return None
    free = len(point)
    return LengthFit(
        distribution="mixture" if name == "two lognormals" else name,
        parameters=family.named(point),
        aic=2 * free - 2 * log_likelihood,
        ks=_distance(family, point, data),
        spec=spec,
        model=length_model(spec),
    )


def _log_likelihood(family: _Family, point: Array, data: _Data) -> float:
    with np.errstate(all="ignore"):
        point = np.clip(point, -700.0, 700.0)
        total = float(data.counts @ family.log_density(data.values, point))
        if data.capped:
            total += data.capped * float(family.log_survival(np.array([data.cap - 0.5]), point)[0])
    return total if math.isfinite(total) else -1e300


def _search(family: _Family, data: _Data) -> tuple[Array, float]:
    """The best point from all starts."""
    results = [
        optimize.minimize(
            lambda p: -_log_likelihood(family, p, data) / data.total,
            start,
            method="Nelder-Mead",
            options={"maxiter": 2000, "maxfev": 2000, "xatol": 1e-5, "fatol": 1e-9, "adaptive": True},
        )
        for start in family.starts(data.values, data.counts)
    ]
    best = min(results, key=lambda r: float(r.fun))
    point = np.asarray(best.x, dtype=np.float64)
    return point, _log_likelihood(family, point, data)


def _pareto(data: _Data) -> tuple[Array, float]:
    """x_min = shortest, α = n_below / Σ ln(min(x, cap)/x_min), the capped ones counted in the sum."""
    shortest = float(data.values[0])
    spread = float(data.counts @ np.log(data.values / shortest))
    if data.capped:
        spread += data.capped * math.log((data.cap - 0.5) / shortest)
    point = np.log(np.array([shortest, float(data.counts.sum()) / spread]))
    return point, _log_likelihood(_FAMILIES["pareto"], point, data)


def _distance(family: _Family, point: Array, data: _Data) -> float:
    """Kolmogorov-Smirnov: whole tokens stand for half a token around them."""
    fitted = -np.expm1(family.log_survival(data.values + 0.5, point))
    return float(np.abs(fitted - np.cumsum(data.counts) / data.total).max())


def _spec(name: str, family: _Family, point: Array, top: float) -> LengthSpec | None:
    """The block of a scenario: by its own parameters where the schema has them, else by mean and a percentile."""
    named = family.named(point)
    try:
        if name == "lognormal" and named["median"] < top and named["sigma"] <= 5:
            return LengthSpec(
                distribution="lognormal", p50=_short(named["median"]), sigma=_short(named["sigma"]), max=top
            )
        if name == "two lognormals":
            parts = tuple(
                Component(
                    weight=_short(named[f"weight_{i}"]),
                    p50=_short(named[f"median_{i}"]),
                    sigma=_short(named[f"sigma_{i}"]),
                )
                for i in (1, 2)
            )
            return LengthSpec(distribution="mixture", components=parts, max=top)
        return _by_statistics(name, family, point, top)
    except (ValueError, UserError):
        return None


def _by_statistics(name: str, family: _Family, point: Array, top: float) -> LengthSpec | None:
    """Mean after the cap and the highest of the usual percentiles below it."""
    grid = np.linspace(0.0, top, 20_001)
    with np.errstate(all="ignore"):
        survival = np.exp(family.log_survival(np.maximum(grid, 1e-9), point))
    mean = float(np.trapezoid(survival, grid))
    for label, q in (("p99", 0.99), ("p90", 0.9), ("p50", 0.5)):
        at = float(np.interp(-(1 - q), -survival, grid))
        if at < 0.97 * top:
            return _solvable(LengthSpec(distribution=name, mean=_short(mean), max=top, **{label: _short(at)}))  # type: ignore[arg-type]
    return None


def _solvable(spec: LengthSpec) -> LengthSpec:
    length_model(spec)  # raises where the rounded statistics have no distribution
    return spec


def _short(value: float) -> float:
    """Four significant digits."""
    return float(f"{value:.4g}")


def _lognormal_density(x: Array, location: float, spread: float) -> Array:
    """−½·z² − ln(spread·√(2π)) − ln x, z = (ln x − location)/spread."""
    logs = np.log(x)
    density: Array = -0.5 * ((logs - location) / spread) ** 2 - math.log(spread * math.sqrt(2 * math.pi)) - logs
    return density


def _gamma_density(x: Array, shape: float, scale: float) -> Array:
    """(k − 1)·ln x − x/θ − k·ln θ − ln Γ(k)."""
    density: Array = (shape - 1) * np.log(x) - x / scale - shape * math.log(scale) - float(special.gammaln(shape))
    return density


def _weibull_density(x: Array, shape: float, scale: float) -> Array:
    """ln(k/λ) + (k − 1)·ln(x/λ) − (x/λ)^k."""
    logs = np.log(x / scale)
    density: Array = math.log(shape / scale) + (shape - 1) * logs - np.exp(shape * logs)
    return density


def _two_densities(x: Array, p: Array) -> tuple[Array, Array]:
    """Logarithms of weighted densities of both parts."""
    first, second = _parts(p)
    return (
        math.log(first[0]) + _lognormal_density(x, first[1], first[2]),
        math.log(second[0]) + _lognormal_density(x, second[1], second[2]),
    )


def _two_survivals(x: Array, p: Array) -> Array:
    first, second = _parts(p)
    both: Array = np.logaddexp(
        math.log(first[0]) + special.log_ndtr(-(np.log(x) - first[1]) / first[2]),
        math.log(second[0]) + special.log_ndtr(-(np.log(x) - second[1]) / second[2]),
    )
    return both


def _parts(p: Array) -> tuple[tuple[float, float, float], tuple[float, float, float]]:
    """Weight, location and spread of both parts; a spread below 0.05 would follow single lengths."""
    weight = float(np.clip(special.expit(p[0]), 1e-4, 1 - 1e-4))
    spreads = [float(np.clip(math.exp(min(s, 2.0)), 0.05, 5.0)) for s in (p[2], p[4])]
    return (weight, float(p[1]), spreads[0]), (1 - weight, float(p[3]), spreads[1])


def _moments(x: Array, w: Array) -> tuple[float, float]:
    """Mean and standard deviation of ln x."""
    logs = np.log(x)
    mean = float(np.average(logs, weights=w))
    return mean, max(0.05, math.sqrt(float(np.average((logs - mean) ** 2, weights=w))))


def _two_starts(x: Array, w: Array) -> list[Array]:
    """Parts of equal and of unequal weight, apart and within each other."""
    mean, spread = _moments(x, w)
    near = math.log(spread * 0.7)
    return [
        np.array([0.0, mean - 0.8 * spread, near, mean + 0.8 * spread, near]),
        np.array([2.0, mean - 0.2 * spread, near, mean + 1.5 * spread, near]),
        np.array([0.0, mean, math.log(spread * 0.5), mean, math.log(spread * 1.5)]),
    ]


def _two_named(p: Array) -> dict[str, float]:
    parts = sorted(_parts(p), key=lambda part: part[1])
    return {
        f"{name}_{i}": value
        for i, (weight, location, spread) in enumerate(parts, 1)
        for name, value in (("weight", weight), ("median", math.exp(location)), ("sigma", spread))
    }


def _log_start(x: Array, w: Array) -> list[Array]:
    mean, spread = _moments(x, w)
    return [np.array([mean, math.log(spread)])]


def _shape_start(x: Array, w: Array) -> list[Array]:
    """Shape from the coefficient of variation, scale from the mean."""
    mean = float(np.average(x, weights=w))
    variation = math.sqrt(float(np.average((x - mean) ** 2, weights=w))) / mean
    shape = max(variation, 0.02) ** -2
    return [np.log(np.array([shape, mean / shape])), np.log(np.array([1.0 / max(variation, 0.02), mean]))]


_FAMILIES: Mapping[str, _Family] = {
    "lognormal": _Family(
        lambda x, p: _lognormal_density(x, p[0], math.exp(p[1])),
        lambda x, p: special.log_ndtr(-(np.log(x) - p[0]) / np.exp(p[1])),
        _log_start,
        lambda p: {"median": math.exp(p[0]), "sigma": math.exp(p[1])},
    ),
    "gamma": _Family(
        lambda x, p: _gamma_density(x, math.exp(p[0]), math.exp(p[1])),
        lambda x, p: np.log(special.gammaincc(math.exp(p[0]), x / math.exp(p[1]))),
        lambda x, w: _shape_start(x, w)[:1],
        lambda p: {"shape": math.exp(p[0]), "scale": math.exp(p[1])},
    ),
    "weibull": _Family(
        lambda x, p: _weibull_density(x, math.exp(p[0]), math.exp(p[1])),
        lambda x, p: -((x / math.exp(p[1])) ** math.exp(p[0])),
        lambda x, w: _shape_start(x, w)[1:],
        lambda p: {"shape": math.exp(p[0]), "scale": math.exp(p[1])},
    ),
    "pareto": _Family(
        lambda x, p: p[1] + math.exp(p[1]) * p[0] - (math.exp(p[1]) + 1) * np.log(x),
        lambda x, p: np.minimum(0.0, -math.exp(p[1]) * (np.log(x) - p[0])),
        lambda x, w: [],
        lambda p: {"shortest": math.exp(p[0]), "tail_index": math.exp(p[1])},
    ),
    "two lognormals": _Family(
        lambda x, p: np.logaddexp(*_two_densities(x, p)), _two_survivals, _two_starts, _two_named
    ),
}


def _flow(value: Any) -> str:
    """YAML on one line, as people write it."""
    if isinstance(value, dict):
        return "{" + ", ".join(f"{key}: {_flow(item)}" for key, item in value.items()) + "}"
    if isinstance(value, list | tuple):
        return "[" + ", ".join(_flow(item) for item in value) + "]"
    return (
        f"{value:g}"
        if isinstance(value, float) and abs(value) < 1e5
        else str(int(value) if isinstance(value, float) else value)
    )
