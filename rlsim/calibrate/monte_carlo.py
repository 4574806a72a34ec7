"""The prediction interval the long way: parameters drawn from their ranges, the scenario simulated with each draw.

`rlsim.interval` stretches the phases of one simulation, in milliseconds; this says whether that is right, for a minute
of simulations.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import numpy as np

from rlsim.catalog.profile_file import Z90
from rlsim.catalog.profiles import Profile
from rlsim.interval import SOFTWARE

if TYPE_CHECKING:
    from rlsim.calibrate.least_squares import Floats
    from rlsim.scenario.schema import Scenario

MEMORY = (
    "cuda_context_bytes", "nccl_buffer_bytes", "all_to_all_buffer_bytes", "engine_graph_bytes", "allocator_slack",
    "logits_bytes_per_element", "host_process_bytes",
)  # fmt: skip
"""Parameters of the memory model, which say what fits and not how long it takes."""
NOISE = f"{SOFTWARE}_noise"
FAINT = 0.05


def profiles(prior: Profile, draws: int, seed: int = 0) -> Iterator[tuple[Profile, float]]:
    """(profile, what all phases together are multiplied by) of each draw.

    Every parameter is lognormal on either side of its value, low and high its 10th and 90th percentile; standard
    normals are correlated as the profile says.
    """
    names = [n for n, p in prior.parameters.items() if p.low < p.high and p.value > 0 and n not in MEMORY]
    scores = np.random.default_rng(seed).standard_normal((draws, len(names))) @ _root(prior, names).T
    for row in scores:
        values = {name: _at(prior, name, float(z)) for name, z in zip(names, row, strict=True)}
        yield prior.with_values(**{n: v for n, v in values.items() if n != NOISE}), values.get(NOISE, 1.0)


def step_seconds(scenario: Scenario, draws: int, seed: int = 0, steps: int = 1) -> Floats:
    """float64[draws]: mean step time under each draw; lengths and random numbers the same in all."""
    from rlsim import api

    prior = api.check(scenario).system.profile
    found = [
        factor * api.replay(scenario, profile, steps=steps).summary()["step_time_s"]["mean"]
        for profile, factor in profiles(prior, draws, seed)
    ]
    return np.array(found)


def _at(prior: Profile, name: str, z: float) -> float:
    value, end = prior.value(name), prior.high(name) if z > 0 else max(prior.low(name), FAINT * prior.value(name))
    drawn: float = value * (end / value) ** (abs(z) / Z90)
    share = name.endswith(("_efficiency", "_share", "_overlap", "_slack"))
    return min(drawn, 1.0) if share else drawn


def _root(prior: Profile, names: list[str]) -> Floats:
    """A square root of the correlation matrix, its negative eigenvalues (pairs that don't go together) cut off."""
    matrix = np.eye(len(names))
    for (a, b), rho in prior.correlations.items():
        if a in names and b in names:
            i, j = names.index(a), names.index(b)
            matrix[i, j] = matrix[j, i] = rho
    values, vectors = np.linalg.eigh(matrix)
    root = vectors * np.sqrt(np.maximum(values, 0.0))
    return np.asarray(root / np.sqrt((root**2).sum(axis=1, keepdims=True)))


def spread(seconds: Floats) -> tuple[float, float]:
    """(10th, 90th percentile) over the median, which is what the interval is around."""
    low, middle, high = np.quantile(seconds, (0.1, 0.5, 0.9))
    return float(low / middle), float(high / middle)
