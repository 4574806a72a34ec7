"""Samples with several turns in every regime: nothing is lost, counted twice, or late."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from prices_by_hand import Hand
from test_regimes_properties import LABELS, hands, regimes

from rlsim.result import Result, simulate
from rlsim.sim.journeys import KvTransfer
from rlsim.sim.ledger import ENVIRONMENT, TRAINED
from rlsim.sim.prices import Costs
from rlsim.sim.rules import RolloutRules
from rlsim.sim.settings import Settings
from rlsim.turns import TurnPlans
from rlsim.workload import Batch


def several(prompts: int, group: int, lost: float, c: float = 1.0) -> Any:
    """Batches of samples with one to four turns; `lost`: share that the environment loses."""

    def draw(rng: np.random.Generator, step: int) -> Batch:
        n = prompts * group
        counts = rng.integers(1, 5, n)
        first = np.concatenate([[0], np.cumsum(counts)])
        last = np.zeros(first[-1], np.bool_)
        last[first[1:] - 1] = True
        observed = np.where(last, 0, rng.integers(0, 60, len(last)))
        failed = rng.random(n) < lost  # the answer to their last turn is waited for, and does not come
        waits = np.where(last & ~np.repeat(failed, counts), 0.0, rng.choice([0.0, 0.5, 2.0, 7.0], len(last))) * c
        plan = TurnPlans(first, rng.integers(1, 80, len(last)), observed, waits, failed)
        return Batch(np.full(prompts, 16), plan.response_tokens.reshape(prompts, group), plan=plan)

    return draw


rules = st.builds(
    RolloutRules,
    routing=st.sampled_from(["least-loaded", "round-robin", "group-sticky", "length-aware"]),
    environment_workers=st.sampled_from([None, 1, 3]),
    keep_contexts=st.booleans(),
    flush_cache=st.booleans(),
    turns=st.just(True),
)


def run(settings: Settings, costs: Costs, lost: float = 0.0, c: float = 1.0) -> Result:
    return simulate(settings, costs, several(settings.prompts, settings.group_size, lost, c), LABELS, 3)


def apart(hand: Hand) -> Costs:
    """The hand's engines twice, once to prefill and once to decode."""
    costs = hand.costs()
    return replace(
        costs,
        engines=costs.engines * 2,
        engine_roles=("prefill", "decode"),
        kv_transfer=KvTransfer(1.0, 2000.0, 0.01),
        lent=None,  # lent engines prefill and decode: scenarios refuse both together
    )


@settings(max_examples=40, deadline=None)
@given(regimes(), rules, hands(), st.sampled_from([0.0, 0.3]), st.booleans())
def test_accounts_balance(regime: Settings, rules: RolloutRules, hand: Hand, lost: float, split: bool) -> None:
    costs = apart(hand) if split else hand.costs()
    (played,) = run(replace(regime, rollout=rules), costs, lost).runs
    ledger, end = played.ledger, played.history[-1].end
    for step in played.history:
        assert sum(step.phases.values()) == pytest.approx(step.seconds, rel=1e-9)
        assert sum(step.pool.values()) == pytest.approx(step.seconds, rel=1e-9)
    trained, gone = ledger["fate"] == TRAINED, ledger["fate"] == ENVIRONMENT
    assert sum(s.samples for s in played.history) == trained.sum()
    tokens = (ledger["prompt"] + ledger["response"])[trained].sum()
    assert sum(s.tokens for s in played.history) == tokens
    assert sum(s.dropped.get("environment", 0) for s in played.history) == (gone & (ledger["step"] >= 0)).sum()
    # what was generated is of samples that ended, of tries thrown away, or still under way
    generated = sum(s.counts.generated for s in played.history)
    ended = ledger["end"] <= end
    dropped = ledger["generated"][(ledger["fate"] > TRAINED) & ~(gone & (ledger["step"] < 0))].sum()
    thrown = sum(s.wasted for s in played.history) - dropped
    finished, under_way = ledger["generated"][ended].sum(), ledger["generated"][~ended].sum()
    assert finished + thrown <= generated <= finished + thrown + under_way


@settings(max_examples=20, deadline=None)
@given(regimes(), rules, hands(), st.sampled_from([0.5, 4.0]))
def test_multiplied_durations_multiply_the_run(regime: Settings, rules: RolloutRules, hand: Hand, c: float) -> None:
    regime = replace(regime, rollout=rules)
    once, more = run(regime, hand.costs()), run(regime, hand.scaled(c).costs(), c=c)
    assert more.steps["step_time"].to_numpy() == pytest.approx(c * once.steps["step_time"].to_numpy(), rel=1e-9)
