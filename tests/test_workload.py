from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rlsim.errors import UserError
from rlsim.scenario.schema_lengths import Component, LengthSpec, SecondsSpec, TokenLimit
from rlsim.scenario.schema_workload import Drift, Workload
from rlsim.workload import growth, length_model, sample_batch, seconds_model, workload_lengths

# Published runs, as their logs print them: mean, min, max (cap) and clip ratio of a step's responses.
PUBLISHED = {
    "log-gpg-qwen2-7b-fsdp-s2-14": (253.715, 27.545, 1024, 0.018),
    "log-gpg-qwen2-7b-fsdp-s101-114": (216.535, 11.0, 1024, 0.002),
    "log-gpg-qwen2-7b-fsdp-s191-209": (594.847, 12.875, 1024, 0.431),
    "log-gpg-qwen2-7b-megatron-s91-104": (159.882, 43.583, 1024, 0.001),
    "log3-grpo-dsllm7b-megatron-16gpu": (212.2, 20.75, 1024, 0.014),
    "log3-grpo-qwen3-8b-c550-round1": (4004.963, 1610, 4096, 0.8955),
    "log3-gsm8k-lora-qwen2.5-72b-8gpu": (277.342, 123.333, 1024, 0.0),
}
SAMPLES = 400_000


def _drawn(spec: LengthSpec) -> np.ndarray[tuple[int, ...], np.dtype[np.int64]]:
    return length_model(spec).sample(np.random.default_rng(0), SAMPLES, 1, 0.0)


@pytest.mark.parametrize("run", PUBLISHED)
@pytest.mark.parametrize("family", ["lognormal", "gamma", "weibull"])
def test_published_statistics_are_reproduced(run: str, family: str) -> None:
    mean, low, cap, clip = PUBLISHED[run]
    spec = LengthSpec(distribution=family, mean=mean, min=low, max=cap, clip_ratio=clip)
    drawn = _drawn(spec)
    assert drawn.mean() == pytest.approx(mean, rel=0.01)
    assert (drawn == cap).mean() == pytest.approx(clip, rel=0.10, abs=0.002)
    assert drawn.min() >= low
    assert drawn.max() <= cap


@pytest.mark.parametrize("family", ["lognormal", "normal", "gamma", "weibull", "pareto"])
def test_summary_agrees_with_samples(family: str) -> None:
    spec = LengthSpec(distribution=family, mean=3000, p95=8000, max=8192)
    model, drawn = length_model(spec), _drawn(spec)
    assert model.mean == pytest.approx(3000, rel=1e-3)
    assert drawn.mean() == pytest.approx(3000, rel=0.01)
    assert model.quantile(0.95) == pytest.approx(8000, rel=1e-3)
    assert np.quantile(drawn, 0.95) == pytest.approx(8000, rel=0.02)
    assert model.clip_ratio == pytest.approx((drawn == 8192).mean(), abs=1e-3)
    assert model.max == 8192
    assert not model.assumptions


def test_mean_and_max_alone_are_an_assumption() -> None:
    model = length_model(LengthSpec(mean=900, max=4096))
    # median of a lognormal of σ 0.45: 900·e^{−0.45²/2} = 813
    assert model.quantile(0.5) == pytest.approx(813, abs=2)
    assert model.assumptions == ("lognormal with σ 0.45: mean is given, but nothing of the spread",)


def test_uniform_and_constant() -> None:
    drawn = _drawn(LengthSpec(distribution="uniform", min=1, max=6))
    counts = np.bincount(drawn[:, 0])[1:]
    assert counts.sum() == SAMPLES
    assert counts == pytest.approx(SAMPLES / 6, rel=0.02)
    assert set(_drawn(LengthSpec(distribution="constant", mean=77)).ravel()) == {77}


def test_mixture() -> None:
    parts = (Component(weight=0.7, mean=300, max=2048), Component(weight=0.3, distribution="constant", mean=9000))
    drawn = _drawn(LengthSpec(distribution="mixture", components=parts, max=8192))
    assert (drawn == 8192).mean() == pytest.approx(0.3, abs=0.005)
    assert drawn[drawn < 8192].mean() == pytest.approx(300, rel=0.02)


def test_a_cap_can_be_lowered() -> None:
    model = length_model(LengthSpec(mean=900, max=4096), cap=1000)
    assert model.max == 1000
    assert model.mean < 900


@given(
    mean=st.floats(20, 4000),
    correlation=st.sampled_from([0.0, 0.3, 0.9]),
    groups=st.integers(1, 40),
    per_group=st.integers(1, 20),
)
@settings(max_examples=40, deadline=None)
def test_samples_are_whole_positive_and_capped(mean: float, correlation: float, groups: int, per_group: int) -> None:
    drawn = length_model(LengthSpec(mean=mean, max=4096)).sample(
        np.random.default_rng(1), groups, per_group, correlation
    )
    assert drawn.shape == (groups, per_group)
    assert drawn.dtype == np.int64
    assert drawn.min() >= 1
    assert drawn.max() <= 4096


