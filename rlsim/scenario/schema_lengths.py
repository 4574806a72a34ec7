"""Length distributions: how many tokens (or seconds) things take."""

from __future__ import annotations

from itertools import pairwise
from typing import Annotated, Literal, Self

from pydantic import model_validator

from rlsim.scenario.block import Block, Listed, Seconds, item, needed
from rlsim.scenario.quantity import MistakeError

Family = Literal["lognormal", "normal", "gamma", "weibull", "pareto", "uniform", "constant", "mixture"]
STATISTICS = ("mean", "p50", "p90", "p95", "p99")


class LengthSpec(Block):
    """A distribution of token counts; a bare number is constant.

    `max` censors: longer answers stop there and count there; every statistic describes lengths after that cap.
    """

    distribution: Family | None = item(None, "family of the distribution: default lognormal")
    mean: float | None = item(None, "mean length", unit="tokens", gt=0)
    p50: float | None = item(None, "median length", unit="tokens", gt=0)
    p90: float | None = item(None, "90th percentile of the length", unit="tokens", gt=0)
    p95: float | None = item(None, "95th percentile of the length", unit="tokens", gt=0)
    p99: float | None = item(None, "99th percentile of the length", unit="tokens", gt=0)
    min: float | None = item(None, "shortest length", unit="tokens", ge=1)
    max: float | None = item(None, "cap: longest length", unit="tokens", ge=1)
    clip_ratio: float | None = item(None, "clip ratio: share of samples that reach max", ge=0, lt=1)
    sigma: float | None = item(None, "spread: standard deviation of the logarithm (lognormal)", gt=0, le=5)
    components: Annotated[tuple[Component, ...], Listed] = item((), "components of a mixture, each with its weight")
    trace: str | None = item(
        None, "trace: CSV, JSONL or parquet file with columns prompt_id, prompt_tokens, response_tokens"
    )

    @model_validator(mode="before")
    @classmethod
    def _constant(cls, data: object) -> object:
        return {"distribution": "constant", "mean": data} if _number(data) else data

    @model_validator(mode="after")
    def _possible(self) -> Self:
        check_statistics(self)
        return self


class Component(Block):
    """One part of a mixture, before the mixture's own cap."""

    weight: float = needed("weight of the component", gt=0)
    distribution: Literal["lognormal", "normal", "gamma", "weibull", "pareto", "uniform", "constant"] = item(
        "lognormal", "family of the component"
    )
    mean: float | None = item(None, "mean of the component", unit="tokens", gt=0)
    p50: float | None = item(None, "median of the component", unit="tokens", gt=0)
    p90: float | None = item(None, "90th percentile of the component", unit="tokens", gt=0)
    p99: float | None = item(None, "99th percentile of the component", unit="tokens", gt=0)
    min: float | None = item(None, "shortest of the component", unit="tokens", ge=1)
    max: float | None = item(None, "longest of the component", unit="tokens", ge=1)
    sigma: float | None = item(None, "spread of the component: standard deviation of the logarithm", gt=0, le=5)

    @model_validator(mode="after")
    def _possible(self) -> Self:
        check_statistics(self)
        return self


class SecondsSpec(Block):
    """A distribution of durations; a bare quantity is constant."""

    distribution: Literal["lognormal", "gamma", "weibull", "pareto", "uniform", "constant"] | None = item(
        None, "family of the distribution: default lognormal"
    )
    mean: Seconds | None = item(None, "mean duration", gt=0)
    p50: Seconds | None = item(None, "median duration", gt=0)
    p90: Seconds | None = item(None, "90th percentile of the duration", gt=0)
    p95: Seconds | None = item(None, "95th percentile of the duration", gt=0)
    p99: Seconds | None = item(None, "99th percentile of the duration", gt=0)
    min: Seconds | None = item(None, "shortest duration", ge=0)
    max: Seconds | None = item(None, "longest duration", gt=0)
    sigma: float | None = item(None, "spread: standard deviation of the logarithm (lognormal)", gt=0, le=5)

    @model_validator(mode="before")
    @classmethod
    def _constant(cls, data: object) -> object:
        return {"distribution": "constant", "mean": data} if _number(data) or isinstance(data, str) else data

    @model_validator(mode="after")
    def _possible(self) -> Self:
        check_statistics(self)
        return self


class TokenLimit(Block):
    """A limit on prompt and response together."""

    max: int = needed("most tokens of prompt and response together", unit="tokens", ge=2)


def _number(data: object) -> bool:
    return isinstance(data, int | float) and not isinstance(data, bool)


def check_statistics(spec: LengthSpec | Component | SecondsSpec) -> None:
    """Statistics in an impossible order, or too few of them, are the user's mistake.

    min <= mean <= max, min <= p50 <= p90 <= p95 <= p99 <= max.
    """
    ordered = [(name, getattr(spec, name, None)) for name in ("min", "p50", "p90", "p95", "p99", "max")]
    given = [(name, value) for name, value in ordered if value is not None]
    for (low, a), (high, b) in pairwise(given):
        if a > b:
            raise MistakeError(f"{low} {a:g} is above {high} {b:g}", f"{low} ≤ {high}")
    if spec.mean is not None:
        if spec.max is not None and spec.mean > spec.max:
            raise MistakeError(f"mean {spec.mean:g} is above max {spec.max:g}", "mean ≤ max")
        if spec.min is not None and spec.mean < spec.min:
            raise MistakeError(f"mean {spec.mean:g} is below min {spec.min:g}", "mean ≥ min")
    trace = isinstance(spec, LengthSpec) and spec.trace is not None
    mixture = bool(isinstance(spec, LengthSpec) and spec.components)
    if spec.distribution == "mixture" and not mixture:
        raise MistakeError("a mixture needs components", "components: [{weight: 0.8, mean: 500, max: 8192}, …]")
    if mixture and spec.distribution != "mixture":
        raise MistakeError("components belong to a mixture", "distribution: mixture")
    if mixture and (
        any(getattr(spec, name, None) is not None for name in (*STATISTICS, "clip_ratio", "sigma")) or trace
    ):
        raise MistakeError(
            "a mixture has the statistics of its components", "only `components` and, if wished, `min` and `max`"
        )
    if spec.distribution == "uniform":
        if spec.min is None or spec.max is None:
            raise MistakeError(
                "a uniform distribution needs min and max", "{distribution: uniform, min: 100, max: 900}"
            )
        return
    statistics = [name for name in STATISTICS if getattr(spec, name, None) is not None]
    if trace and (statistics or mixture):
        raise MistakeError("a trace brings its own lengths", "only `trace` and, if wished, `max`")
    if not statistics and not trace and not mixture:
        raise MistakeError("a distribution needs a mean or a percentile", "{mean: 900, max: 4096}")


LengthSpec.model_rebuild()
