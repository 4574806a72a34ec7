"""Scores on numbers that can be checked by hand."""

from __future__ import annotations

import math

import pytest

from validation import score
from validation.published.rows import Row


def row(measured: float, predicted: float, work: float = 1.0, mode: str = "m", unit: str = "s") -> Row:
    return Row("id", "src", "kind", "A", "q", unit, "g", mode, measured, predicted, work=work)


def test_errors_are_times_too_long() -> None:
    assert row(10.0, 12.0).error == pytest.approx(0.2)
    # a rate of 12 where 10 was measured is 10/12 of the time
    assert row(10.0, 12.0, unit="tokens/s").error == pytest.approx(10 / 12 - 1)
    assert row(10.0, 12.0).skipped("why").error is None


def test_median_p90_and_bias() -> None:
    found = score.score([-0.5, 0.0, 0.1, 1.0])
    assert found is not None
    # |errors| 0, 0.1, 0.5, 1: median 0.3, 90th percentile 0.5 + 0.7 * 0.5; ratios 0.5 * 1 * 1.1 * 2 = 1.1
    assert (found.n, found.median, found.p90) == (4, pytest.approx(0.3), pytest.approx(0.85))
    assert found.bias == pytest.approx(math.exp(math.log(1.1) / 4) - 1)
    assert score.score([]) is None


def test_the_rival_is_the_best_constant_of_each_mode() -> None:
    rows = [row(10.0, 1.0, work=1.0), row(20.0, 1.0, work=2.0), row(33.0, 1.0, work=3.0), row(7.0, 1.0, 1.0, "other")]
    # ratios 10, 10, 11: the median 10 is right twice and 10/11 once; alone in its mode it is right
    assert score.trivial_errors(rows) == pytest.approx([0.0, 0.0, 10 / 11 - 1, 0.0])


def test_the_rival_of_rates() -> None:
    rows = [row(5.0, 1.0, work=10.0, unit="tokens/s"), row(4.0, 1.0, work=8.0, unit="tokens/s")]
    assert score.trivial_errors(rows) == pytest.approx([0.0, 0.0])


def test_drift_between_versions() -> None:
    found = score.version_drift([(100.0, 110.0), (100.0, 80.0)])
    assert found is not None
    assert found.median == pytest.approx(0.15)


def test_groups_keep_their_order() -> None:
    rows = [row(1, 1, mode="b"), row(1, 1, mode="a"), row(1, 1, mode="b")]
    assert [(k, len(v)) for k, v in score.by(rows, lambda r: r.mode).items()] == [("b", 2), ("a", 1)]
