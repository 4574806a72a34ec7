from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import special, stats

from rlsim.distributions import FAMILIES, Statistics, UnreachableError, solve

SCIPY = {
    "lognormal": lambda s: stats.lognorm(s),
    "normal": lambda s: stats.norm(1, s),
    "gamma": lambda s: stats.gamma(s**-2),
    "weibull": lambda s: stats.weibull_min(1 / s),
    "pareto": lambda s: stats.pareto(1 / s),
}


@pytest.mark.parametrize("name", FAMILIES)
@pytest.mark.parametrize("spread", [0.2, 0.45, 0.9])
def test_families_are_the_textbook_ones(name: str, spread: float) -> None:
    family, reference = FAMILIES[name], SCIPY[name](spread)
    z = np.linspace(-3, 3, 13)
    assert family.quantile(z, spread) == pytest.approx(reference.ppf(special.ndtr(z)), rel=1e-9, abs=1e-12)
    cap = float(reference.ppf(0.9))
    u = (np.arange(400_000) + 0.5) / 400_000
    assert family.limited(cap, spread) == pytest.approx(np.minimum(reference.ppf(u), cap).mean(), rel=1e-4)
    assert family.limited(math.inf, spread) == pytest.approx(reference.mean(), rel=1e-9)


def _censored_mean(known: Statistics) -> float:
    z = special.ndtri((np.arange(40_000) + 0.5) / 40_000)
    return float(np.clip(solve(known).at(z), known.low, known.cap).mean())


@settings(deadline=None, max_examples=50)
@given(
    family=st.sampled_from(sorted(FAMILIES)),
    share=st.floats(0.3, 0.9),
    clip=st.floats(0.001, 0.5),
    low=st.sampled_from([0.0, 20.0]),
)
def test_mean_and_clip_ratio_are_met(family: str, share: float, clip: float, low: float) -> None:
    """Any mean between what the clipped samples alone make of it and the cap can be met, by every family but the
    narrowest means of the normal one."""
    cap = 1000.0
    least = low + clip * (cap - low)
    mean = least + share * (cap - least)
    try:
        curve = solve(Statistics(family, mean=mean, low=low, cap=cap, clip_ratio=clip))
    except UnreachableError:
        assert family in ("normal", "pareto", "gamma")
        return
    known = Statistics(family, mean=mean, low=low, cap=cap, clip_ratio=clip)
    assert _censored_mean(known) == pytest.approx(mean, rel=2e-3)
    at_cap = float(curve.at(np.array([special.ndtri(1 - clip)]))[0])
    assert at_cap == pytest.approx(cap, rel=1e-6)


@settings(deadline=None, max_examples=50)
@given(family=st.sampled_from(sorted(FAMILIES)), mean=st.floats(100, 3000))
def test_a_mean_alone_takes_the_usual_spread(family: str, mean: float) -> None:
    known = Statistics(family, mean=mean, cap=4096.0)
    assert solve(known).spread == FAMILIES[family].usual
    assert solve(known).assumptions
    assert _censored_mean(known) == pytest.approx(mean, rel=2e-3)


def test_lognormal_by_hand() -> None:
    # uncapped: median m, p90 = m·e^{1.2816σ}
    curve = solve(Statistics("lognormal", percentiles=((0.5, 100.0), (0.9, 100 * math.exp(1.2815515655 * 0.7)))))
    assert curve.spread == pytest.approx(0.7, rel=1e-6)
    assert curve.scale == pytest.approx(100.0)


def test_mean_at_the_cap_is_constant() -> None:
    assert solve(Statistics("gamma", mean=500.0, cap=500.0)).scale == 0.0


@pytest.mark.parametrize(
    ("known", "says"),
    [
        (Statistics("lognormal", mean=400.0, cap=1000.0, clip_ratio=0.5), "alone makes the mean more than 500"),
        (Statistics("lognormal", mean=500.0, percentiles=((0.99, 400.0),), cap=1000.0), "no lognormal distribution"),
        (Statistics("gamma", mean=500.0, cap=1000.0, sigma=0.4), "sigma is of lognormal"),
        (Statistics("lognormal", mean=500.0, percentiles=((0.5, 100.0), (0.9, 150.0)), cap=1e4), "fits all"),
        (Statistics("lognormal", percentiles=((0.9, 1e3),), cap=1e3, clip_ratio=0.01), "only 0.01 of the samples"),
    ],
)
def test_what_no_distribution_has(known: Statistics, says: str) -> None:
    with pytest.raises(UnreachableError, match=says) as caught:
        solve(known)
    assert caught.value.fix


def test_small_misses_of_many_statistics_are_said() -> None:
    curve = solve(Statistics("lognormal", percentiles=((0.5, 100.0), (0.9, 1000.0), (0.99, 8000.0)), cap=16384.0))
    assert any("where 100 was given" in text for text in curve.assumptions)


STATISTICS = ("mean", "p50", "p90", "p95", "p99", "clip_ratio")


@pytest.mark.parametrize("name", FAMILIES)
@pytest.mark.parametrize("target", [1500.0, 6000.0])
@pytest.mark.parametrize("low", [0.0, 49.5])
def test_every_pair_of_statistics_of_every_family(name: str, target: float, low: float) -> None:
    """Statistics of a distribution of the family, cap 8192: any two of them give a curve that has both."""
    family, cap = FAMILIES[name], 8192.0
    z = special.ndtri((np.arange(20_000) + 0.5) / 20_000)
    shift = 0.0 if name == "normal" else low
    unit = family.quantile(z, family.usual)
    true = np.clip(shift + target / float(np.median(unit)) * unit, low, cap)

    def statistic(values: np.ndarray, what: str) -> float:  # type: ignore[type-arg]
        if what == "mean":
            return float(values.mean())
        if what == "clip_ratio":
            return float((values >= cap * (1 - 1e-9)).mean())
        return float(np.quantile(values, float(what[1:]) / 100))

    for pair in itertools.combinations(STATISTICS, 2):
        given = {what: statistic(true, what) for what in pair}
        percentiles = tuple((float(k[1:]) / 100, v) for k, v in given.items() if k.startswith("p"))
        known = Statistics(name, given.get("mean"), percentiles, low=low, cap=cap, clip_ratio=given.get("clip_ratio"))
        if not known.clip_ratio and not percentiles and known.mean is None:
            continue
        found = np.clip(solve(known).at(z), low, cap)
        for what, value in given.items():
            assert statistic(found, what) == pytest.approx(value, rel=3e-3, abs=2e-3), (pair, what)
