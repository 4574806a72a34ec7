"""Reward workers, tail, versions: the small pieces that the regimes are made of."""

from __future__ import annotations

import numpy as np
import pytest

from rlsim.sim.clock import Clock
from rlsim.sim.reward import RewardPool
from rlsim.sim.settings import Settings
from rlsim.sim.tail import tail_seconds
from rlsim.sim.versions import Versions


def test_scores_without_a_limit_take_their_own_time() -> None:
    done = RewardPool(None).score(np.array([1.0, 2.0]), np.array([5.0, 1.0]))
    assert done.tolist() == [6.0, 3.0]


def test_one_worker_scores_one_at_a_time() -> None:
    pool = RewardPool(1)
    assert pool.score(np.array([0.0, 0.0, 5.0]), np.array([1.0, 1.0, 1.0])).tolist() == [1.0, 2.0, 6.0]
    assert pool.score(np.array([5.5]), np.array([1.0])).tolist() == [7.0]  # the worker is busy until 6


def test_two_workers_share_the_queue() -> None:
    done = RewardPool(2).score(np.zeros(4), np.array([3.0, 1.0, 1.0, 1.0]))
    assert done.tolist() == [3.0, 1.0, 2.0, 3.0]


def test_tail_is_the_time_below_a_quarter_of_the_peak() -> None:
    # Eight samples start together; seven end at 1 s, one at 10 s: 9 s with 1 < 8/4.
    assert tail_seconds(np.zeros(8), np.array([1.0] * 7 + [10.0])) == 9.0
    # Two of eight are exactly a quarter: no tail.
    assert tail_seconds(np.zeros(8), np.array([1.0] * 6 + [10.0] * 2)) == 0.0


def test_tail_does_not_count_the_ramp_up() -> None:
    start = np.concatenate([np.zeros(1), np.full(7, 5.0)])
    assert tail_seconds(start, np.full(8, 6.0)) == 0.0


def test_a_version_counts_from_the_moment_it_is_published() -> None:
    versions = Versions()
    versions.publish(10.0, updates=4)
    versions.publish(20.0, updates=8)
    assert versions.current == 2
    assert versions.at(np.array([0.0, 9.9, 10.0, 25.0])).tolist() == [0, 0, 1, 2]
    assert versions.updates(np.array([0, 1, 2])).tolist() == [0, 4, 8]


def test_clock_fires_at_exactly_the_time_asked_for() -> None:
    clock = Clock()
    seen: list[float] = []

    def process():  # type: ignore[no-untyped-def]
        for time in (0.1, 0.1 + 0.2, 0.7):
            yield clock.at(time)
            seen.append(clock.now)

    clock.process(process())
    clock.run()
    assert seen == [0.1, 0.1 + 0.2, 0.7]


@pytest.mark.parametrize(
    ("schedule", "eta", "every", "warmup"),
    [("sync", 0, 1, 0), ("one-step-off", 0, 1, 1), ("async", 4, 1, 5), ("async", 0.5, 1, 2), ("async", 1, 6, 6)],
)
def test_warm_up_steps(schedule: str, eta: float, every: int, warmup: int) -> None:
    settings = Settings(False, schedule, 4, 2, max_staleness=eta, sync_every=every)
    assert settings.warmup == warmup
