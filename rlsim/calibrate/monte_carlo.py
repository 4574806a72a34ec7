"""The prediction interval the long way: parameters drawn from their ranges, the scenario simulated with each draw.

`rlsim.interval` stretches the phases of one simulation, in milliseconds; this says whether that is right, for a minute
of simulations.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import TYPE_CHECKING

import numpy as np

from rlsim.catalog.profile_file import Z90, is_share
from rlsim.catalog.profiles import Profile
from rlsim.costs.spreads import correlation_root, log_range
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


def profiles(prior: Profile, draws: int, seed: int = 0) -> Iterator[tuple[Profile, float]]:
    """(profile, what all phases together are multiplied by) of each draw.

    Every parameter is lognormal on either side of its value, low and high its 10th and 90th percentile; standard
    normals are correlated as the profile says.
    """
    names = [n for n, p in prior.parameters.items() if p.low < p.high and p.value > 0 and n not in MEMORY]
    scores = (
        np.random.default_rng(seed).standard_normal((draws, len(names))) @ correlation_root(prior.correlations, names).T
    )
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
    down, up = log_range(prior, name, 1)
    drawn = prior.value(name) * math.exp(z * (up if z > 0 else down) / Z90)
    return min(drawn, 1.0) if is_share(name) else drawn


def spread(seconds: Floats) -> tuple[float, float]:
    """(10th, 90th percentile) over the median, which is what the interval is around."""
    low, middle, high = np.quantile(seconds, (0.1, 0.5, 0.9))
    return float(low / middle), float(high / middle)
