"""The fit's own mechanics, on a problem with a known answer."""

from __future__ import annotations

import math

import numpy as np
import pytest

from rlsim.catalog.profiles import profile
from validation import fitting
from validation.fitting import Problem, Values
from validation.published.records import Record

ROW = Record("r", "rl_step", "A", "s", {}, {"total_step_time_s": 100.0})
PARAMETERS = ("gemm_derate", "step_fixed_s")
PRIOR = profile("generic")


def straight(_: Record, values: Values) -> float:
    """Log error = 0.02 - 0.1·z of the first parameter."""
    sigma = math.log(PRIOR.high("gemm_derate") / PRIOR.low("gemm_derate")) / (2 * fitting.QUANTILE)
    return 0.02 - 0.1 * math.log(values["gemm_derate"] / PRIOR.value("gemm_derate")) / sigma


def problem() -> Problem:
    return Problem(PRIOR, PARAMETERS, straight, lambda _: np.array([True, False]))


def test_values_stay_inside_the_prior() -> None:
    far = problem().values(np.full(2, 9.0))
    assert all(far[name] == PRIOR.high(name) for name in PARAMETERS)
    assert problem().values(np.zeros(2)) == pytest.approx({n: PRIOR.value(n) for n in PARAMETERS})


def test_data_against_prior() -> None:
    found = fitting.fit(problem(), (ROW,), 20)
    # small errors are squared: minimise ((0.02 - 0.1 z)/0.08)² + z², so z = 0.25·1.25/(1 + 1.25²)
    assert found.z[0] == pytest.approx(0.25 * 1.25 / (1 + 1.25**2), abs=0.01)
    assert found.spread[0] == pytest.approx(1 / math.sqrt(1 + 1.25**2), rel=0.02)
    assert found.z[1] == pytest.approx(0.0, abs=1e-6)


def test_a_row_that_nothing_explains_counts_for_little() -> None:
    off = Problem(PRIOR, PARAMETERS, lambda r, v: straight(r, v) + (2.0 if r.id == "x" else 0.0), problem().has)
    odd = Record("x", "rl_step", "A", "s", {}, {})
    rows = [ROW, ROW, ROW]
    found, usual = fitting.fit(off, [*rows, odd], 20), fitting.fit(off, rows, 20)
    # squared errors would pull z by (2/0.08)·1.25/(1 + 4·1.25²) = 4.3, to the bound; the robust ones by a weight of 1
    assert usual.z[0] < found.z[0] < usual.z[0] + 0.3


def test_ranges_hold_the_value() -> None:
    one = problem()
    found = fitting.fit(one, (ROW,), 5)
    for low, value, high in fitting.ranges(one, found, {"m": found}).values():
        assert 0 < low <= value <= high


def test_a_left_out_group_is_not_seen() -> None:
    seen: list[str] = []

    def noted(record: Record, values: Values) -> float:
        seen.append(record.id)
        return straight(record, values)

    one = Problem(PRIOR, PARAMETERS, noted, problem().has)
    rows = [ROW, Record("s", "rl_step", "A", "s", {}, {})]
    found = fitting.leave_out(one, rows, lambda r: r.id, 3)
    assert set(found) == {"r", "s"}
    assert found["r"].z[0] == pytest.approx(found["s"].z[0])
