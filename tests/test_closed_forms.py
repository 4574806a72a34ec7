"""The simulation against what is known on paper, in the limits where it is known."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

sys.path.insert(0, str(Path(__file__).parent / "sim"))
from prices_by_hand import Hand, Sync, Training, fixed, regime, surface, uniform

from rlsim import closed_forms as paper
from rlsim.result import Labels, simulate
from rlsim.sim.passing import PassRate
from rlsim.sim.remedies import Remedies

ITERATION = 0.01
SYNC = 0.5


def summary(rules: Any, draw: Any, train: float = 3.0, slots: int = 64, steps: int = 12) -> dict[str, Any]:
    hand = Hand(surface(ITERATION, slots=slots), training=Training(update_seconds=train), sync=Sync(seconds=SYNC))
    return simulate(rules, hand.costs(), draw, Labels("paper", "v", 0), steps).summary()


def step(*args: Any, **more: Any) -> float:
    return float(summary(*args, **more)["step_time_s"]["mean"])


@pytest.mark.parametrize("tokens", [100, 800])
def test_sync_is_the_sum_and_one_step_off_the_longer_of_two(tokens: int) -> None:
    # 100 tokens: 1 s against 3 s of training; 800: 8 s.
    draw = fixed(tokens, 4, 2)
    assert step(regime(), draw) == pytest.approx(paper.synchronous(tokens * ITERATION, 3.0, SYNC))
    assert step(regime("one-step-off"), draw) == pytest.approx(paper.one_step_off(tokens * ITERATION, 3.0, SYNC))


@pytest.mark.parametrize("slots", [2, 16])
def test_async_is_trainer_bound_or_generation_bound(slots: int) -> None:
    # 8·4 samples of 200 tokens; two engines of 2 or 16 slots make 400 or 3,200 tokens/s: 16 s or 2 s against 3.5 s.
    rules = regime("async", prompts=8, group_size=4, max_staleness=4, on_sync="in-flight")
    got = step(rules, uniform(100, 300, 8, 4), slots=slots, steps=30)
    tokens, rate = 8 * 4 * 200, 2 * slots / ITERATION
    assert got == pytest.approx(paper.asynchronous(3.0, SYNC, tokens, rate, standstill=SYNC), rel=0.03)


def test_staleness_of_a_full_queue_is_its_bound() -> None:
    rules = regime("async", prompts=8, group_size=4, max_staleness=3, on_sync="in-flight")
    full = summary(rules, fixed(50, 8, 4))
    assert full["staleness"]["mean"] == paper.bounded_staleness(3, step=3.5, latency=np.inf)


@pytest.mark.parametrize(("slots", "wait"), [(8, 0.02), (64, 1.0)])
def test_staleness_of_an_empty_queue_is_the_syncs_while_a_sample_runs(slots: int, wait: float) -> None:
    # About 2,000 tokens at 10 ms; the engines stand still for the sync of every step. 8 slots an engine serve half a
    # batch at a time: half a version late. With 64 all seven batches run at once and wait up to a step for their group.
    rules = regime("async", prompts=8, group_size=4, max_staleness=6, on_sync="in-flight")
    empty = summary(rules, uniform(1990, 2010, 8, 4), train=0.01, slots=slots, steps=20)
    seconds = empty["step_time_s"]["mean"]
    late = paper.bounded_staleness(6, seconds, latency=2000 * ITERATION * seconds / (seconds - SYNC))
    assert late - 0.02 <= empty["staleness"]["mean"] <= late + wait


@pytest.mark.parametrize("theta", [0.0, 0.25, 0.5, 1.0])
def test_verl_limits(theta: float) -> None:
    rules = regime("async", prompts=8, policy="verl", theta=theta, on_sync="interrupt")
    got = summary(rules, fixed(100, 8, 2))
    assert got["staleness"]["mean"] == pytest.approx(paper.threshold_staleness(theta))
    if theta == 0:  # on-policy: rollout, training and sync one after another
        assert got["step_time_s"]["mean"] == pytest.approx(paper.synchronous(100 * ITERATION, 3.0, SYNC))
    if theta == 1:
        assert got["step_time_s"]["mean"] == pytest.approx(paper.one_step_off(100 * ITERATION, 3.0, SYNC))


def test_order_statistics() -> None:
    harmonic = sum(1 / i for i in range(1, 65))
    assert paper.order_statistic(lambda u: -np.log1p(-u), 64, 64) == pytest.approx(harmonic, rel=1e-3)
    assert paper.order_statistic(lambda u: -np.log1p(-u), 1, 10) == pytest.approx(0.1, rel=1e-3)
    assert paper.order_statistic(lambda u: u, 30, 40) == pytest.approx(30 / 41, rel=1e-6)


def test_a_rollout_lasts_as_long_as_its_longest_sample() -> None:
    # 64 samples, uniform from 1 to 1,000 tokens, all at once: 64/65 · 1,000 · 10 ms.
    got = summary(regime(prompts=32), uniform(1, 1000, 32, 2), steps=60)
    longest = paper.order_statistic(lambda u: 1 + 999 * u, 64, 64)
    assert got["phases_s"]["rollout"] == pytest.approx(longest * ITERATION, rel=0.01)


def test_over_sampling_stops_at_an_order_statistic() -> None:
    # 48 groups of one sample are started and 32 needed.
    rules = regime(prompts=32, group_size=1, remedies=Remedies(ratio=1.5))
    got = summary(rules, uniform(1, 1000, 32, 1), steps=60)
    last = paper.order_statistic(lambda u: 1 + 999 * u, 32, 48)
    assert got["phases_s"]["rollout"] == pytest.approx(last * ITERATION, rel=0.03)


@pytest.mark.parametrize("policy", ["areal", "verl", "slime", "openrlhf", "roll"])
def test_dynamic_sampling_generates_one_over_one_minus_z(policy: str) -> None:
    rate = PassRate(0.8, concentration=3.0)
    rules = regime(
        "async",
        prompts=16,
        group_size=4,
        policy=policy,
        max_staleness=1,
        max_concurrent=24 if policy == "slime" else None,
        pass_rate=rate,
        remedies=Remedies(refill="replace"),
        on_sync="in-flight",
    )
    got = summary(rules, uniform(20, 200, 16, 4), steps=60)
    samples = got["samples"]
    generated = (samples["trained"] + samples["dropped"]["zero_variance"]) / samples["trained"]
    assert generated == pytest.approx(paper.groups_per_kept(rate.zero_variance(4)), rel=0.08)


def test_slime_reaches_its_age() -> None:
    rules = regime("async", policy="slime", max_concurrent=6, on_sync="in-flight")
    got = summary(rules, fixed(20, 4, 2), train=10.0)
    assert paper.slime_staleness(6, 4) - 1 <= got["staleness"]["max"] <= paper.slime_staleness(6, 4)
