"""The regime as the scenario file says it."""

from __future__ import annotations

from pathlib import Path

import pytest

from rlsim.errors import UserError
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
