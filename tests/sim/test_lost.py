"""What weight syncs take from generation: on paper, as properties, and as one public run felt it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rlsim.api import load_scenario
from rlsim.api import simulate as run_scenario
from rlsim.result import Labels, Result, simulate
from rlsim.sim.rules import RolloutRules
from tests.sim.prices_by_hand import Hand, Sync, Training, fixed, regime, surface, uniform

LABELS = Labels("by-hand", "base", 1)
SCENARIO = Path(__file__).parents[2] / "scenarios" / "sync_cost.yaml"
HAND = Hand(
    training=Training(update_seconds=1.0),
    sync=Sync(seconds=4.0, transfer_seconds=1.0, grace_seconds=2.0, group_seconds=0.5),
)


def play(schedule: str = "async", hand: Hand = HAND, steps: int = 4, tokens: Any = None, **more: Any) -> Result:
    rules = regime(schedule, prompts=8, group_size=2, max_staleness=1, **more)
    draw = tokens or fixed(200, rules.prompts, rules.group_size)
    return simulate(rules, hand.costs(), draw, LABELS, steps)


def test_the_standstill_is_split() -> None:
    """Of 4 s a sync: 2 s of grace, 0.5 s for the group, 1.5 s for the sync itself; two engines lose 8."""
    block = play(on_sync="in-flight").summary()["weight_sync"]
    lost = block["lost"]
    assert lost["drain_s"] == pytest.approx(2.0)
    assert lost["group_rebuild_s"] == pytest.approx(0.5)
    assert lost["stand_still_s"] == pytest.approx(1.5)
    assert lost["reprefill_s"] == lost["regenerate_s"] == 0.0
    assert lost["engine_seconds"] == pytest.approx(8.0)
    assert sum(lost[name] for name in lost if name.endswith("_s")) == pytest.approx(block["lost_generation_seconds"])


def test_a_blocking_sync_is_a_standstill() -> None:
    hand = replace(HAND, sync=Sync(seconds=4.0, transfer_seconds=1.0))
    lost = play("sync", hand).summary()["weight_sync"]["lost"]
    assert lost == pytest.approx(
        {
            "drain_s": 0.0,
            "stand_still_s": 4.0,
            "group_rebuild_s": 0.0,
            "reprefill_s": 0.0,
            "regenerate_s": 0.0,
            "engine_seconds": 8.0,
            "engine_share": 4.0 / (4.0 + 2.0 + 1.0),  # sync, 200 iterations of 10 ms, update
        },
        rel=1e-2,
    )


def test_draining_lets_engines_run_out() -> None:
    """Draining costs seconds before the sync; of the engines only those that have run out are idle in them."""
    hand = replace(HAND, sync=Sync(seconds=0.5))
    lost = play(hand=hand, on_sync="drain", tokens=uniform(50, 400, 8, 2)).summary()["weight_sync"]["lost"]
    assert lost["drain_s"] > 0
    assert 1.0 <= lost["engine_seconds"] < 1.0 + 2 * lost["drain_s"]


def test_interrupted_contexts_are_prefilled_again_unless_caches_are_kept() -> None:
    """Prefill at 1 ms a token."""
    slow = replace(surface(), prefill_seconds=surface().prefill_knots * 1e-3)
    hand = replace(HAND, engine=slow, sync=Sync(seconds=0.5))
    again = play(hand=hand, on_sync="interrupt").summary()
    kept = play(hand=hand, on_sync="interrupt", rollout=RolloutRules(flush_cache=False)).summary()
    assert again["weight_sync"]["lost"]["reprefill_s"] == again["rollout_pool_s"]["reprefill"] > 0
    assert kept["weight_sync"]["lost"]["reprefill_s"] == kept["tokens"]["reprefilled"] == 0
    assert kept["step_time_s"]["mean"] <= again["step_time_s"]["mean"]


def test_aborted_tokens_are_generated_again() -> None:
    lost = play(on_sync="abort", tokens=uniform(50, 400, 8, 2)).summary()["weight_sync"]["lost"]
    assert lost["regenerate_s"] > 0


def test_the_first_sync_of_a_run_may_be_dearer() -> None:
    """A delta sync of 0.5 s needs a whole copy first, 4 s: once, in the first of four steps."""
    costs = replace(HAND, sync=Sync(seconds=0.5)).costs()
    rules = regime("sync", prompts=8, group_size=2)
    plain = simulate(rules, costs, fixed(100, 8, 2), LABELS, 4)
    dense = simulate(rules, replace(costs, first_sync=Sync(seconds=4.0)), fixed(100, 8, 2), LABELS, 4)
    assert [step.phases["weight_sync"] for step in dense.runs[0].steps] == pytest.approx([4.0, 0.5, 0.5, 0.5])
    assert dense.runs[0].steps[-1].end == pytest.approx(plain.runs[0].steps[-1].end + 3.5)


@settings(max_examples=25, deadline=None)
@given(
    st.sampled_from(["drain", "abort", "interrupt", "in-flight"]),
    st.floats(0.0, 3.0),
    st.floats(0.0, 1.0),
    st.floats(0.0, 2.0),
    st.sampled_from([0.5, 4.0]),
)
def test_losses_are_bounded_and_scale(how: str, still: float, group: float, grace: float, factor: float) -> None:
    sync = Sync(seconds=still + group + grace, group_seconds=group, grace_seconds=grace)
    hand = replace(HAND, sync=sync)
    one = play(hand=hand, on_sync=how, steps=2, tokens=uniform(20, 120, 8, 2)).summary()
    lost = one["weight_sync"]["lost"]
    assert all(value >= 0 for value in lost.values())
    assert lost["engine_share"] <= 1 + 1e-9
    grown = hand.scaled(factor)
    grown = replace(grown, sync=replace(grown.sync, group_seconds=group * factor, grace_seconds=grace * factor))
    other = play(hand=grown, on_sync=how, steps=2, tokens=uniform(20, 120, 8, 2)).summary()["weight_sync"]["lost"]
    for name, value in lost.items():
        scale = 1.0 if name == "engine_share" else factor
        assert other[name] == pytest.approx(value * scale, rel=1e-6, abs=1e-9)


def test_a_pause_before_each_sync_makes_asynchronous_training_slower() -> None:
    """Marin, issue 8936, 20 updates: 147.4 s of sync, of it 100.55 s a pause; synchronously 48.79 s, and faster."""
    found = {}
    for name in ("async-pause", "sync"):
        summary = run_scenario(load_scenario(SCENARIO, variant=name).variants[0], steps=4).summary()
        lost = summary["weight_sync"]["lost"]
        found[name] = (
            summary["step_time_s"]["mean"],
            20 * summary["weight_sync"]["exposed_seconds"],
            20 * lost["drain_s"],
        )
    step, whole, paused = found["async-pause"]
    assert whole == pytest.approx(147.4, rel=0.2)
    assert paused == pytest.approx(100.55, rel=0.02)
    assert 0.5 < found["sync"][1] / 48.79 < 2
    assert found["sync"][0] < step
