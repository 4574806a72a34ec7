"""Nothing is lost silently: what holds in every regime under every kind of fault, checkpoint and evaluation."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import Phase, given, reject, settings
from hypothesis import strategies as st
from prices_by_hand import Checkpoint, Hand, uniform
from test_regimes_properties import hands, regimes

from rlsim.errors import UserError
from rlsim.result import Labels, Result, simulate
from rlsim.sim.evaluation import Evaluation
from rlsim.sim.faults import ENGINE_CRASH, NIC, SLOW_NODE, TRAINER_CRASH, Fault
from rlsim.sim.ledger import CRASH, TRAINED
from rlsim.sim.settings import Settings

STEPS = 4
QUICK = [Phase.generate]  # a failing case is long to shrink


@st.composite
def fault(draw: st.DrawFn, engines: int, colocated: bool) -> Fault:
    kind = draw(st.sampled_from([ENGINE_CRASH, TRAINER_CRASH, SLOW_NODE, NIC]))
    places = engines if kind in (ENGINE_CRASH, SLOW_NODE) else 2
    hit: tuple[tuple[int, ...], ...] = ()
    if kind in (ENGINE_CRASH, SLOW_NODE):
        hit = tuple((n,) for n in range(engines))
    elif kind == TRAINER_CRASH and colocated:
        hit = (tuple(range(engines)),) * places
    at = draw(st.one_of(st.none(), st.integers(0, 100).map(lambda x: x / 4)))
    side = draw(st.sampled_from(["trainer", "rollout", "both"]))
    mtbf = draw(st.sampled_from([100.0, 400.0])) if at is None else None
    duration = draw(st.sampled_from([0.5, 3.0, 20.0]))
    return Fault(kind, side, at, mtbf, places, draw(st.integers(0, places - 1)), duration, 2.0, hit)


@st.composite
def cases(draw: st.DrawFn) -> tuple[Settings, Hand]:
    rules, hand = draw(regimes()), draw(hands())
    faults = draw(st.lists(fault(hand.engines, rules.colocated), min_size=1, max_size=3))
    evaluation = draw(st.sampled_from([None, Evaluation(2, 5, 2), Evaluation(1, 3, 5, beside=True)]))
    rules = replace(
        rules,
        checkpoint_every=draw(st.sampled_from([None, 1, 3])),
        save_pauses_rollout=draw(st.booleans()),
        evaluation=evaluation,
    )
    saved = Checkpoint(draw(st.sampled_from([0.25, 2.0])), draw(st.sampled_from([0.0, 8.0])))
    return rules, replace(hand, faults=tuple(faults), checkpoint=saved)


def run(case: tuple[Settings, Hand]) -> Result:
    rules, hand = case
    draw = uniform(1, 300, rules.prompts, rules.group_size)
    try:
        return simulate(rules, hand.costs(), draw, Labels("property", "v", 3), STEPS)
    except UserError:  # crashes so often that no step is ever done
        reject()


@settings(max_examples=50, deadline=None, phases=QUICK)
@given(cases())
def test_accounts_balance_through_every_fault(case: tuple[Settings, Hand]) -> None:
    result = run(case)
    summary, steps, samples = result.summary(), result.steps, result.samples
    mean = summary["step_time_s"]["mean"]
    assert sum(summary["phases_s"].values()) == pytest.approx(mean, rel=1e-9)
    assert sum(summary["rollout_pool_s"].values()) == pytest.approx(mean, rel=1e-9)
    assert sum(summary["other_s"].values()) == pytest.approx(summary["phases_s"]["other"], rel=1e-9, abs=1e-9)
    assert 0 <= summary["goodput"] <= 1
    assert all(0 <= u <= 1 + 1e-9 for u in summary["utilization"].values())
    # Steps that count lie end to end, each with a whole batch.
    assert steps["start"].to_numpy()[1:] == pytest.approx(steps["end"].to_numpy()[:-1])
    trained = samples[samples["fate"] == "trained"]
    assert (trained.groupby("step").size() == case[0].batch).all()
    assert summary["samples"]["trained"] == STEPS * case[0].batch
    assert (trained["start"] <= trained["end"]).all()
    assert (trained["staleness"] >= 0).all()
    assert samples["fate"].value_counts().sum() == len(samples)
    json.dumps(summary, allow_nan=False)


@settings(max_examples=40, deadline=None, phases=QUICK)
@given(cases())
def test_every_token_is_accounted_for_through_every_fault(case: tuple[Settings, Hand]) -> None:
    (run_,) = run(case).runs
    ledger, end = run_.ledger, run_.history[-1].end
    generated = sum(s.counts.generated for s in run_.history)
    whole = ledger["response"][ledger["fate"] > TRAINED].sum()  # given up after their end
    again = sum(s.wasted for s in run_.history) - whole  # tries that did not end
    finished = ledger["response"][ledger["end"] <= end].sum()
    in_flight = ledger["response"][~(ledger["end"] <= end)].sum()
    assert finished + again <= generated <= finished + again + in_flight
    lost = ledger["fate"] == CRASH
    assert sum(s.dropped.get("crash", 0) for s in run_.history) == lost.sum()
    assert sum(s.samples for s in run_.history) == (ledger["fate"] == TRAINED).sum()


@settings(max_examples=40, deadline=None, phases=QUICK)
@given(cases())
def test_spans_do_not_overlap_through_every_fault(case: tuple[Settings, Hand]) -> None:
    for _, rows in run(case).spans.groupby("group", observed=True):
        rows = rows.sort_values(["start", "end"])
        assert (rows["end"].to_numpy()[:-1] <= rows["start"].to_numpy()[1:] + 1e-9).all()


@settings(max_examples=15, deadline=None, phases=QUICK)
@given(cases())
def test_the_same_seed_has_the_same_faults(case: tuple[Settings, Hand]) -> None:
    first, second = run(case), run(case)
    assert json.dumps(first.summary()) == json.dumps(second.summary())
    assert first.spans.equals(second.spans)


@settings(max_examples=20, deadline=None, phases=QUICK)
@given(cases(), st.sampled_from([0.25, 1024.0]))
def test_faults_scale_with_all_other_durations(case: tuple[Settings, Hand], c: float) -> None:
    base, scaled = run(case), run((case[0], case[1].scaled(c)))
    assert (base.steps["step_time"] * c).equals(scaled.steps["step_time"])
    assert np.array_equal(base.samples["end"].to_numpy() * c, scaled.samples["end"].to_numpy(), equal_nan=True)
