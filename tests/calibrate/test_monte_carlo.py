"""The interval of one simulation against simulations of every draw."""

from __future__ import annotations

import numpy as np
import pytest

from rlsim import api
from rlsim.calibrate import monte_carlo
from rlsim.catalog.profiles import profile
from rlsim.scenario import load_scenario
from tests.frameworks.test_verl_log import LOGS


def test_draws_have_the_profiles_ranges_and_correlations() -> None:
    prior = profile("generic")
    names = "engine_step_base_s", "rollout_kernel_factor"
    bound = type(prior)(prior.name, prior.parameters, correlations={names: -0.8})
    drawn = [p for p, _ in monte_carlo.profiles(bound, 2000)]
    for name in names:
        low, high = np.quantile([p.value(name) for p in drawn], (0.1, 0.9))
        assert (low, high) == pytest.approx((prior.low(name), prior.high(name)), rel=0.05)
    ranks = [np.argsort(np.argsort([p.value(name) for p in drawn])) for name in names]
    assert np.corrcoef(*ranks)[0, 1] == pytest.approx(-0.8, abs=0.05)
    assert {p.value("allocator_slack") for p in drawn} == {prior.value("allocator_slack")}


def test_the_interval_is_that_of_simulated_draws() -> None:
    """200 draws know the 10th percentile to about 2%, the 90th, in a long tail, to 5%."""
    scenario = load_scenario(LOGS / "gpg_megatron.yaml").variants[0]
    told = api.simulate(scenario, steps=1).summary()
    step, interval = told["step_time_s"]["mean"], told["prediction_interval_s"]
    low, high = monte_carlo.spread(monte_carlo.step_seconds(scenario, 200))
    assert interval["p10"] / step == pytest.approx(low, rel=0.08)
    assert interval["p90"] / step == pytest.approx(high, rel=0.12)
