"""Engines out of service, samples that move together, and log-probs that begin beside the tail."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from engine_cases import random_surface
from hypothesis import given, settings
from hypothesis import strategies as st
from prices_by_hand import Hand, Sync, Training, lengths, regime, surface, uniform
from reference_engine import ReferenceFleet, Sample

from rlsim.result import Labels, Result, simulate
from rlsim.sim.fleet import Fleet
from rlsim.sim.passing import PassRate
from rlsim.sim.remedies import Remedies
from rlsim.sim.request import Request

LABELS = Labels("by-hand", "v", 0)


def test_samples_go_only_where_service_is() -> None:
    fleet = Fleet([(surface(), 3)])
    requests = [Request(i, i, 16, 100) for i in range(6)]  # two on each engine
    fleet.submit(requests, 0.0)
    fleet.play(0.5, False)
    gone = fleet.take_down([1, 2], 0.5)
    # 50 iterations of 10 ms, each with a token, the prefill's too.
    assert [(r.id, r.done) for r in gone] == [(1, 50), (4, 50), (2, 50), (5, 50)]
    assert (fleet.in_flight, fleet.in_service) == (2, {0})
    fleet.submit(gone, 0.5)
    assert fleet.engines[0].load == 6
    fleet.bring_up([2], 0.6)
    fleet.submit([Request(6, 6, 16, 10)], 0.6)
    assert [engine.load for engine in fleet.engines] == [6, 0, 1]
    assert [c.request.id for c in fleet.drain(0.6)] == [6, 0, 1, 2, 3, 4, 5]


def test_samples_wait_while_every_engine_is_down() -> None:
    fleet = Fleet([(surface(), 2)])
    assert fleet.take_down([0, 1], 0.0) == []
    fleet.submit([Request(0, 0, 16, 10)], 1.0)
    assert fleet.play(5.0, True) == []
    fleet.bring_up([1], 5.0)
    assert fleet.in_flight == 1
    assert fleet.drain(5.0)[0].time == pytest.approx(5.1)


@settings(max_examples=25, deadline=None)
@given(st.integers(0, 10**6), st.integers(2, 4), st.integers(1, 3), st.floats(0.05, 0.9))
def test_migration_agrees_with_the_reference(seed: int, engines: int, keep: int, at: float) -> None:
    """The moved samples queue where the reference puts them, with their tokens and without their KV."""
    keep = min(keep, engines - 1)
    rng = np.random.default_rng(seed)
    kind = random_surface(rng, 1, slots=int(rng.integers(2, 9)), capacity=640, budget=64, block=16)
    prompts = rng.integers(1, 40, 2 * engines).tolist()
    shape = [(i, i // 2, prompts[i // 2], int(rng.integers(1, 200))) for i in range(3 * engines)]
    whole = Fleet([(kind, engines)])
    whole.submit([Request(*s) for s in shape], 0.0)
    moment = at * whole.drain(0.0)[-1].time

    ours = Fleet([(kind, engines)])
    ours.submit([Request(*s) for s in shape], 0.0)
    done = ours.play(moment, False)
    ours.submit(ours.migrate(moment, keep), moment)
    done += ours.drain(moment)

    theirs = ReferenceFleet([(kind, engines)])
    theirs.submit([Sample(*s, common=s[2]) for s in shape])
    theirs.play(moment)
    load = [sum(len(r.running) + len(r.queue) for r in e.ranks) for e in theirs.engines]
    kept = sorted(sorted(range(engines), key=lambda n: (-load[n], n))[:keep])
    moved = []
    for number in set(range(engines)) - set(kept):
        rank = theirs.engines[number].ranks[0]
        moved += theirs.abort({s.id for s in rank.running + rank.queue})
    theirs.engines, every = [theirs.engines[number] for number in kept], theirs.engines
    theirs.submit(moved)
    theirs.play(np.inf)
    theirs.engines = every
    assert [c.request.id for c in done] == [s.id for _, s in sorted(theirs.done, key=lambda d: d[0])]
    assert [c.time for c in done] == pytest.approx(sorted(t for t, _ in theirs.done), rel=1e-9)
    assert ours.stats.generated_tokens == theirs.counts("generated") == sum(s[3] for s in shape)
    assert ours.stats.reprefilled_tokens == theirs.counts("reprefilled")


# One sample of 1,000 tokens among fifteen of 100, on four engines of four: from 1 s on it is alone (below 1/4 of 16).
TAIL = lengths(lambda rng, p, g: np.array([[1000, 100]] + [[100, 100]] * 7), 8, 2)
HAND = Hand(
    engines=4,
    training=Training(update_seconds=3.0, logprob_seconds=2.0),
    sync=Sync(0.5),
    onload=1.0,
)


def run(remedies: Remedies, hand: Hand = HAND, draw=TAIL, colocated: bool = True, steps: int = 1) -> Result:  # type: ignore[no-untyped-def]
    rules = regime(colocated=colocated, prompts=8, group_size=2, remedies=remedies)
    return simulate(rules, hand.costs(), draw, LABELS, steps)


def test_freed_engines_do_log_probs_beside_the_tail() -> None:
    # Alone from 1 s to 10 s: three of four engines are free; after the onload (1 s) 8 s are left, 3/4 of the trainer
    # does 6 s of log-probs in them, but the pass over what is ready takes 2 s: nothing of it is left.
    plain = run(Remedies())
    early = run(Remedies(consolidate=0.25, early_logprob=True))
    assert plain.summary()["phases_s"]["logprob"] == 2.0
    assert early.summary()["phases_s"]["logprob"] == 0.0
    assert early.summary()["early_logprob_s"] == 2.0
    assert early.summary()["phases_s"]["rollout"] == pytest.approx(10.0)  # the long one was on an engine that is kept
    assert sum(early.summary()["phases_s"].values()) == pytest.approx(early.summary()["step_time_s"]["mean"])


def test_copies_of_the_model_have_to_fit_on_the_freed_gpus() -> None:
    # Log-probs of 20 s on all 8 trainer GPUs; 6 are free for 8 s. Copies of 4 GPUs: one fits, half of the trainer.
    for copy, done in ((1, 6.0), (2, 6.0), (4, 4.0), (8, 0.0)):
        hand = replace(HAND, training=Training(logprob_seconds=20.0), copy_gpus=copy)
        result = run(Remedies(consolidate=0.25, early_logprob=True), hand)
        assert result.summary()["phases_s"]["logprob"] == pytest.approx(20.0 - done)


def test_no_early_log_probs_on_gpus_of_another_role() -> None:
    result = run(Remedies(consolidate=0.25, early_logprob=True), colocated=False)
    assert result.summary()["phases_s"]["logprob"] == 2.0


def test_moved_samples_keep_their_tokens_and_are_prefilled_again() -> None:
    # Eight of 16 go on after 1 s, 3, 2 and 3 on three engines. Two are kept; two samples of 16 + 100 tokens move.
    draw = lengths(lambda rng, p, g: np.array([[300, 100]] * 8), 8, 2)
    result = run(Remedies(consolidate=0.6), replace(HAND, engines=3), draw)
    summary = result.summary()
    assert summary["tokens"]["generated"] == 8 * 400
    assert summary["tokens"]["wasted"] == 0
    assert summary["tokens"]["reprefilled"] == 2 * 116
    assert summary["samples"]["trained"] == 16


@settings(max_examples=25, deadline=None)
@given(
    st.sampled_from([0.1, 0.25, 0.6]),
    st.sampled_from([1.0, 1.5]),
    st.sampled_from([None, "batch", "replace"]),
    st.integers(1, 5),
    st.sampled_from(["sync", "one-step-off"]),
    st.floats(0, 0.001),
)
def test_accounts_balance(
    below: float, ratio: float, refill: str | None, engines: int, schedule: str, c: float
) -> None:
    hand = replace(HAND, engine=surface(0.01, c, 8, 20_000), engines=engines)
    remedies = Remedies(ratio, "discard", refill, None, 99, below, True)
    rules = regime(schedule, schedule == "sync", 6, 2, remedies=remedies, pass_rate=PassRate(0.5) if refill else None)
    result = simulate(rules, hand.costs(), uniform(1, 300, 6, 2), LABELS, 3)
    summary, steps = result.summary(), result.steps
    assert sum(summary["phases_s"].values()) == pytest.approx(summary["step_time_s"]["mean"], rel=1e-9)
    assert sum(summary["rollout_pool_s"].values()) == pytest.approx(summary["step_time_s"]["mean"], rel=1e-9)
    assert all(0 <= u <= 1 + 1e-9 for u in summary["utilization"].values())
    assert (result.samples.query("fate == 'trained'").groupby("step").size() == 12).all()
    if schedule == "sync":
        trained = result.samples.query("fate == 'trained'")["response_tokens"].sum()
        assert summary["tokens"]["generated"] == trained + summary["tokens"]["wasted"]
    assert (steps["logprob"] >= 0).all()
