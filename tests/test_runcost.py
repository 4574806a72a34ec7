"""Cost of a whole training: sums on paper, and the closed form against a simulation with crashes."""

from __future__ import annotations

import pytest

import rlsim
from rlsim import api
from rlsim.errors import UserError
from rlsim.runcost import run_cost
from rlsim.views import html
from rlsim.views import runcost as view
from tests.counterfactual.test_alter import DENSE, scenario

CRASHES = "faults=[{kind: trainer-crash, mtbf: 400 s, duration: 20 s}]"


def test_without_checkpoints_and_failures_it_is_steps_times_a_step() -> None:
    one = scenario(DENSE, "costs.gpu_hour=2 $/h")
    step = api.simulate(one).summary()["step_time_s"]["mean"]
    cost = rlsim.cost(one, steps=1000)
    assert cost.wall_s == pytest.approx(1000 * step)
    assert cost.gpu_hours == pytest.approx(8 * 1000 * step / 3600)
    assert cost.usd == pytest.approx(2 * cost.gpu_hours)
    assert cost.as_dict()["usd_per_1000_steps"] == pytest.approx(cost.usd)
    assert [p.source for p in cost.prices] == ["costs.gpu_hour"]


def test_checkpoints_hold_the_trainer_up_as_often_as_they_fit() -> None:
    one = scenario(DENSE, "run.checkpoint_every=10")
    save = api.simulate(one).summary()["checkpoint"]["blocking_seconds"]
    cost = run_cost(one, steps=95)
    assert cost.checkpoint_s == pytest.approx(9 * save)
    assert cost.wall_s == pytest.approx(95 * cost.step_s + 9 * save)


def test_energy_lies_between_idle_and_the_power_limit() -> None:
    cost = run_cost(scenario(), steps=100)
    limit = 8 * 0.7 * cost.wall_s / 3600  # eight H100 of 700 W
    assert 0.2 * limit < cost.kwh < limit
    summary = api.simulate(scenario()).summary()
    busy = summary["utilization"]["all"]
    assert summary["cost"]["kwh_per_step"] * 100 == pytest.approx((0.2 + 0.8 * busy) * limit)


def test_the_closed_form_is_what_a_run_with_crashes_tends_to() -> None:
    one = scenario(DENSE, CRASHES, "run.checkpoint_every=8", "workload.prompts=16", "workload.group_size=2")
    played = api.simulate(one, steps=1500).summary()
    cost = run_cost(one, steps=1500)
    simulated = played["step_time_s"]["mean"] * 1500
    assert cost.crashes > 20
    assert cost.wall_s == pytest.approx(simulated, rel=0.06)
    assert cost.goodput == pytest.approx(played["goodput"], abs=0.05)


def test_a_failure_rate_of_ones_own_and_the_best_interval() -> None:
    cost = run_cost(scenario(), steps=2000, mtbf=1800.0)
    assert cost.chosen
    assert cost.checkpoint_every == cost.best_every
    assert cost.mtbf_s == 1800.0  # one node
    for every in (max(1, cost.checkpoint_every or 1) // 3 or 1, 3 * (cost.checkpoint_every or 1)):
        assert run_cost(scenario(), steps=2000, mtbf=1800.0, checkpoint_every=every).wall_s >= cost.wall_s


def test_what_is_never_done_is_refused() -> None:
    with pytest.raises(UserError, match="practically never done"):
        run_cost(scenario(), steps=20000, mtbf=60.0, checkpoint_every=19999)


def test_the_table_names_its_prices() -> None:
    text = html.plain(view.report([run_cost(scenario(), steps=1000, mtbf=1e7)]))
    assert "RunPod" in text
    assert "crashes expected" in text
