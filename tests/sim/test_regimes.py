"""The synchronous regimes and one-step-off against times added up on paper."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from prices_by_hand import Controller, Hand, Reward, Sync, Training, fixed, lengths, regime, uniform

from rlsim.result import Labels, Result, simulate
from rlsim.sim.settings import Settings

LABELS = Labels("by-hand", "v", 0)
# 100 tokens at 10 ms; a step trains 4 groups of 2.
HAND = Hand(
    training=Training(update_seconds=3.0, logprob_seconds=2.0, reference_seconds=1.0),
    sync=Sync(seconds=0.5),
    offload=0.25,
    onload=0.125,
    controller=Controller(dispatch_seconds=0.0625, step_fixed_seconds=0.5),
)


def run(settings: Settings, hand: Hand = HAND, draw=None, steps: int = 3) -> Result:  # type: ignore[no-untyped-def]
    return simulate(settings, hand.costs(), draw or fixed(100, settings.prompts, settings.group_size), LABELS, steps)


def phases(result: Result) -> dict[str, float]:
    return {name: seconds for name, seconds in result.summary()["phases_s"].items() if seconds}


def test_colocated_step_is_the_sum_of_its_stages() -> None:
    result = run(regime(colocated=True))
    # other: 0.5 fixed + (4 calls + log-prob) * 0.0625
    assert phases(result) == pytest.approx(
        {
            "offload": 0.25,
            "weight_sync": 0.5,
            "rollout": 1.0,
            "onload": 0.125,
            "other": 0.8125,
            "logprob": 2.0,
            "train": 3.0,
        }
    )
    pool = result.summary()["rollout_pool_s"]
    assert pool["weight_sync"] == pytest.approx(0.5)
    assert pool["generate"] + pool["prefill"] == pytest.approx(1.0)
    assert pool["wait_trainer"] == pytest.approx(0.25 + 0.125 + 0.8125 + 2 + 3)


def test_disaggregated_step_has_no_offload() -> None:
    assert sum(phases(run(regime())).values()) == pytest.approx(0.5 + 1.0 + 0.8125 + 2.0 + 3.0)


def test_reference_and_bypass_change_the_forward_passes() -> None:
    kl = phases(run(regime(reference=True)))
    assert (kl["logprob"], kl["reference"]) == pytest.approx((2.0, 1.0))
    assert kl["other"] == pytest.approx(0.875)  # one call more
    bypass = phases(run(regime(logprob="rollout")))
    assert "logprob" not in bypass
    assert bypass["other"] == pytest.approx(0.75)


def test_updates_are_mini_batches_times_epochs() -> None:
    result = run(regime(mini_batches=2, epochs=3))
    assert phases(result)["train"] == pytest.approx(6 * 3.0)
    summary = result.summary()
    assert summary["staleness"] == {"mean": 0.0, "p99": 0.0, "max": 0}
    # The six updates see the samples 0..5 updates late; each sample in three of them.
    assert summary["staleness_updates"] == {"mean": 2.5, "max": 5}


def test_mini_batches_split_the_samples() -> None:
    hand = replace(HAND, training=Training(per_token=0.001))
    whole, split = run(regime(), hand), run(regime(mini_batches=4), hand)
    assert phases(split)["train"] == pytest.approx(phases(whole)["train"]) == pytest.approx(8 * 116 * 0.001)


def test_only_the_tail_of_the_reward_is_exposed() -> None:
    # Half the samples have 100 tokens, half 50. Rewards of 0.25 s stream: the early ones hide behind the rollout.
    draw = lengths(lambda rng, p, g: np.tile([50, 100], (p, g // 2)), 4, 2)
    result = run(regime(), replace(HAND, reward=Reward(0.25)), draw)
    assert phases(result)["rollout"] == pytest.approx(1.0)
    assert phases(result)["reward"] == pytest.approx(0.25)
    assert result.summary()["rollout_pool_s"]["idle"] == pytest.approx(0.25)
    # Two workers: four samples done at 0.5 s keep them busy to 1.0 s, the next four to 1.5 s.
    few = run(regime(), replace(HAND, reward=Reward(0.25, workers=2)), draw)
    assert phases(few)["reward"] == pytest.approx(0.5)


def test_one_step_off_takes_the_longer_of_the_two_plus_the_sync() -> None:
    trainer = 0.8125 + 2.0 + 3.0
    bound = run(regime("one-step-off"))
    assert bound.summary()["step_time_s"]["mean"] == pytest.approx(trainer + 0.5)
    assert bound.summary()["rollout_pool_s"]["wait_trainer"] == pytest.approx(trainer - 1.0)
    slow = run(regime("one-step-off"), draw=fixed(1000, 4, 2))
    assert slow.summary()["step_time_s"]["mean"] == pytest.approx(10.0 + 0.5)
    assert phases(slow)["wait_rollout"] == pytest.approx(10.0 - trainer)


def test_one_step_off_trains_exactly_one_version_late() -> None:
    result = run(regime("one-step-off", mini_batches=2), draw=uniform(1, 400, 4, 2), steps=5)
    assert result.summary()["staleness"] == {"mean": 1.0, "p99": 1.0, "max": 1}
    assert result.summary()["staleness_updates"] == {"mean": 2.5, "max": 3}
    assert result.summary()["samples"] == {"trained": 40, "dropped": {}, "aborted": 0, "in_flight": 8}


def test_all_regimes_see_the_same_samples() -> None:
    draw = uniform(1, 400, 4, 2)
    tables = [run(s, draw=draw).samples for s in (regime(), regime("one-step-off"), regime("async", max_staleness=1))]
    for table in tables[1:]:
        assert (table["response_tokens"][:24] == tables[0]["response_tokens"][:24]).all()


def test_tail_and_its_share() -> None:
    # Seven of eight samples end after 10 tokens, one after 1,000: 9.9 s of tail.
    long = np.array([[10, 10], [10, 10], [10, 10], [10, 1000]])
    result = run(regime(), draw=lengths(lambda rng, p, g: long, 4, 2))
    summary = result.summary()
    assert summary["tail"]["seconds"] == pytest.approx(9.9)
    assert summary["tail"]["share"] == pytest.approx(9.9 / summary["step_time_s"]["mean"])
    assert summary["bottleneck"].startswith("The rollout tail decides")


def test_seeds_are_pooled() -> None:
    costs, draw = HAND.costs(), uniform(1, 400, 4, 2)
    both = simulate(regime(), costs, draw, LABELS, 3, seeds=2)
    assert len(both.steps) == 6
    assert sorted(both.steps["seed"].unique()) == [0, 1]
    first = simulate(regime(), costs, draw, LABELS, 3)
    assert both.steps["step_time"][:3].tolist() == first.steps["step_time"].tolist()
