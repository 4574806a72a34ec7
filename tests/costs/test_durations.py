"""Durations have the statistics they were asked for."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from rlsim.costs.durations import durations


def spec(**given: Any) -> Any:
    """A SecondsSpec with only some statistics."""
    names = ("distribution", "mean", "p50", "p90", "p95", "p99", "min", "max", "sigma")
    return SimpleNamespace(**{name: given.get(name) for name in names})


def draws(**given: Any) -> np.ndarray:
    return durations(spec(**given)).sample(np.random.default_rng(0), 400_000)


@pytest.mark.parametrize("family", ["lognormal", "gamma", "weibull"])
def test_mean_and_99th_percentile(family: str) -> None:
    drawn = draws(distribution=family, mean=2.0, p99=8.0)
    assert drawn.mean() == pytest.approx(2.0, rel=0.02)
    assert np.quantile(drawn, 0.99) == pytest.approx(8.0, rel=0.03)


@pytest.mark.parametrize("family", ["lognormal", "gamma", "weibull", "pareto"])
def test_median_and_95th_percentile(family: str) -> None:
    drawn = draws(distribution=family, p50=1.0, p95=3.0)
    assert np.quantile(drawn, 0.5) == pytest.approx(1.0, rel=0.02)
    assert np.quantile(drawn, 0.95) == pytest.approx(3.0, rel=0.03)


def test_mean_alone_has_a_default_spread() -> None:
    assert draws(mean=3.0).mean() == pytest.approx(3.0, rel=0.01)


def test_a_percentile_alone() -> None:
    assert np.quantile(draws(p90=5.0), 0.9) == pytest.approx(5.0, rel=0.02)


def test_limits_hold() -> None:
    drawn = draws(mean=3.0, p99=20.0, min=1.0, max=10.0)
    assert drawn.min() >= 1.0
    assert drawn.max() <= 10.0


def test_constant_and_uniform() -> None:
    assert set(draws(distribution="constant", mean=4.0)) == {4.0}
    drawn = draws(distribution="uniform", min=1.0, max=3.0)
    assert drawn.mean() == pytest.approx(2.0, rel=0.01)


def test_same_seed_same_draws() -> None:
    np.testing.assert_array_equal(draws(mean=1.0), draws(mean=1.0))
