"""The fit's own mechanics, on a problem with a known answer."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from rlsim.catalog.profiles import profile
from validation import fit_nemo
from validation.fit_nemo import PARAMETERS, Problem
from validation.published.records import Record

ROW = Record("r", "rl_step", "A", "s", {}, {"total_step_time_s": 100.0})


class Straight(Problem):
    """Log error = 0.1 - 0.1·z of the first parameter."""

    def log_error(self, record: Record, z: Any) -> float:
        return 0.1 - 0.1 * float(z[0])


def test_values_stay_inside_the_prior() -> None:
    problem = Problem(profile("generic"), ())
    prior = problem.prior
    far = problem.values(np.full(len(PARAMETERS), 9.0))
    assert all(far[name] == prior.high(name) for name in PARAMETERS)
    assert problem.values(np.zeros(len(PARAMETERS))) == pytest.approx({n: prior.value(n) for n in PARAMETERS})


def test_data_against_prior() -> None:
    problem = Straight(profile("generic"), (ROW,))
    found = fit_nemo.fit(problem, (ROW,), np.zeros(len(PARAMETERS)), 20)
    # minimise ((0.1 - 0.1 z)/0.08)² + z²: z = w/(1 + w) with w = (0.1/0.08)²
    w = (0.1 / fit_nemo.ROW_SIGMA) ** 2
    assert found.z[0] == pytest.approx(w / (1 + w), abs=0.01)
    assert found.spread[0] == pytest.approx(1 / math.sqrt(1 + w), rel=0.02)
    assert found.z[1:] == pytest.approx(0.0, abs=1e-6)


def test_ranges_hold_the_value() -> None:
    prior = profile("generic")
    problem = Straight(prior, (ROW,))
    found = fit_nemo.fit(problem, (ROW,), np.zeros(len(PARAMETERS)), 5)
    for low, value, high in fit_nemo.ranges(found, {"m": found}, prior).values():
        assert 0 < low <= value <= high