def test_correlation_within_groups_keeps_the_marginal() -> None:
    model = length_model(LengthSpec(mean=900, max=40960))
    drawn = model.sample(np.random.default_rng(2), 60_000, 4, 0.6)
    logs = np.log(drawn)
    assert np.corrcoef(logs[:, 0], logs[:, 1])[0, 1] == pytest.approx(0.6, abs=0.02)
    assert drawn.mean() == pytest.approx(900, rel=0.01)
    assert np.quantile(drawn, 0.9) == pytest.approx(model.quantile(0.9), rel=0.02)


def _workload(**changes: object) -> Workload:
    given = {
        "prompts": 64,
        "group_size": 16,
        "prompt_tokens": LengthSpec(mean=100, max=512),
        "response_tokens": LengthSpec(mean=900, max=4096),
        **changes,
    }
    return Workload(**given)  # type: ignore[arg-type]


def test_batch() -> None:
    batch = sample_batch(_workload(), np.random.default_rng(3), 0)
    assert batch.prompt_tokens.shape == (64,)
    assert batch.response_tokens.shape == (64, 16)
    again = sample_batch(workload_lengths(_workload()), np.random.default_rng(3), 0)
    assert (again.response_tokens == batch.response_tokens).all()
    assert "correlation of response lengths within a group: 0.3" in workload_lengths(_workload()).assumptions


def test_total_limit() -> None:
    batch = sample_batch(_workload(total_tokens=TokenLimit(max=1000)), np.random.default_rng(3), 0)
    total = batch.prompt_tokens[:, None] + batch.response_tokens
    assert total.max() == 1000
    assert batch.response_tokens.min() >= 1


def test_growth_over_steps() -> None:
    """1 % a step: 1.2 at step 20; the warm-up is as step 0. A table is linear between its steps, constant outside."""
    assert growth(None, 7) == 1.0
    line = Drift(per_step=0.01)
    assert [growth(line, step) for step in (-3, 0, 20)] == pytest.approx([1.0, 1.0, 1.2])
    table = Drift(table={0: 1.0, 100: 1.4})
    assert [growth(table, step) for step in (-3, 50, 500)] == pytest.approx([1.0, 1.2, 1.4])
    assert growth(Drift(per_step=-0.5), 9) == 0.0


def test_drift_moves_the_mean_and_the_clip_ratio_but_not_the_cap() -> None:
    """Uniform on 1..1000 (0.5 to 1000.5): mean 500.5 and hardly a clip. Doubling every length: up to 2001, half of them
    at the cap 1000: mean 250 + 500 = 750 = 1.5 times. So a factor of 1.5 means a clip ratio of a half.
    """
    model = length_model(LengthSpec(distribution="uniform", min=1, max=1000))
    assert model.times(1.5) == pytest.approx(2.0, rel=5e-3)
    grown = model.multiplied(model.times(1.5))
    assert grown.mean == pytest.approx(1.5 * model.mean, rel=1e-6)
    assert grown.clip_ratio == pytest.approx(0.5, abs=0.005)
    assert grown.max == model.max == 1000


@given(factor=st.floats(0.3, 2.0), family=st.sampled_from(["lognormal", "gamma", "weibull", "pareto"]))
@settings(max_examples=30, deadline=None)
def test_the_mean_after_the_cap_grows_by_the_factor(factor: float, family: str) -> None:
    model = length_model(LengthSpec(distribution=family, mean=1500, p90=3000, max=4096))
    grown = model.multiplied(model.times(factor))
    assert grown.mean == pytest.approx(factor * model.mean, rel=1e-4)
    assert (grown.clip_ratio >= model.clip_ratio) == (factor >= 1.0) or grown.clip_ratio == model.clip_ratio


def test_batches_drift() -> None:
    known = workload_lengths(_workload(prompts=4000, drift=Drift(per_step=0.02)))
    at = {step: sample_batch(known, np.random.default_rng(8), step).response_tokens for step in (-2, 0, 25)}
    assert (at[-2] == at[0]).all()
    assert at[25].mean() / at[0].mean() == pytest.approx(1.5, rel=0.01)
    assert at[25].max() == at[0].max() == 4096
    assert (at[25] == 4096).mean() > (at[0] == 4096).mean()
    prompts = {step: sample_batch(known, np.random.default_rng(8), step).prompt_tokens for step in (0, 25)}
    assert (prompts[0] == prompts[25]).all()


def test_a_mean_above_the_cap_is_a_mistake() -> None:
    known = workload_lengths(_workload(drift=Drift(per_step=0.1)))
    with pytest.raises(UserError, match=r"at step 40 the mean would be 4,500 tokens, but max is 4,096") as caught:
        sample_batch(known, np.random.default_rng(0), 40)
    assert caught.value.key == "workload.drift"


def test_seconds() -> None:
    model = seconds_model(SecondsSpec(mean="2 s", p99="20 s", max="30 s"))
    assert model.mean == pytest.approx(2.0, rel=1e-3)
    drawn = model.sample(np.random.default_rng(6), 200_000)
    assert drawn.mean() == pytest.approx(2.0, rel=0.02)
    assert np.quantile(drawn, 0.99) == pytest.approx(20.0, rel=0.05)
    assert set(
        seconds_model(SecondsSpec(distribution="constant", mean="500 ms")).sample(np.random.default_rng(0), 3)
    ) == {0.5}
