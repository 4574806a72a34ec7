from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import yaml

import rlsim
from rlsim.errors import UserError
from rlsim.length_fits import LengthFits, fit_lengths
from rlsim.scenario.schema_lengths import LengthSpec
from rlsim.workload import length_model

CAP, SAMPLES = 8192, 6000
TRUE = {
    "lognormal": lambda rng: np.exp(rng.normal(8.0, 0.9, SAMPLES)),
    "gamma": lambda rng: rng.gamma(2.0, 1500.0, SAMPLES),
    "weibull": lambda rng: 3000.0 * rng.weibull(1.4, SAMPLES),
    "pareto": lambda rng: 800.0 * (1 + rng.pareto(1.8, SAMPLES)),
    "mixture": lambda rng: np.exp(
        np.where(rng.random(SAMPLES) < 0.7, rng.normal(6.5, 0.4, SAMPLES), rng.normal(9.0, 0.5, SAMPLES))
    ),
}
PARAMETERS = {
    "lognormal": {"median": np.exp(8.0), "sigma": 0.9},
    "gamma": {"shape": 2.0, "scale": 1500.0},
    "weibull": {"shape": 1.4, "scale": 3000.0},
    "pareto": {"shortest": 800.0, "tail_index": 1.8},
    "mixture": {"weight_1": 0.7, "median_1": np.exp(6.5), "sigma_1": 0.4, "median_2": np.exp(9.0)},
}


def _fits(path: Path, lengths: np.ndarray, **more: object) -> LengthFits:  # type: ignore[type-arg]
    pd.DataFrame({"response_tokens": lengths}).to_parquet(path)
    return fit_lengths(path, **more)  # type: ignore[arg-type]


@pytest.mark.parametrize("name", TRUE)
def test_the_true_distribution_is_found_through_the_cap(tmp_path: Path, name: str) -> None:
    """2 to 15% of the samples are censored; parameters are those drawn from, and the block draws what the trace has."""
    drawn = np.rint(np.clip(TRUE[name](np.random.default_rng(0)), 1, CAP))
    answer = _fits(tmp_path / "t.parquet", drawn)
    best = answer.fits[0]
    assert answer.cap == CAP
    assert best.distribution == name
    for parameter, value in PARAMETERS[name].items():
        assert best.parameters[parameter] == pytest.approx(value, rel=0.08), parameter
    assert best.ks < 0.02
    pasted = length_model(LengthSpec.model_validate(yaml.safe_load(best.block)))
    assert pasted.mean == pytest.approx(drawn.mean(), rel=0.02)
    assert pasted.clip_ratio == pytest.approx((drawn == CAP).mean(), abs=0.01)
    for q in (0.1, 0.5, 0.9):
        assert pasted.quantile(q) == pytest.approx(np.quantile(drawn, q), rel=0.05)
    least = min(fit.aic for fit in answer.fits)
    rest = [fit.aic for fit in answer.fits if fit.aic > least + 10]
    assert rest == sorted(rest)


def test_likelihood_by_hand(tmp_path: Path) -> None:
    """Exponential (Weibull of shape 1, gamma of shape 1): the scale that is most likely is Σ min(x, cap) / n below it.
    AIC of a Pareto: 2·2 − 2·Σ ln f."""
    drawn = np.ceil(-1000 * np.log1p(-(np.arange(4000) + 0.5) / 4000))
    answer = _fits(tmp_path / "t.parquet", np.minimum(drawn, 2000))
    expected = np.minimum(drawn, 2000).sum() / (drawn < 2000).sum()
    for fit in answer.fits:
        if fit.distribution in ("gamma", "weibull"):
            assert fit.parameters["shape"] == pytest.approx(1.0, abs=0.02)
            assert fit.parameters["scale"] == pytest.approx(expected, rel=0.02)
    pareto = next(fit for fit in answer.fits if fit.distribution == "pareto")
    shortest, alpha = pareto.parameters["shortest"], pareto.parameters["tail_index"]
    below, capped = drawn[drawn < 2000], (drawn >= 2000).sum()
    log_likelihood = (np.log(alpha) + alpha * np.log(shortest) - (alpha + 1) * np.log(below)).sum()
    log_likelihood += capped * alpha * np.log(shortest / 1999.5)
    assert pareto.aic == pytest.approx(4 - 2 * log_likelihood, rel=1e-6)


def test_a_longest_length_is_no_cap_unless_samples_pile_up(tmp_path: Path) -> None:
    rng = np.random.default_rng(1)
    drawn = np.rint(rng.gamma(2.0, 500.0, 1000)) + 1
    free = _fits(tmp_path / "free.parquet", drawn)
    assert np.isinf(free.cap)
    assert "do not pile up" in free.notes[0]
    assert free.fits[0].spec.max == drawn.max()
    capped = _fits(tmp_path / "capped.parquet", drawn, cap=1500)
    assert capped.cap == 1500
    assert capped.given.clip_ratio == pytest.approx((drawn >= 1500).mean(), abs=1e-3)


def test_a_prompt_counts_once(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    rows = [f"{prompt},{50 + 7 * prompt},{100 + prompt}" for prompt in range(60) for _ in range(prompt + 1)]
    path.write_text("prompt_id,prompt_tokens,response_tokens\n" + "\n".join(rows))
    assert rlsim.fit_lengths is fit_lengths
    answer = rlsim.fit_lengths(path, "prompt_tokens")
    assert answer.correlation is None
    assert sum(answer.fits[0].model.quantile(0.5) > 50 + 7 * at for at in range(60)) == pytest.approx(30, abs=3)


@pytest.mark.parametrize("lengths", [[5] * 50, [1, 2, 3, 4] * 10, [100] * 40 + [7]])
def test_too_few_lengths(tmp_path: Path, lengths: list[int]) -> None:
    with pytest.raises(UserError, match="too few to fit"):
        _fits(tmp_path / "t.parquet", np.array(lengths, dtype=float))
