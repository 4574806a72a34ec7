"""Explanations of small scenarios: complete, consistent, and every figure a simulation's."""

from __future__ import annotations

from pathlib import Path

import pytest

import rlsim
from rlsim import api
from rlsim.counterfactual.explain import Explanation, explain
from rlsim.counterfactual.knobs import turned
from rlsim.counterfactual.removals import BY_NAME, present, together
from rlsim.views import explain as view
from rlsim.views import html
from tests.counterfactual.test_alter import DENSE, MOE, scenario


@pytest.fixture(scope="module", params=[DENSE, MOE], ids=["colocated", "async"])
def answer(request: pytest.FixtureRequest) -> Explanation:
    return explain(scenario(request.param))


def test_it_is_public() -> None:
    assert rlsim.explain is explain


def test_every_cost_is_a_simulation(answer: Explanation) -> None:
    assert {c.removal.name for c in answer.costs} == {r.name for r in present(answer.scenario)}
    for cost in answer.costs[:3]:
        again = api.simulate(answer.scenario, steps=answer.summary["steps"], change=BY_NAME[cost.removal.name].change)
        assert cost.seconds == again.summary()["step_time_s"]["mean"]


def test_costs_are_in_order_and_the_floor_is_below_all(answer: Explanation) -> None:
    seconds = [cost.seconds for cost in answer.costs]
    assert seconds == sorted(seconds)
    assert answer.floor_seconds <= min(s for _, s in answer.cascade)
    names = tuple(r.name for r in present(answer.scenario))
    floor = api.simulate(answer.scenario, steps=answer.summary["steps"], change=together(names)).summary()
    assert answer.floor_seconds == floor["step_time_s"]["mean"]


def test_the_cascade_begins_with_the_largest_cost_alone(answer: Explanation) -> None:
    assert answer.cascade[0] == (answer.costs[0].removal.name, answer.costs[0].seconds)
    name, seconds = answer.cascade[1]
    both = together((answer.cascade[0][0], name))
    again = api.simulate(answer.scenario, steps=answer.summary["steps"], change=both).summary()
    assert seconds == again["step_time_s"]["mean"]


def test_every_knob_is_a_simulation_or_refused_with_a_reason(answer: Explanation) -> None:
    tried = [one for cost in answer.costs for one in cost.knobs] + list(answer.others)
    assert len(tried) >= 8
    for one in tried:
        if one.seconds is None:
            assert one.refusal
    played = [one for one in tried if one.seconds is not None]
    for one in played[:4]:
        again = api.simulate(turned(answer.scenario, one.knob.keys), steps=answer.summary["steps"]).summary()
        assert one.seconds == again["step_time_s"]["mean"]


def test_sentences_tell_seconds_shares_and_the_joint_effect(answer: Explanation) -> None:
    text = html.plain(view.report(answer))
    flat = " ".join(text.split())
    for cost in view.large(answer):
        assert f"{cost.removal.noun[1:]} costs" in flat
    assert "The effects do not add up" in flat
    assert "With every cost removed" in flat
    joint = answer.seconds - answer.floor_seconds
    assert answer.as_dict()["together_s"] == pytest.approx(joint)
    assert sum(c["worth_s"] for c in answer.as_dict()["costs"]) == pytest.approx(answer.as_dict()["sum_of_parts_s"])


def test_a_page_holds_the_sentences_and_the_charts(answer: Explanation, tmp_path: Path) -> None:
    page = tmp_path / "page.html"
    view.write_html(answer, page)
    text = page.read_text()
    assert text.count('<div class="figure">') == 2
    assert "The effects do not add up" in text
