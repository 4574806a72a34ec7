from __future__ import annotations

import numpy as np
import pytest

from rlsim.scenario.lengths import MASS, SCORES, curve_of, mixture_table, statistics_of
from rlsim.scenario.schema_lengths import Component, LengthSpec


def test_the_grid_carries_all_probability() -> None:
    assert MASS.sum() == pytest.approx(1.0, abs=1e-8)


def test_statistics_are_widened_by_rounding() -> None:
    known = statistics_of(LengthSpec(mean=500, min=100, max=2048, clip_ratio=0.1))
    assert (known.low, known.cap, known.clip_ratio) == (99.5, 2048, 0.1)
    uniform = statistics_of(LengthSpec(distribution="uniform", min=1, max=6))
    assert (uniform.low, uniform.cap) == (0.5, 6.5)


def test_mixture_has_the_mean_of_its_components() -> None:
    parts = (Component(weight=3, mean=400, max=4096), Component(weight=1, distribution="constant", mean=8000))
    table = mixture_table(parts)
    assert table @ MASS == pytest.approx(0.75 * 400 + 0.25 * 8000, rel=2e-3)
    assert np.mean(table[SCORES > 0.7] > 7000) == 1.0  # Φ(0.7) = 0.758


def test_curve_of_component_without_cap() -> None:
    curve = curve_of(Component(weight=1, distribution="gamma", mean=300, p90=600))
    assert np.maximum(curve.at(SCORES), 0) @ MASS == pytest.approx(300, rel=1e-3)
