"""What holds under every remedy of the batch regimes, for random lengths, durations and rules."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest
from engine_cases import random_surface
from hypothesis import given, settings
from hypothesis import strategies as st
from prices_by_hand import Hand, Reward, Sync, Training, fixed, regime, surface, uniform
from reference_engine import ReferenceFleet, Sample
from test_regimes_turns import apart, several
from test_regimes_turns import rules as turns_rules

from rlsim.errors import UserError
from rlsim.result import Labels, Result, simulate
from rlsim.sim.fleet import Fleet
from rlsim.sim.ledger import ABORTED, ENVIRONMENT, FATES, IN_FLIGHT
from rlsim.sim.passing import PassRate
from rlsim.sim.remedies import Remedies
from rlsim.sim.request import Request
from rlsim.sim.rules import RolloutRules
from rlsim.sim.settings import Settings

LABELS = Labels("property", "v", 5)
PHASES = ["rollout", "reward", "logprob", "reference", "train", "weight_sync", "offload", "onload", "wait_rollout"]
PHASES += ["wait_trainer", "other"]


@st.composite
def hands(draw: st.DrawFn) -> Hand:
    return Hand(
        engine=surface(
            draw(st.sampled_from([0.01, 0.0137])), draw(st.floats(0, 0.001)), draw(st.sampled_from([2, 8, 64])), 20_000
        ),
        engines=draw(st.integers(1, 3)),
        training=Training(draw(st.sampled_from([0.1, 2.7])), 0.3),
        sync=Sync(0.25),
        offload=0.5,
        onload=0.125,
        reward=Reward(draw(st.sampled_from([0.0, 0.2, 1.5])), draw(st.sampled_from([None, 1, 7]))),
    )


@st.composite
def regimes(draw: st.DrawFn) -> Settings:
    schedule = draw(st.sampled_from(["sync", "one-step-off"]))
    return regime(
        schedule,
        colocated=schedule == "sync" and draw(st.booleans()),
        prompts=draw(st.integers(1, 6)),
        group_size=draw(st.integers(1, 4)),
        mini_batches=draw(st.integers(1, 2)),
        pass_rate=PassRate(draw(st.sampled_from([0.4, 0.7])), draw(st.sampled_from([None, 3.0]))),
        remedies=draw(remedies()),
    )


@st.composite
def remedies(draw: st.DrawFn) -> Remedies:
    return Remedies(
        ratio=draw(st.sampled_from([1.0, 1.01, 1.5, 2.7])),
        unfinished=draw(st.sampled_from(["discard", "keep", "tail-batch"])),
        refill=draw(st.sampled_from([None, "batch", "replace", "double", "fetch"])),
        fetch=draw(st.sampled_from([None, 1, 5])),
        max_batches=10_000,
        consolidate=draw(st.sampled_from([None, None, 0.3])),
        early_logprob=True,
    )


def run(rules: Settings, hand: Hand, steps: int = 4) -> Result:
    if rules.group_size == 1:
        rules = replace(rules, remedies=replace(rules.remedies, refill=None))
    return simulate(rules, hand.costs(), uniform(1, 300, rules.prompts, rules.group_size), LABELS, steps)


@settings(max_examples=50, deadline=None)
@given(regimes(), hands())
def test_accounts_balance(rules: Settings, hand: Hand) -> None:
    result = run(rules, hand)
    steps, samples, summary = result.steps, result.samples, result.summary()
    pool = [c for c in steps.columns if c.startswith("pool_")]
    for columns in (PHASES, pool):
        assert steps[columns].sum(axis=1).to_numpy() == pytest.approx(steps["step_time"].to_numpy(), rel=1e-9)
    assert (steps[PHASES + pool] >= 0).all(axis=None)
    assert all(0 <= u <= 1 + 1e-9 for u in summary["utilization"].values())
    # Every step trains whole groups, as many as it needs; every sample has one fate.
    trained = samples[samples["fate"] == "trained"]
    assert (trained.groupby("step").size() == rules.batch).all()
    assert (trained.groupby("group").size() == rules.group_size).all()
    if rules.remedies.refill and rules.group_size > 1:
        assert trained["informative"].all()
    assert (trained["start"] <= trained["end"]).all()
    assert (trained["end"] <= trained["scored"]).all()
    assert (trained["staleness"] >= 0).all()
    if rules.remedies.unfinished != "keep":
        assert trained["staleness"].max() <= (rules.schedule == "one-step-off")
    json.dumps(summary, allow_nan=False)


@settings(max_examples=50, deadline=None)
@given(regimes().filter(lambda r: r.schedule == "sync"), hands())
def test_every_token_is_trained_wasted_or_carried(rules: Settings, hand: Hand) -> None:
    """At the end of a synchronous step nothing runs: generated = trained + thrown away + kept for later."""
    (run_,) = run(rules, hand).runs
    ledger, history = run_.ledger, run_.history
    generated = sum(s.counts.generated for s in history)
    trained = sum(s.tokens for s in history) - ledger["prompt"][ledger["fate"] == FATES.index("trained")].sum()
    wasted = sum(s.wasted for s in history)
    if rules.remedies.unfinished == "keep":
        waiting = ledger["fate"] == IN_FLIGHT
        ended = ledger["response"][waiting & ~np.isnan(ledger["end"])].sum()
        assert trained + wasted + ended <= generated
        assert generated <= trained + wasted + ledger["response"][waiting].sum()
    else:
        assert generated == trained + wasted
    if rules.remedies.ratio == 1 and rules.remedies.refill != "fetch":
        assert not (ledger["fate"] == ABORTED).any()


@settings(max_examples=30, deadline=None)
@given(regimes(), turns_rules, hands(), st.sampled_from([0.0, 0.3]), st.booleans())
def test_samples_of_several_turns(rules: Settings, turns: RolloutRules, hand: Hand, lost: float, split: bool) -> None:
    """The same with environments between turns, on engines that do all or on prefill and decode engines."""
    if rules.group_size == 1:
        rules = replace(rules, remedies=replace(rules.remedies, refill=None))
    costs = apart(hand) if split else hand.costs()
    draw = several(rules.prompts, rules.group_size, lost)
    (run_,) = simulate(replace(rules, rollout=turns), costs, draw, LABELS, 3).runs
    for step in run_.history:
        assert sum(step.phases.values()) == pytest.approx(step.seconds, rel=1e-9)
        assert sum(step.pool.values()) == pytest.approx(step.seconds, rel=1e-9)
    if rules.schedule == "sync":
        ledger = run_.ledger
        generated = sum(s.counts.generated for s in run_.history)
        used = ledger["generated"][ledger["fate"] == FATES.index("trained")].sum() + sum(s.wasted for s in run_.history)
        waiting = np.isin(ledger["fate"], (IN_FLIGHT, ENVIRONMENT)) & (ledger["step"] < 0)
        if rules.remedies.unfinished == "keep":
            ended = ledger["generated"][waiting & ~np.isnan(ledger["end"])].sum()
            assert used + ended <= generated <= used + ledger["generated"][waiting].sum()
        else:
            assert generated == used


@settings(max_examples=25, deadline=None)
@given(regimes(), hands())
def test_same_seed_same_bytes_and_spans_apart(rules: Settings, hand: Hand) -> None:
    first, second = (run(rules, hand) for _ in range(2))
    assert json.dumps(first.summary()) == json.dumps(second.summary())
    assert first.samples.equals(second.samples)
    for _, rows in first.spans.groupby("group", observed=True):
        rows = rows.sort_values(["start", "end"])
        assert (rows["end"].to_numpy()[:-1] <= rows["start"].to_numpy()[1:]).all()


@settings(max_examples=20, deadline=None)
@given(regimes(), hands(), st.sampled_from([0.25, 1024.0]))
def test_durations_times_a_power_of_two_scale_the_run_exactly(rules: Settings, hand: Hand, c: float) -> None:
    base, scaled = run(rules, hand), run(rules, hand.scaled(c))
    assert (base.steps["step_time"] * c).equals(scaled.steps["step_time"])
    assert base.samples["fate"].equals(scaled.samples["fate"])


@settings(max_examples=20, deadline=None)
@given(hands(), st.integers(1, 6), st.integers(1, 3), st.sampled_from([1.3, 2.0]))
def test_stopping_early_is_never_later_than_running_out(hand: Hand, prompts: int, size: int, ratio: float) -> None:
    """The same groups start; up to the stop both rollouts are the same."""
    stop = Remedies(ratio=ratio)
    started = stop.started(prompts)
    early = run(regime(prompts=prompts, group_size=size, remedies=stop), hand, steps=1)
    draw = uniform(1, 300, prompts, size)
    both = -(-started // prompts)  # whole batches that hold the groups started
    late = simulate(regime(prompts=started, group_size=size), hand.costs(), _first(draw, started, both), LABELS, 1)
    seconds = [float(r.steps["rollout"].iloc[0] + r.steps["reward"].iloc[0]) for r in (early, late)]
    assert seconds[0] <= seconds[1] * (1 + 1e-12)


def _first(draw, groups: int, batches: int):  # type: ignore[no-untyped-def]
    """The first groups of the stream of batches, as one batch."""

    def together(rng: np.random.Generator, step: int):  # type: ignore[no-untyped-def]
        parts = [draw(np.random.default_rng([LABELS.seed, k, 0]), k) for k in range(batches)]
        first = parts[0]
        first.prompt_tokens = np.concatenate([p.prompt_tokens for p in parts])[:groups]
        first.response_tokens = np.concatenate([p.response_tokens for p in parts])[:groups]
        return first

    return together


@settings(max_examples=15, deadline=None)
@given(st.integers(2, 8), st.integers(0, 3))
def test_more_groups_end_sooner_where_engines_do_not_feel_them(prompts: int, seed: int) -> None:
    """With iterations of constant length and slots for all, the n-th of more groups is never later."""
    hand = Hand(engine=surface(0.01, 0.0, slots=512))
    times = []
    for ratio in (1.0, 1.5, 2.5):
        rules = regime(prompts=prompts, group_size=2, remedies=Remedies(ratio=ratio, max_batches=99))
        result = simulate(rules, hand.costs(), uniform(1, 900, prompts, 2), Labels("property", "v", seed), 1)
        times.append(float(result.steps["rollout"].iloc[0]))
    assert times == pytest.approx(sorted(times, reverse=True), rel=1e-12)


@settings(max_examples=25, deadline=None)
@given(st.integers(0, 10**6), st.integers(1, 3), st.integers(1, 2), st.floats(0.05, 0.9))
def test_partial_rollout_agrees_with_the_reference(seed: int, engines: int, ranks: int, at: float) -> None:
    """Everything is stopped at a moment and handed in again later, in the order of the groups, with its tokens."""
    rng = np.random.default_rng(seed)
    kind = random_surface(rng, ranks, slots=int(rng.integers(2, 9)), capacity=640, budget=64, block=16)
    prompts = rng.integers(1, 40, 3 * engines).tolist()
    shape = [(i, i // 2, prompts[i // 2], int(rng.integers(1, 200))) for i in range(6 * engines)]
    ours, theirs = Fleet([(kind, engines)]), ReferenceFleet([(kind, engines)])
    ours.submit([Request(*s) for s in shape], 0.0)
    theirs.submit([Sample(*s, common=s[2]) for s in shape])
    moment = at * 200 * 0.02

    done = ours.play(moment, False)
    stopped = sorted(ours.abort(None, moment), key=lambda r: r.id)
    tokens = [(r.id, r.done) for r in stopped]
    ours.play(moment + 1.0, False)
    ours.submit(stopped, moment + 1.0)
    done += ours.drain(moment + 1.0)

    theirs.play(moment)
    held = sorted(theirs.abort({s[0] for s in shape}), key=lambda s: s.id)
    assert tokens == [(s.id, s.done) for s in held]
    theirs.play(moment + 1.0)
    theirs.submit(held)
    theirs.play(np.inf)
    assert sorted((c.time, c.request.id) for c in done) == [
        (pytest.approx(time, rel=1e-9), s.id) for time, s in sorted(theirs.done, key=lambda d: (d[0], d[1].id))
    ]
    assert ours.stats.generated_tokens == sum(s[3] for s in shape)
    assert ours.stats.reprefilled_tokens == theirs.counts("reprefilled")


@pytest.mark.parametrize("rate", [PassRate(0.5), PassRate(0.9), PassRate(0.4, 2.0)])
def test_groups_drawn_per_group_kept(rate: PassRate) -> None:
    # One for one: a kept group takes 1/(1 - z) draws, geometric; here 40 steps of 64 groups of 8.
    rules = regime(prompts=64, group_size=8, pass_rate=rate, remedies=Remedies(refill="replace"))
    hand = Hand(engine=surface(slots=1024))
    result = simulate(rules, hand.costs(), fixed(2, 64, 8), LABELS, 40)
    samples = result.summary()["samples"]
    z = rate.zero_variance(8)
    assert samples["dropped"].get("zero_variance", 0) / (40 * 64 * 8) == pytest.approx(z / (1 - z), rel=0.1, abs=0.005)
    tokens = result.summary()["tokens"]
    assert tokens["wasted"] == 2 * samples["dropped"].get("zero_variance", 0)


def test_too_few_informative_groups_is_the_users_mistake() -> None:
    rules = regime(prompts=4, group_size=2, pass_rate=PassRate(0.999), remedies=Remedies(refill="batch", max_batches=3))
    with pytest.raises(UserError, match=r"3 batches of 4 groups gave 0 of 4 .* workload\.pass_rate"):
        simulate(rules, Hand().costs(), fixed(10, 4, 2), LABELS, 1)
