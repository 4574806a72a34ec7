"""From a length or duration block to the curve that has its statistics."""

from __future__ import annotations

import math

import numpy as np
from scipy import special

from rlsim.distributions import Array, Curve, Statistics, solve
from rlsim.scenario.schema_lengths import Component, LengthSpec, SecondsSpec

PERCENTILES = (("p50", 0.5), ("p90", 0.9), ("p95", 0.95), ("p99", 0.99))
HALF = 0.5  # tokens are rounded: everything from min − 0.5 to min + 0.5 is min


def statistics_of(spec: LengthSpec | Component | SecondsSpec, cap: float | None = None) -> Statistics:
    """The known statistics, token bounds widened by the rounding to whole tokens. `cap` stands in for a missing max."""
    half = 0.0 if isinstance(spec, SecondsSpec) else HALF
    ceiling = next((value for value in (spec.max, cap) if value is not None), math.inf)
    floor = spec.min if spec.min is not None else 0.0
    family = spec.distribution or "lognormal"
    if family == "uniform":
        return Statistics("uniform", low=floor - half, cap=ceiling + half)
    percentiles = [(q, getattr(spec, name, None)) for name, q in PERCENTILES]
    return Statistics(
        family=family,
        mean=spec.mean,
        percentiles=tuple((q, value) for q, value in percentiles if value is not None),
        low=max(0.0, floor - half) if floor > 1 or half == 0 else 0.0,
        cap=ceiling,
        clip_ratio=getattr(spec, "clip_ratio", None),
        sigma=spec.sigma,
    )


def curve_of(spec: LengthSpec | Component | SecondsSpec, cap: float | None = None) -> Curve:
    """The solved curve of a block that is neither a trace nor a mixture."""
    return solve(statistics_of(spec, cap))


SCORES: Array = np.linspace(-6.0, 6.0, 4097)
"""Grid of normal scores on which curves are tabulated."""

_STEP = SCORES[1] - SCORES[0]
MASS: Array = special.ndtr(SCORES + _STEP / 2) - special.ndtr(SCORES - _STEP / 2)
"""Probability around each score of the grid."""


def mixture_table(components: tuple[Component, ...]) -> Array:
    """Values of a mixture on `SCORES`: the weighted quantiles of its components' tables."""
    tables = [np.minimum(curve_of(c).at(SCORES), math.inf if c.max is None else c.max) for c in components]
    values = np.concatenate(tables)
    weights = np.concatenate([c.weight * MASS for c in components])
    order = np.argsort(values, kind="stable")
    values, weights = values[order], weights[order] / weights.sum()
    middle = np.cumsum(weights) - weights / 2
    return np.asarray(np.interp(special.ndtr(SCORES), middle, values), dtype=np.float64)
