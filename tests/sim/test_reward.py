"""Only what of the reward is exposed counts: streamed against scored together, by hand."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from prices_by_hand import Hand, Reward, Sync, Training, fixed, lengths, regime

from rlsim.result import Labels, Result, simulate
from rlsim.sim.settings import Settings

LABELS = Labels("by-hand", "v", 0)
REGIMES = [regime(), regime("one-step-off"), regime("async", max_staleness=1.0)]


def run(rules: Settings, reward: Reward, draw=None, steps: int = 2) -> Result:  # type: ignore[no-untyped-def]
    hand = Hand(training=Training(update_seconds=3.0), sync=Sync(seconds=0.5), reward=reward)
    return simulate(rules, hand.costs(), draw or last_is_long, LABELS, steps)


# Of 8 samples at 10 ms a token, seven end after 1 s and one after 2 s.
last_is_long = lengths(lambda rng, p, g: np.array([[100, 100]] * (p - 1) + [[100, 200]]), 4, 2)


@pytest.mark.parametrize(
    ("workers", "streaming", "exposed"),
    [
        # 1 s each. Two workers from 1 s on: done at 2, 2, 3, 3, 4, 4, 5, 5 s, that is 3 s after the rollout.
        (2, True, 3.0),
        # Together from 2 s on: four rounds.
        (2, False, 4.0),
        # Workers for all: only the last sample's second is exposed, either way.
        (8, True, 1.0),
        (8, False, 1.0),
        (None, False, 1.0),
    ],
)
def test_exposed_reward(workers: int | None, streaming: bool, exposed: float) -> None:
    phases = run(regime(), Reward(1.0, workers, streaming)).summary()["phases_s"]
    assert phases["rollout"] == pytest.approx(2.0)
    assert phases["reward"] == pytest.approx(exposed)


def test_in_one_step_off_the_exposed_reward_is_wait_for_the_rollout() -> None:
    """A rollout of 2 s begins at each sync; its batch, scored together by two workers, is there 2 + 4 = 6 s after it.
    The next sync comes w + 3 + 0.5 s after this one, so w' = max(0, 2.5 - w): 0 and 2.5 in turn, 1.25 on average.
    """
    phases = run(regime("one-step-off"), Reward(1.0, 2, streaming=False)).summary()["phases_s"]
    assert {k: v for k, v in phases.items() if v} == pytest.approx(
        {"weight_sync": 0.5, "wait_rollout": 1.25, "train": 3.0}
    )


def test_in_the_stream_a_group_is_scored_together() -> None:
    """Groups of two, one of them 1 s longer: streamed, its first score is there when its second sample ends."""
    draw = lengths(lambda rng, p, g: np.array([[100, 200]] * p), 4, 2)
    both = {how: run(regime("async", max_staleness=1.0), Reward(1.0, None, how), draw) for how in (True, False)}
    for how, result in both.items():
        done = result.samples[result.samples["step"] >= 0]
        ends, scored = (np.asarray(done[name]).reshape(-1, 2) for name in ("end", "scored"))
        expected = ends + 1.0 if how else np.repeat(ends.max(axis=1, keepdims=True) + 1.0, 2, axis=1)
        np.testing.assert_allclose(scored, expected)


@given(
    rules=st.sampled_from(REGIMES),
    workers=st.one_of(st.none(), st.integers(1, 6)),
    streaming=st.booleans(),
    seconds=st.floats(0.01, 2.0),
    c=st.sampled_from([0.5, 3.0]),
)
@settings(max_examples=20, deadline=None)
def test_accounts_and_scaling(rules: Settings, workers: int | None, streaming: bool, seconds: float, c: float) -> None:
    hand = Hand(
        training=Training(update_seconds=0.7), sync=Sync(seconds=0.25), reward=Reward(seconds, workers, streaming)
    )
    draw = lengths(lambda rng, p, g: rng.integers(1, 60, (p, g)), 4, 2)
    one, other = (simulate(rules, h.costs(), draw, LABELS, 3).summary() for h in (hand, hand.scaled(c)))
    step = one["step_time_s"]["mean"]
    assert sum(one["phases_s"].values()) == pytest.approx(step)
    assert sum(one["rollout_pool_s"].values()) == pytest.approx(step)
    assert other["step_time_s"]["mean"] == pytest.approx(c * step, rel=1e-9)
    assert one["samples"]["trained"] == 24


@given(workers=st.integers(1, 8), seconds=st.floats(0.01, 2.0), seed=st.integers(0, 5))
@settings(max_examples=20, deadline=None)
def test_streaming_never_takes_longer(workers: int, seconds: float, seed: int) -> None:
    tokens = np.random.default_rng(seed).integers(1, 200, (4, 2))
    draw = lengths(lambda rng, p, g: tokens, 4, 2)
    streamed, together = (
        run(regime(), Reward(seconds, workers, how), draw, 1).summary()["step_time_s"]["mean"] for how in (True, False)
    )
    assert streamed <= together * (1 + 1e-12)


def test_seconds_of_a_batch_win_over_drawn_ones() -> None:
    """A trace brings its own: 4 s for every sample."""

    def draw(rng, step):  # type: ignore[no-untyped-def]
        batch = fixed(100, 4, 2)(rng, step)
        batch.reward_seconds = np.full((4, 2), 4.0)
        return batch

    assert run(regime(), Reward(1.0), draw).summary()["phases_s"]["reward"] == pytest.approx(4.0)
