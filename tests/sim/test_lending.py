"""Trainer GPUs lent to rollout: when it is done, what it gains, and that nothing is lost on the way."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from prices_by_hand import Hand, Sync, Training, fixed, regime, surface, uniform

from rlsim.result import Labels, Result, simulate
from rlsim.sim.prices import Gpus, Lent

LABELS = Labels("by-hand", "elastic", 0)
LENT = Lent(surface(0.01, slots=4), 2, 4, to_rollout=0.5, to_trainer=0.25)
# Two engines of 4 slots on 8 GPUs, and two more on the trainer's 8.
HAND = Hand(
    surface(0.01, slots=4),
    training=Training(update_seconds=1.0),
    sync=Sync(seconds=0.5),
    gpus=Gpus(8, 8, 16),
    lent=LENT,
)


def run(hand: Hand = HAND, below: float | None = 1.0, steps: int = 20, **more: object) -> Result:
    rules = regime("async", prompts=8, max_staleness=1, on_sync="in-flight", elastic=below, **more)
    return simulate(rules, hand.costs(), uniform(100, 700, 8, 2), LABELS, steps)


def mean(result: Result) -> float:
    return float(result.summary()["step_time_s"]["mean"])


def test_it_pays_where_the_trainer_waits_long() -> None:
    # 16 samples of 400 tokens on 8 slots take 8 s, and the trainer 1.5 s. Twice the engines nearly halve the 6.5 s that
    # it waits: a step is no shorter than (8 + 1.5)/2, and no longer than that and both switches.
    without, lent = run(below=None), run()
    assert mean(without) == pytest.approx(8.5, rel=0.05)
    assert 4.75 < mean(lent) < 4.75 + 0.75 + 0.75
    summary = lent.summary()
    assert summary["lending"]["times"] == 1
    assert 2 < summary["lending"]["seconds"] < 4
    assert without.summary()["lending"] == {"times": 0, "seconds": 0, "switch_seconds": 0.75}
    assert summary["phases_s"]["offload"] == pytest.approx(0.5)
    assert summary["phases_s"]["onload"] == pytest.approx(0.25)


def test_it_is_left_where_the_switch_costs_more_than_it_gains() -> None:
    # 8 groups of about 1 s each, half of which the lent engines would take: 4 s are gained, 11 paid.
    dear = run(replace(HAND, lent=replace(LENT, to_rollout=10.0, to_trainer=1.0)))
    assert dear.summary()["lending"]["times"] == 0
    assert mean(dear) == mean(run(below=None))


def test_a_trainer_that_never_waits_lends_nothing() -> None:
    busy = run(replace(HAND, training=Training(update_seconds=20.0)))
    assert busy.summary()["lending"]["times"] == 0


def test_a_lower_threshold_lends_for_a_shorter_time() -> None:
    seconds = [run(below=below).summary()["lending"]["seconds"] for below in (0.6, 1.0)]
    assert 0 < seconds[0] < seconds[1]


@pytest.mark.parametrize("policy", ["areal", "verl", "nemo-rl", "slime", "roll"])
def test_samples_move_back_with_their_tokens(policy: str) -> None:
    result = run(policy=policy, max_concurrent=12 if policy == "slime" else None, theta=1.0)
    summary = result.summary()
    assert summary["lending"]["times"] > 0
    assert summary["tokens"]["reprefilled"] > 0  # contexts that moved
    (played,) = result.runs
    ledger = played.ledger
    done = ledger["response"][ledger["end"] <= played.history[-1].end].sum()
    generated = sum(step.counts.generated for step in played.history)
    assert done <= generated <= done + ledger["response"][~(ledger["end"] <= played.history[-1].end)].sum()
    assert 0 < summary["utilization"]["all"] <= 1
    assert summary["utilization"]["rollout"] <= 1 + 1e-9


def test_the_timeline_shows_the_trainer_generate() -> None:
    spans = run(steps=4).spans
    lent = spans[(spans["track"] == "trainer") & (spans["name"] == "generate")]
    assert len(lent) >= 4
    rows = spans[spans["group"] == "trainer"].sort_values(["start", "end"])
    assert (rows["end"].to_numpy()[:-1] <= rows["start"].to_numpy()[1:]).all()


def test_lent_engines_do_nothing_between_lendings() -> None:
    # Fixed lengths and a long training: what runs is the rollout's own.
    result = run(replace(HAND, training=Training(update_seconds=6.0)), below=0.5)
    counts = [step.counts.lent for step in result.runs[0].history]
    lent = [step.lent for step in result.runs[0].history]
    assert all(busy <= seconds * 2 * 4 + 1e-9 for busy, seconds in zip(counts, lent, strict=True))
    assert np.all(np.array(counts) >= 0)


def test_equal_groups_still_come_in_order() -> None:
    rules = regime("async", prompts=8, max_staleness=1, on_sync="in-flight", elastic=1.0)
    result = simulate(rules, HAND.costs(), fixed(400, 8, 2), LABELS, 6)
    trained = result.samples[result.samples["fate"] == "trained"]
    assert (trained.groupby("step").size() == 16).all()
