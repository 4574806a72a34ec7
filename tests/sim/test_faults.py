"""When faults come and how long work takes meanwhile."""

from __future__ import annotations

from itertools import islice

import numpy as np
import pytest

from rlsim.sim.faults import NIC, ROLLOUT, SLOW_NODE, TRAINER, TRAINER_CRASH, Fault, Weather


def test_a_rate_is_that_of_all_places() -> None:
    fault = Fault(TRAINER_CRASH, TRAINER, mtbf=1000.0, places=10)
    moments = [moment for moment, _ in islice(fault.occurrences(0, 0), 4000)]
    assert np.diff(moments).mean() == pytest.approx(100.0, rel=0.05)
    places = {place for _, place in islice(fault.occurrences(0, 0), 200)}
    assert places == set(range(10))


def test_every_entry_has_a_stream_of_its_own() -> None:
    fault = Fault(TRAINER_CRASH, TRAINER, mtbf=10.0)
    first, again, other = (list(islice(fault.occurrences(3, entry), 5)) for entry in (0, 0, 1))
    assert first == again != other


def test_a_slow_node_stretches_what_falls_into_its_window() -> None:
    # Slow by 2 from 10 to 20. 8 s of work from 6: 4 s at full speed, 4 s of work take 8 s. 10 s of work from 6: 4 s,
    # then 5 s of work in 10 s, 1 s after that.
    weather = Weather((Fault(SLOW_NODE, TRAINER, at=10.0, duration=10.0, factor=2.0),), 0)
    assert weather.compute_end(6.0, 8.0) == 18.0
    assert weather.compute_end(6.0, 10.0) == 21.0
    assert weather.compute_end(20.0, 3.0) == 23.0


def test_the_slowest_of_overlapping_faults_counts() -> None:
    faults = tuple(Fault(SLOW_NODE, TRAINER, at=at, duration=10.0, factor=f) for at, f in ((0.0, 2.0), (5.0, 4.0)))
    # 2.5 s of work to 5, then 2.5 s of work in 10 s to 15.
    assert Weather(faults, 0).compute_end(0.0, 5.0) == 15.0


def test_a_slow_rollout_node_leaves_the_trainer_alone() -> None:
    weather = Weather((Fault(SLOW_NODE, ROLLOUT, at=0.0, duration=10.0, factor=2.0),), 0)
    assert weather.compute_end(0.0, 5.0) == 5.0


def test_a_nic_stretches_the_wire_only() -> None:
    weather = Weather((Fault(NIC, ROLLOUT, at=0.0, duration=100.0, factor=4.0),), 0)
    assert weather.sync_end(10.0, 5.0, 2.0) == 10.0 + 3.0 + 8.0


def test_what_fails_while_the_trainer_is_down_changes_nothing() -> None:
    faults = tuple(Fault(TRAINER_CRASH, TRAINER, at=at, duration=10.0) for at in (5.0, 8.0, 30.0))
    weather = Weather(faults, 0)
    assert weather.crash == 5.0
    assert weather.restart() == 15.0
    assert weather.crash == 30.0
