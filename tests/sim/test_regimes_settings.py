"""The regime as the scenario file says it."""

from __future__ import annotations

from pathlib import Path

import pytest

from rlsim.errors import UserError
from rlsim.scenario.inert import inert_blocks
from rlsim.scenario.load import load_scenario
from rlsim.scenario.schema import Scenario
from rlsim.sim.settings import settings

FILE = Path(__file__).parents[2] / "scenarios" / "7b_64gpu.yaml"


def scenario(variant: str, *overrides: str) -> Scenario:
    return load_scenario(FILE, overrides).variant(variant)


@pytest.mark.parametrize("name", ["colocated-sync", "disaggregated-sync", "one-step-off", "async"])
def test_the_four_regimes_carry_their_names(name: str) -> None:
    rules = settings(scenario(name))
    assert rules.regime == name
    work = scenario(name).workload
    assert (rules.prompts, rules.group_size, rules.updates) == (
        work.prompts,
        work.group_size,
        work.updates.mini_batches * work.updates.epochs,
    )


def test_partial_rollout_decides_what_a_sync_does() -> None:
    assert settings(scenario("async", "async.partial_rollout=true")).on_sync == "interrupt"
    assert settings(scenario("async", "async.partial_rollout=false")).on_sync == "drain"
    assert settings(scenario("async", "async.on_sync=in-flight")).on_sync == "in-flight"


def test_asynchrony_needs_two_pools() -> None:
    with pytest.raises(UserError):
        settings(scenario("colocated-sync", "schedule=async"))


def test_a_policys_own_parameters_are_its_frameworks() -> None:
    # Four engines' worth of GPUs at tp 1: 32; verl runs 16 groups an engine.
    verl = settings(scenario("async", "async={policy: verl}"))
    assert (verl.theta, verl.sync_every, verl.require_batches, verl.max_concurrent) == (0.1, 4, 1, 16 * 32)
    assert (verl.rounds, verl.round_prompts, verl.round_mini_batches, verl.on_sync) == (4, 256, 1, "interrupt")
    assert "async policy verl: theta 0.1, sync_every 4, require_batches 1, max_concurrent 512, on_sync interrupt" in (
        verl.notes
    )
    trl = settings(scenario("async", "async={policy: trl, max_staleness: null, partial_rollout: null}"))
    assert (trl.max_staleness, trl.on_sync, trl.max_concurrent) == (4, "in-flight", None)
    assert settings(scenario("async", "async={policy: nemo-rl, partial_rollout: null}")).on_sync == "drain"
    assert settings(scenario("async", "async={policy: nemo-rl, partial_rollout: true}")).on_sync == "in-flight"
    assert settings(scenario("async", "async={policy: openrlhf}")).queue == 1
    assert settings(scenario("async", "async={policy: slime}")).max_concurrent == 512 * 32


def test_what_a_policy_does_not_use_is_said() -> None:
    rules = scenario("async", "async={policy: nemo-rl, theta: 0.5, queue: 3}")
    assert [note for note in settings(rules).notes if "no effect" in note] == [
        "async.theta has no effect: policy nemo-rl does not use it",
        "async.queue has no effect: policy nemo-rl does not use it",
    ]
    assert "async.theta (policy nemo-rl does not use it)" in inert_blocks(rules)
    assert settings(scenario("async", "async={policy: areal, max_staleness: 1}")).notes == ()


def test_the_warm_up_of_a_bound_out_of_reach_is_cut_and_said() -> None:
    rules = settings(scenario("async", "async.max_staleness=1e6"))
    assert rules.warmup == 32
    assert any("1000000 versions old" in note for note in rules.notes)


@pytest.mark.parametrize(
    ("override", "key"),
    [
        ("async={policy: verl, require_batches: 3}", "async.require_batches"),
        ("async={policy: trl, max_staleness: 0.5}", "async.max_staleness"),
    ],
)
def test_parameters_that_a_policy_cannot_have(override: str, key: str) -> None:
    with pytest.raises(UserError) as caught:
        scenario("async", override)
    assert caught.value.key is not None
    assert caught.value.key.endswith(key)


@pytest.mark.parametrize("policy", ["nemo-rl", "trl"])
def test_dynamic_sampling_where_the_framework_has_none(policy: str) -> None:
    with pytest.raises(UserError, match="has none"):
        scenario("async", f"async={{policy: {policy}}}", "workload.dynamic_sampling={}", "workload.pass_rate=0.5")
