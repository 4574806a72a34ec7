"""Seconds of rewards with time-outs and retries, by hand."""

from __future__ import annotations

import numpy as np
import pytest

from rlsim.costs.reward import RewardCosts, reward_costs
from rlsim.scenario.schema_lengths import SecondsSpec
from rlsim.workload import constant_seconds, seconds_model
from tests.costs.systems import QWEN_7B, system

RNG = np.random.default_rng
UNIFORM = seconds_model(SecondsSpec(distribution="uniform", min="0 s", max="2 s"))


def test_a_rule_takes_the_same_time_for_all() -> None:
    assert RewardCosts("rule", None, constant_seconds(0.005)).seconds(RNG(0), 3).tolist() == [0.005] * 3


def test_a_time_out_cuts_a_try() -> None:
    """10 s of work, 3 s allowed, no retry: 3 s."""
    assert RewardCosts("sandbox", 4, constant_seconds(10.0), timeout=3.0).seconds(RNG(0), 2).tolist() == [3.0, 3.0]


def test_retries_add_tries() -> None:
    """Two retries of a try that always times out: 3 * 3 = 9 s."""
    costs = RewardCosts("sandbox", 4, constant_seconds(10.0), timeout=3.0, retries=2)
    assert costs.seconds(RNG(0), 2).tolist() == [9.0, 9.0]


def test_only_timed_out_samples_are_tried_again() -> None:
    """Uniform 0-2 s, limit 1 s: half stop at 1 s and then take min(u, 1): mean 0.75 + 0.5 * 0.75 = 1.125
    s.
    """
    costs = RewardCosts("sandbox", 4, UNIFORM, timeout=1.0, retries=1)
    assert costs.seconds(RNG(0), 200_000).mean() == pytest.approx(1.125, rel=0.01)


def test_scaling_multiplies_every_duration() -> None:
    costs = RewardCosts("sandbox", 4, UNIFORM, timeout=1.0, retries=1)
    np.testing.assert_allclose(costs.scaled(3.0).seconds(RNG(1), 50), 3.0 * costs.seconds(RNG(1), 50))


def test_rewards_of_a_system() -> None:
    assert reward_costs(system(QWEN_7B)).seconds(RNG(0), 2).tolist() == [0.005, 0.005]
    sandbox = system(
        QWEN_7B,
        "workload.reward={kind: sandbox, seconds: {mean: 2 s, p99: 8 s}, workers: 64, timeout: 30 s, retries: 1}",
    )
    costs = reward_costs(sandbox)
    assert (costs.kind, costs.workers, costs.timeout, costs.retries) == ("sandbox", 64, 30.0, 1)
    assert costs.seconds(RNG(0), 100_000).mean() == pytest.approx(2.0, rel=0.03)


def test_the_reward_of_an_environment_comes_with_its_last_answer() -> None:
    costs = reward_costs(system(QWEN_7B, "workload.reward={kind: environment, streaming: false}"))
    assert costs.seconds(RNG(0), 2).tolist() == [0.0, 0.0]
    assert costs.workers is None
    assert not costs.streaming
