"""Asynchronous rollout: admission, what a sync does to running samples, and limits worked out on paper."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from prices_by_hand import Hand, Reward, Sync, Training, fixed, regime, surface, uniform

from rlsim.result import Labels, Result, simulate
from rlsim.sim.asynchronous import Asynchronous
from rlsim.sim.loop import Loop
from rlsim.sim.settings import Settings

LABELS = Labels("by-hand", "async", 0)
HAND = Hand(training=Training(update_seconds=3.0, logprob_seconds=2.0), sync=Sync(seconds=0.5, transfer_seconds=0.375))
MODES = ("drain", "abort", "interrupt", "in-flight")


def run(settings: Settings, hand: Hand = HAND, draw=None, steps: int = 6) -> Result:  # type: ignore[no-untyped-def]
    return simulate(settings, hand.costs(), draw or fixed(100, settings.prompts, settings.group_size), LABELS, steps)


def mean(result: Result) -> float:
    return float(result.summary()["step_time_s"]["mean"])


@pytest.mark.parametrize("mode", MODES)
def test_without_staleness_it_is_the_synchronous_regime(mode: str) -> None:
    draw = uniform(1, 400, 4, 2)
    hand = replace(HAND, reward=Reward(0.25, workers=2))
    sync = run(regime(), hand, draw)
    eta0 = run(regime("async", max_staleness=0, on_sync=mode), hand, draw)
    # The first measured step of async is the second of its run: compare where both train the same batch.
    assert eta0.steps["step_time"][:5].tolist() == pytest.approx(sync.steps["step_time"][1:].tolist())
    assert eta0.summary()["staleness"]["max"] == 0


@pytest.mark.parametrize("mode", ["interrupt", "in-flight"])
def test_a_fast_rollout_leaves_the_trainer_and_the_sync(mode: str) -> None:
    result = run(regime("async", max_staleness=4, on_sync=mode))
    assert mean(result) == pytest.approx(2.0 + 3.0 + 0.5)
    assert result.summary()["staleness"]["max"] == 4
    assert result.summary()["samples"]["dropped"] == {}


def test_a_slow_rollout_is_paced_by_its_token_rate() -> None:
    # Two engines of 8 slots at 10 ms an iteration make 1,600 tokens/s when full; a batch has 4 * 4 * 200 tokens.
    hand = Hand(engine=surface(0.01, slots=8), training=Training(update_seconds=0.5), sync=Sync())
    settings = regime("async", group_size=4, max_staleness=8, on_sync="in-flight")
    result = run(settings, hand, uniform(100, 300, 4, 4), steps=40)
    tokens = result.steps["tokens"].mean() - 16 * 16
    assert mean(result) == pytest.approx(tokens / 1600, rel=0.05)
    assert result.summary()["utilization"]["rollout"] == pytest.approx(1.0, abs=0.02)


def test_overlap_hides_the_transfer_from_the_engines() -> None:
    blocking = run(regime("async", max_staleness=2, on_sync="in-flight"), draw=fixed(800, 4, 2))
    overlapped = run(regime("async", max_staleness=2, on_sync="in-flight", overlap=True), draw=fixed(800, 4, 2))
    assert blocking.summary()["weight_sync"]["lost_generation_seconds"] == pytest.approx(0.5)
    assert overlapped.summary()["weight_sync"]["lost_generation_seconds"] == pytest.approx(0.125)


def test_drain_finishes_what_runs_before_the_sync() -> None:
    result = run(regime("async", max_staleness=2, on_sync="drain"), draw=uniform(100, 2000, 4, 2))
    table = result.samples
    for row in result.spans[
        (result.spans["name"] == "weight_sync") & (result.spans["track"] == "rollout")
    ].itertuples():
        assert not ((table["start"] < row.start) & (table["end"] > row.start)).any()


def test_abort_throws_work_away_and_starts_again() -> None:
    result = run(regime("async", max_staleness=2, on_sync="abort"), draw=uniform(100, 2000, 4, 2))
    summary = result.summary()
    assert summary["samples"]["aborted"] > 0
    assert summary["tokens"]["wasted"] > 0
    table = result.samples
    for row in result.spans[
        (result.spans["name"] == "weight_sync") & (result.spans["track"] == "rollout")
    ].itertuples():
        assert not ((table["start"] < row.start) & (table["end"] > row.start)).any()


def test_interrupt_recomputes_contexts_and_in_flight_does_not() -> None:
    draw = uniform(100, 2000, 4, 2)
    assert run(regime("async", max_staleness=2, on_sync="interrupt"), draw=draw).summary()["tokens"]["reprefilled"] > 0
    assert run(regime("async", max_staleness=2, on_sync="in-flight"), draw=draw).summary()["tokens"]["reprefilled"] == 0


def test_the_oldest_complete_groups_are_trained_first() -> None:
    result = run(regime("async", max_staleness=2, on_sync="in-flight"))  # fixed lengths: nothing is overtaken
    trained = result.samples[result.samples["fate"] == "trained"].sort_values("step", kind="stable")
    assert (np.diff(trained["group"]) >= 0).all()


def test_a_group_that_others_overtook_is_trained_late_or_dropped() -> None:
    # One group takes as long as 20 steps.
    def sample(rng: np.random.Generator, prompts: int, group: int) -> np.ndarray:
        return np.full((prompts, group), 50)

    from prices_by_hand import lengths

    first = lengths(sample, 4, 2)

    def draw(rng: np.random.Generator, step: int):  # type: ignore[no-untyped-def]
        batch = first(rng, step)
        if step == 0:
            batch.response_tokens[0, 0] = 3000
        return batch

    hand = replace(HAND, training=Training(update_seconds=1.0), sync=Sync(seconds=0.25))
    rules = regime("async", max_staleness=1, on_sync="in-flight")
    trained, dropped = (
        run(replace(rules, overtaken=what), hand, draw, steps=40).summary() for what in ("train", "drop")
    )
    assert dropped["samples"]["dropped"] == {"stale": 2}
    assert dropped["tokens"]["wasted"] == 3050
    assert dropped["samples"]["trained"] == trained["samples"]["trained"] == 40 * 8
    # 3,000 tokens at 10 ms are 30 s, with the syncs' standstills 37.5 s at most; a step takes 1.25 s, or 1.75 s where
    # it waits for the fourth group of 50 tokens: begun under version 0, trained on under the 17th to the 30th.
    assert trained["samples"]["dropped"] == {}
    assert 17 <= trained["staleness"]["max"] <= 30
    assert trained["spans"]["max"] in (trained["staleness"]["max"] + 1, trained["staleness"]["max"])
    assert dropped["staleness"]["max"] <= 1


def test_sync_every_few_steps() -> None:
    result = run(regime("async", max_staleness=1, sync_every=3, on_sync="in-flight"), steps=9)
    syncs = result.steps["weight_sync"].tolist()
    assert sum(s > 0 for s in syncs) == 3
    assert result.summary()["staleness"]["max"] <= 1


def test_waiting_for_nothing_is_a_defect() -> None:
    loop = Loop(regime("async"), HAND.costs(), fixed(10, 4, 2), 0)
    stream = Asynchronous(loop)
    stream._open = False
    loop.clock.process(stream.engines())
    main = loop.clock.process(stream.trainer(1))
    with pytest.raises(RuntimeError, match="none are in flight"):
        loop.clock.run(until=main)
