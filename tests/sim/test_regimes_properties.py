"""What holds in every regime, for random durations, lengths and rules."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from prices_by_hand import Controller, Hand, Reward, Sync, Training, regime, surface, uniform

from rlsim.result import Labels, Result, simulate
from rlsim.sim.ledger import TRAINED
from rlsim.sim.passing import PassRate
from rlsim.sim.policies import POLICIES
from rlsim.sim.prices import Lent
from rlsim.sim.remedies import NO_REMEDIES, Remedies
from rlsim.sim.settings import Settings

LABELS = Labels("property", "v", 3)
SYNCS_LESS = ("areal", "verl", "slime", "trl")
seconds = st.floats(0.0, 4.0).map(lambda x: round(x, 3))


@st.composite
def hands(draw: st.DrawFn) -> Hand:
    transfer = draw(seconds)
    return Hand(
        engine=surface(
            draw(st.floats(0.001, 0.02)), draw(st.floats(0, 0.001)), draw(st.sampled_from([2, 8, 64])), 20_000
        ),
        engines=draw(st.integers(1, 3)),
        training=Training(0.1 + draw(seconds), draw(seconds), draw(seconds)),
        sync=Sync(transfer + draw(seconds), transfer),
        offload=draw(seconds),
        onload=draw(seconds),
        controller=Controller(draw(seconds) / 16, draw(seconds)),
        reward=Reward(draw(seconds), draw(st.sampled_from([None, 1, 7]))),
        lent=draw(st.sampled_from([None, Lent(surface(0.01, 0.0, 4, 20_000), 2, 4, 0.125, 0.25)])),
    )


@st.composite
def regimes(draw: st.DrawFn) -> Settings:
    schedule = draw(st.sampled_from(["sync", "one-step-off", "async"]))
    policy = draw(st.sampled_from(["areal", *POLICIES])) if schedule == "async" else "areal"
    staleness = draw(st.sampled_from([0.0, 0.5, 1.0, 3.0]))
    dynamic = schedule == "async" and draw(st.booleans())
    return regime(
        schedule,
        policy=policy,
        theta=staleness,
        elastic=draw(st.sampled_from([None, 0.4, 1.0])) if schedule == "async" else None,
        overtaken=draw(st.sampled_from(["train", "drop"])),
        colocated=schedule == "sync" and draw(st.booleans()),
        prompts=draw(st.integers(1, 6)),
        group_size=2 if dynamic else draw(st.integers(1, 4)),
        mini_batches=1 if policy == "verl" else draw(st.integers(1, 3)),
        epochs=draw(st.integers(1, 2)),
        logprob=draw(st.sampled_from(["recompute", "rollout", "decoupled"])),
        reference=draw(st.booleans()),
        max_staleness=max(1.0, staleness) if policy == "trl" else staleness,
        max_concurrent=draw(st.sampled_from([None, 1, 4])),
        sync_every=draw(st.sampled_from([1, 1, 2])) if schedule == "async" and policy in SYNCS_LESS else 1,
        pass_rate=PassRate(0.5) if schedule == "async" else None,
        remedies=Remedies(refill="replace") if dynamic else NO_REMEDIES,
        on_sync=draw(st.sampled_from(["drain", "abort", "interrupt", "in-flight"])),
        overlap=draw(st.booleans()),
    )


def promised(rules: Settings) -> float:
    """Staleness that no sample exceeds, whoever overtakes it."""
    drops = {"areal": rules.overtaken == "drop", "verl": False, "slime": False}
    if not drops.get(rules.policy, True):
        return np.inf
    return 1 if rules.policy == "openrlhf" else float(np.ceil(rules.max_staleness))


def run(rules: Settings, hand: Hand, low: int = 1, high: int = 300, steps: int = 4) -> Result:
    return simulate(rules, hand.costs(), uniform(low, high, rules.prompts, rules.group_size), LABELS, steps)


@settings(max_examples=60, deadline=None)
@given(regimes(), hands())
def test_accounts_balance(rules: Settings, hand: Hand) -> None:
    result = run(rules, hand)
    steps, samples, summary = result.steps, result.samples, result.summary()
    # Every instant has one label, on the trainer's clock and on the rollout pool's.
    phases = ["rollout", "reward", "logprob", "reference", "train", "weight_sync", "offload", "onload", "wait_rollout"]
    phases += ["wait_trainer", "other"]
    pool = [c for c in steps.columns if c.startswith("pool_")]
    assert steps[phases].sum(axis=1).to_numpy() == pytest.approx(steps["step_time"].to_numpy(), rel=1e-9)
    assert steps[pool].sum(axis=1).to_numpy() == pytest.approx(steps["step_time"].to_numpy(), rel=1e-9)
    assert sum(summary["phases_s"].values()) == pytest.approx(summary["step_time_s"]["mean"], rel=1e-9)
    assert sum(summary["rollout_pool_s"].values()) == pytest.approx(summary["step_time_s"]["mean"], rel=1e-9)
    assert (steps[phases + pool] >= 0).all(axis=None)
    assert all(0 <= u <= 1 + 1e-9 for u in summary["utilization"].values())
    # Every admitted sample is accounted for once.
    fates = samples["fate"].value_counts()
    assert fates.sum() == len(samples)
    assert (samples.loc[samples["fate"] == "trained", "end"] <= steps["end"].iloc[-1]).all()
    assert summary["samples"]["trained"] == 4 * rules.batch
    assert summary["samples"]["in_flight"] == fates["in_flight"]
    trained = samples[samples["fate"] == "trained"]
    assert (trained.groupby("step").size() == rules.batch).all()
    assert (trained["staleness"] >= 0).all()
    assert (trained["start"] <= trained["end"]).all()
    assert (trained["end"] <= trained["scored"]).all()
    limit = {"sync": 0, "one-step-off": 1, "async": promised(rules)}[rules.schedule]
    assert trained["staleness"].max() <= limit
    assert sum(summary["provenance"].values()) == pytest.approx(1.0)
    json.dumps(summary, allow_nan=False)


@settings(max_examples=40, deadline=None)
@given(regimes(), hands())
def test_every_generated_token_is_accounted_for(rules: Settings, hand: Hand) -> None:
    (run_,) = run(rules, hand).runs
    ledger, end = run_.ledger, run_.history[-1].end
    generated = sum(s.counts.generated for s in run_.history)
    finished = ledger["response"][ledger["end"] <= end].sum()
    aborted = sum(s.wasted for s in run_.history) - ledger["response"][ledger["fate"] > TRAINED].sum()
    in_flight = ledger["response"][~(ledger["end"] <= end)].sum()
    assert finished + aborted <= generated <= finished + aborted + in_flight
    trained = ledger["fate"] == TRAINED
    assert sum(s.tokens for s in run_.history) == (ledger["prompt"] + ledger["response"])[trained].sum()
    if rules.schedule == "sync":
        assert trained.all()


@settings(max_examples=40, deadline=None)
@given(regimes(), hands())
def test_spans_of_one_group_never_overlap(rules: Settings, hand: Hand) -> None:
    spans = run(rules, hand).spans
    for _, rows in spans.groupby("group", observed=True):
        rows = rows.sort_values(["start", "end"])
        assert (rows["end"].to_numpy()[:-1] <= rows["start"].to_numpy()[1:]).all()


@settings(max_examples=25, deadline=None)
@given(regimes(), hands())
def test_same_seed_same_bytes(rules: Settings, hand: Hand) -> None:
    first, second = (run(rules, hand) for _ in range(2))
    assert json.dumps(first.summary()) == json.dumps(second.summary())
    assert first.samples.equals(second.samples)
    assert first.spans.equals(second.spans)


@settings(max_examples=25, deadline=None)
@given(regimes(), hands(), st.sampled_from([0.25, 2.0, 1024.0]))
def test_durations_times_a_power_of_two_scale_the_run_exactly(rules: Settings, hand: Hand, c: float) -> None:
    base, scaled = run(rules, hand), run(rules, hand.scaled(c))
    assert (base.steps["step_time"] * c).equals(scaled.steps["step_time"])
    assert (base.samples["end"] * c).equals(scaled.samples["end"])
    assert base.samples["staleness"].equals(scaled.samples["staleness"])


@settings(max_examples=25, deadline=None)
@given(regimes().filter(lambda r: r.schedule == "sync"), hands(), st.floats(0.1, 1.0), st.integers(0, 6))
def test_a_faster_resource_never_slows_a_synchronous_run(rules: Settings, hand: Hand, c: float, which: int) -> None:
    quick = hand.scaled(c)
    faster = [
        replace(hand, engine=quick.engine),
        replace(hand, training=quick.training),
        replace(hand, sync=quick.sync),
        replace(hand, offload=quick.offload),
        replace(hand, onload=quick.onload),
        replace(hand, controller=quick.controller),
        replace(hand, reward=quick.reward),
    ][which]
    before, after = (run(rules, h).summary()["step_time_s"]["mean"] for h in (hand, faster))
    assert after <= before * (1 + 1e-9)


@settings(max_examples=25, deadline=None)
@given(hands(), st.integers(1, 6))
def test_one_step_off_is_bounded_by_its_two_sides(hand: Hand, prompts: int) -> None:
    """From one sync to the next: max(rollout of the next batch, training of this one) + sync."""
    rules = regime("one-step-off", prompts=prompts)
    hand = replace(hand, reward=Reward(0.0))
    result = run(rules, hand)
    for row in result.steps.itertuples():
        mine = result.samples[result.samples["step"] == row.step]
        before = result.samples[result.samples["step"] == row.step - 1] if row.step else None
        rollout = mine["end"].max() - mine["start"].min()
        trainer = row.logprob + row.reference + row.train + row.other
        assert row.step_time >= trainer + hand.sync.seconds - 1e-9
        if before is not None and len(before):
            # From the start of this batch's rollout (the previous sync) to the end of this step.
            assert row.end - mine["start"].min() == pytest.approx(max(rollout, trainer) + hand.sync.seconds + trainer)
