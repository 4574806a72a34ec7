"""The prediction interval composes the parts as the regime does."""

from __future__ import annotations

import pytest

from rlsim.interval import needed, prediction_interval
from rlsim.sim.recorder import PHASES, POOL

EXACT = dict.fromkeys([*PHASES, *POOL], (1.0, 1.0))


def account(names: tuple[str, ...], **seconds: float) -> dict[str, float]:
    return {name: seconds.get(name, 0.0) for name in names}


def test_no_uncertainty_no_width() -> None:
    phases = account(PHASES, rollout=60.0, train=30.0, weight_sync=10.0)
    low, high = prediction_interval(phases, account(POOL, generate=60.0), "colocated-sync", EXACT)
    assert (low, high) == pytest.approx((100.0, 100.0))


def test_one_part_alone_gives_its_own_range() -> None:
    phases = account(PHASES, rollout=100.0)
    low, high = prediction_interval(phases, account(POOL), "disaggregated-sync", EXACT | {"rollout": (0.8, 1.3)})
    assert low == pytest.approx(80.0, rel=0.02)
    assert high == pytest.approx(130.0, rel=0.02)


def test_independent_parts_average_out() -> None:
    spreads = EXACT | {"rollout": (0.8, 1.25), "train": (0.8, 1.25)}
    phases = account(PHASES, rollout=50.0, train=50.0)
    low, high = prediction_interval(phases, account(POOL), "colocated-sync", spreads)
    assert 80 < low < 100 < high < 125


@pytest.mark.parametrize("regime", ["one-step-off", "async"])
def test_slack_hides_the_shorter_path(regime: str) -> None:
    # The rollout needs 40 of the trainer's 80 s: even 25% more of it changes nothing.
    phases = account(PHASES, train=80.0, weight_sync=10.0)
    pool = account(POOL, generate=40.0, weight_sync=10.0, wait_trainer=40.0)
    low, high = prediction_interval(phases, pool, regime, EXACT | {"rollout": (0.8, 1.25)})
    assert (low, high) == pytest.approx((90.0, 90.0))


def test_a_phase_without_a_range_is_not_exact() -> None:
    low, high = prediction_interval(account(PHASES, train=100.0), account(POOL), "colocated-sync", {})
    assert low < 90 < 110 < high


def test_same_answer_every_time() -> None:
    phases = account(PHASES, rollout=60.0, train=30.0)
    assert prediction_interval(phases, account(POOL), "colocated-sync", {}) == prediction_interval(
        phases, account(POOL), "colocated-sync", {}
    )


def test_samples_that_wait_are_the_slack_of_a_pool_that_never_rests() -> None:
    phases = account(PHASES, train=90.0, weight_sync=10.0)
    pool = account(POOL, generate=90.0, weight_sync=10.0)
    # A quarter of the samples' age was generation: the rollout could take four times as long.
    assert needed(phases, pool, 0.25) == pytest.approx(
        account(POOL, generate=22.5, weight_sync=10.0, wait_trainer=67.5)
    )
    # No slack where the trainer waits.
    waiting = account(PHASES, train=80.0, weight_sync=10.0, wait_rollout=10.0)
    assert needed(waiting, pool, 0.25) == pytest.approx(pool)


def test_a_busy_but_unneeded_pool_does_not_widen_the_interval() -> None:
    phases = account(PHASES, train=90.0, weight_sync=10.0)
    pool = needed(phases, account(POOL, generate=90.0, weight_sync=10.0), 0.25)
    low, high = prediction_interval(phases, pool, "async", EXACT | {"rollout": (0.8, 1.25)})
    assert (low, high) == pytest.approx((100.0, 100.0))
