"""The answer of a plan, as API and as command."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

import rlsim
from rlsim.cli import app
from rlsim.errors import UserError
from rlsim.plan.answer import Plan, why
from rlsim.plan.goal import Goal, counts, duration
from rlsim.plan.search.search import Limits
from tests.plan.small import ONLY, TEXT, small

ONE = Limits(processes=1, simulations=4)


@pytest.fixture(scope="module")
def curve() -> Plan:
    return rlsim.plan(small(), Goal(gpus=(4, 8)), only={**ONLY, "trainer.gpus": [2]}, limits=ONE)


def test_front_is_of_what_nothing_beats(curve: Plan) -> None:
    assert curve.pareto
    for choice in curve.choices:
        beaten = [c for c in curve.choices if c.dominates(choice)]
        assert (choice in curve.pareto) == (not beaten)


def test_best_is_of_the_front_and_the_other_placement_is_another(curve: Plan) -> None:
    best, other = curve.best, curve.best_other_placement
    assert best in curve.pareto
    assert best is not None
    assert other is not None
    assert best.placement != other.placement
    assert best.seconds == min(c.seconds for c in curve.choices)


def test_phases_explain_the_difference(curve: Plan) -> None:
    best, other = curve.best, curve.best_other_placement
    assert best is not None
    assert other is not None
    explained = sum(seconds for _, seconds in why(best, other))
    assert explained == pytest.approx(other.seconds - best.seconds, abs=0.005 * best.seconds * 11)


def test_best_scenario_runs_as_it_was_simulated(curve: Plan) -> None:
    best = curve.best
    assert best is not None
    again = rlsim.simulate(best.scenario, steps=2).summary()
    assert again["step_time_s"]["mean"] == best.seconds
    assert again["cost"]["usd_per_step"] == best.usd


def test_knee_is_on_the_curve(curve: Plan) -> None:
    assert [c.gpus for c in curve.curve] == [4, 8]
    assert curve.knee in (4, 8)


def test_deadline_takes_the_cheapest_in_time(curve: Plan) -> None:
    slowest = max(c.seconds for c in curve.choices)
    easy = Plan(curve.name, Goal(steps=10, within=11 * slowest), curve.choices, curve.count, {}, 2, 0.0)
    assert easy.met
    assert easy.best is not None
    assert easy.best.usd == min(c.usd for c in curve.choices)
    hopeless = Plan(curve.name, Goal(steps=10, within=1.0), curve.choices, curve.count, {}, 2, 0.0)
    assert not hopeless.met


def test_price_takes_the_fastest_that_is_cheap_enough(curve: Plan) -> None:
    limit = sorted(c.usd for c in curve.choices)[1]
    plan = Plan(curve.name, Goal(usd_per_step=limit), curve.choices, curve.count, {}, 2, 0.0)
    assert plan.best is not None
    assert plan.best.seconds == min(c.seconds for c in curve.choices if c.usd <= limit)


def test_durations_and_counts() -> None:
    assert duration("3d") == 259_200
    assert duration("90 min") == 5400
    assert counts("128,64") == (64, 128)
    for bad in ("3 weeks", "d", "1.2.3h"):
        with pytest.raises(UserError):
            duration(bad)
    with pytest.raises(UserError):
        counts("64,many")


@pytest.mark.parametrize(
    ("goal", "only", "says"),
    [
        (Goal(within=60.0), {}, "how many steps"),
        (Goal(gpus=(12,)), {}, "whole nodes"),
        (Goal(), {"cluster.nic": [1]}, "not chosen by a plan"),
        (Goal(), {"rollout.attn_tp": [7]}, "no layout divides"),
    ],
)
def test_wrong_questions(goal: Goal, only: dict[str, list[object]], says: str) -> None:
    with pytest.raises(UserError, match=says):
        rlsim.plan(small(), goal, only=only, limits=ONE)


def test_command(tmp_path: Path) -> None:
    file, best = tmp_path / "small.yaml", tmp_path / "best.yaml"
    file.write_text(TEXT)
    limits = [
        f"--only={key}={','.join('null' if v is None else str(v).lower() for v in values)}"
        for key, values in ONLY.items()
    ]
    command = ["plan", str(file), *limits, "--simulations", "2", "--processes", "1", "--out", str(best)]
    shown = CliRunner().invoke(app, command)
    assert shown.exit_code == 0, shown.output
    assert "What would change this" in shown.output
    answer = json.loads(CliRunner().invoke(app, [*command, "--json"]).stdout)
    keys = {"candidates", "infeasible", "pruned", "simulated", "seconds", "best", "best_other_placement", "pareto"}
    assert keys <= answer.keys()
    sums = sum(answer[key] for key in ("infeasible", "pruned", "simulated", "undecided"))
    assert sums == answer["candidates"]
    written = rlsim.load_scenario(best).variants[0]
    seconds = rlsim.simulate(written, steps=2).summary()["step_time_s"]["mean"]
    assert seconds == answer["best"]["summary"]["step_time_s"]["mean"]
