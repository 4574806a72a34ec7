"""Global sensitivity indices by SALib: which points to simulate, and what their figures say of each input.

Points are shares 0..1 of every input's range. A point without a figure (it does not fit, or its values contradict each
other) makes its whole group useless: what one Sobol row or one Morris walk compares must be there as a whole.
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from rlsim.errors import UserError

Kind = Literal["sobol", "morris"]
Floats = npt.NDArray[np.float64]
SAMPLES = {"sobol": 64, "morris": 10}
CONFIDENCE = 0.95


@dataclass(frozen=True)
class Index:
    """What one input is responsible for; `conf`: half the width of the 95% interval.

    first, total   Sobol: share of the variance that goes with the input alone, and with all that it takes part in
    mu_star        Morris: mean size of the change when the input moves over its range, in units of the figure
    sigma          Morris: its standard deviation: large where the effect depends on the other inputs, or is not linear
    """

    first: float | None = None
    first_conf: float | None = None
    total: float | None = None
    total_conf: float | None = None
    mu_star: float | None = None
    mu_star_conf: float | None = None
    sigma: float | None = None


def points(kind: Kind, count: int, samples: int, seed: int) -> Floats:
    """float64[points, count] of shares: groups of `size(kind, count)`, one after another."""
    problem = _problem(count)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        if kind == "sobol":
            sobol = _salib("sample.sobol")
            return np.asarray(sobol.sample(problem, samples, calc_second_order=False, seed=seed), dtype=np.float64)
        morris = _salib("sample.morris")
        return np.asarray(morris.sample(problem, samples, num_levels=4, seed=seed), dtype=np.float64)


def size(kind: Kind, count: int) -> int:
    """Points of one group."""
    return count + (2 if kind == "sobol" else 1)


def whole(kind: Kind, values: Sequence[float | None], count: int) -> npt.NDArray[np.bool_]:
    """bool[points]: which points are in a group that has all its figures."""
    known = np.array([value is not None for value in values]).reshape(-1, size(kind, count))
    return np.repeat(known.all(axis=1), size(kind, count))


def indices(kind: Kind, shares: Floats, values: Floats, seed: int) -> list[Index]:
    """One index for each column of `shares`; all None where the figure never moves."""
    count = shares.shape[1]
    if np.ptp(values) == 0:
        return [
            Index(0.0, 0.0, 0.0, 0.0) if kind == "sobol" else Index(mu_star=0.0, mu_star_conf=0.0, sigma=0.0)
        ] * count
    problem, options = _problem(count), {"conf_level": CONFIDENCE, "seed": seed}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        if kind == "sobol":
            found = _salib("analyze.sobol").analyze(problem, values, calc_second_order=False, **options)
            rows = zip(found["S1"], found["S1_conf"], found["ST"], found["ST_conf"], strict=True)
            return [Index(*(_number(v) for v in row)) for row in rows]
        found = _salib("analyze.morris").analyze(problem, shares, values, num_levels=4, **options)
    walked = zip(found["mu_star"], found["mu_star_conf"], found["sigma"], strict=True)
    return [Index(mu_star=_number(m), mu_star_conf=_number(c), sigma=_number(s)) for m, c, s in walked]


def _number(value: float) -> float | None:
    return float(value) if np.isfinite(value) else None


def _problem(count: int) -> dict[str, Any]:
    return {"num_vars": count, "names": [str(i) for i in range(count)], "bounds": [[0.0, 1.0]] * count}


def _salib(name: str) -> Any:
    import importlib

    try:
        return importlib.import_module(f"SALib.{name}")
    except ImportError:
        raise UserError("SALib is not installed", key="--method", fix="pip install 'rlsim[plan]'") from None
