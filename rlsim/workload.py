"""Lengths of prompts and responses: sampling with the exact marginal distribution and correlation within groups.

Lengths are censored at their cap: a longer answer stops there and counts there. Samples of one group are correlated
through a Gaussian copula, `z = √ρ·z_group + √(1−ρ)·z_sample`, so that every marginal stays exact.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import special

from rlsim.distributions import Array, UnreachableError
from rlsim.errors import UserError
from rlsim.scenario.lengths import MASS, SCORES, curve_of, mixture_table
from rlsim.scenario.schema_lengths import LengthSpec, SecondsSpec
from rlsim.scenario.schema_workload import Workload

Ints = NDArray[np.int64]

DEFAULT_CORRELATION = 0.3


@dataclass(frozen=True, eq=False)
class LengthModel:
    """A distribution of whole token counts.

    `table` holds values on the grid `SCORES` of normal scores, uncensored; or, for a trace, `observed` holds its sorted
    values. `low` ≤ length ≤ `cap`. `correlation` is the trace's own within groups, None if it has none.
    """

    table: Array
    observed: Array | None
    low: float
    cap: float
    assumptions: tuple[str, ...] = ()
    correlation: float | None = None

    def at(self, z: Array) -> Array:
        """Lengths at normal scores, censored, not yet rounded."""
        if self.observed is not None:
            index = (special.ndtr(z) * len(self.observed)).astype(np.int64)
            values = self.observed[np.minimum(index, len(self.observed) - 1)]
        else:
            values = np.interp(z, SCORES, self.table)
        return np.asarray(np.clip(values, self.low, self.cap), dtype=np.float64)

    def sample(self, rng: np.random.Generator, groups: int, per_group: int, correlation: float) -> Ints:
        """Lengths int64[groups, per_group]; `correlation` of the normal scores within a group."""
        z = rng.standard_normal((groups, per_group))
        if correlation > 0 and per_group > 1:
            shared = rng.standard_normal((groups, 1))
            z = math.sqrt(correlation) * shared + math.sqrt(1 - correlation) * z
        return np.rint(self.at(z)).astype(np.int64)

    @property
    def mean(self) -> float:
        """Mean length after capping (tokens)."""
        if self.observed is not None:
            return float(np.clip(self.observed, self.low, self.cap).mean())
        return float(np.clip(self.table, self.low, self.cap) @ MASS / MASS.sum())

    def quantile(self, q: float) -> float:
        """The length that a share q of the samples does not exceed (tokens)."""
        return float(np.rint(self.at(np.array([special.ndtri(q)])))[0])

    @property
    def max(self) -> int:
        """Longest possible length (tokens)."""
        if math.isfinite(self.cap):
            return int(self.cap)
        return int(np.rint(self.observed[-1] if self.observed is not None else self.table[-1]))

    @property
    def clip_ratio(self) -> float:
        """Share of samples that reach the cap."""
        if not math.isfinite(self.cap):
            return 0.0
        if self.observed is not None:
            return float((self.observed >= self.cap - 0.5).mean())
        if self.table[-1] < self.cap - 0.5:
            return 0.0
        first = int(np.argmax(self.table >= self.cap - 0.5))
        if first == 0:
            return 1.0
        below, above = self.table[first - 1], self.table[first]
        share = (self.cap - 0.5 - below) / (above - below)
        return float(special.ndtr(-(SCORES[first - 1] + share * (SCORES[first] - SCORES[first - 1]))))


@lru_cache(maxsize=128)
def length_model(spec: LengthSpec, cap: float | None = None, column: str = "response_tokens") -> LengthModel:
    """The distribution of a block. `cap` lowers the block's own; `column` is the one of a trace to read."""
    ceilings = [value for value in (spec.max, cap) if value is not None]
    top = float(int(min(ceilings))) if ceilings else math.inf
    low = max(1.0, math.ceil(spec.min) if spec.min is not None else 1.0)
    if spec.trace is not None:
        values, correlation = read_trace(spec.trace, column)
        return LengthModel(np.empty(0), values, low, top, (), correlation)
    try:
        if spec.components:
            return LengthModel(mixture_table(spec.components), None, low, top)
        curve = curve_of(spec, cap)
    except UnreachableError as error:
        raise UserError(error.message, key=f"workload.{column}", fix=error.fix) from None
    return LengthModel(curve.at(SCORES), None, low, top, curve.assumptions)


@dataclass(frozen=True, eq=False)
class SecondsModel:
    """A distribution of durations (seconds)."""

    table: Array
    low: float
    cap: float

    def sample(self, rng: np.random.Generator, n: int) -> Array:
        """Durations float64[n]."""
        values = np.interp(rng.standard_normal(n), SCORES, self.table)
        return np.asarray(np.clip(values, self.low, self.cap), dtype=np.float64)

    @property
    def mean(self) -> float:
        return float(np.clip(self.table, self.low, self.cap) @ MASS / MASS.sum())


def constant_seconds(seconds: float) -> SecondsModel:
    """Every event takes the same time."""
    return SecondsModel(np.full_like(SCORES, seconds), seconds, seconds)


@lru_cache(maxsize=128)
def seconds_model(spec: SecondsSpec) -> SecondsModel:
    """The distribution of a duration block."""
    return SecondsModel(curve_of(spec).at(SCORES), spec.min or 0.0, spec.max if spec.max is not None else math.inf)


@dataclass(frozen=True, eq=False)
class Batch:
    """Lengths of one step: `prompt_tokens` int64[prompts], `response_tokens` int64[prompts, group]."""

    prompt_tokens: Ints
    response_tokens: Ints


@dataclass(frozen=True, eq=False)
class WorkloadLengths:
    """All lengths of a workload, solved once.

    `correlation` is that of response lengths within a group, of their normal scores; `limit` is the most tokens of
    prompt and response together, None for no limit. `assumptions` say what the scenario leaves open.
    """

    prompts: int
    group: int
    prompt: LengthModel
    response: LengthModel
    correlation: float
    limit: int | None
    assumptions: tuple[str, ...]


@lru_cache(maxsize=128)
def workload_lengths(workload: Workload) -> WorkloadLengths:
    """The length distributions of a workload."""
    prompt = length_model(workload.prompt_tokens, None, "prompt_tokens")
    response = length_model(workload.response_tokens)
    texts = [f"prompt lengths: {text}" for text in prompt.assumptions]
    texts += [f"response lengths: {text}" for text in response.assumptions]
    correlation = workload.group_correlation if workload.group_correlation is not None else response.correlation
    if correlation is None:
        correlation = DEFAULT_CORRELATION
        if workload.group_size > 1:
            texts.append(f"correlation of response lengths within a group: {DEFAULT_CORRELATION}")
    return WorkloadLengths(
        prompts=workload.prompts,
        group=workload.group_size,
        prompt=prompt,
        response=response,
        correlation=correlation,
        limit=None if workload.total_tokens is None else workload.total_tokens.max,
        assumptions=tuple(texts),
    )


def sample_batch(lengths: WorkloadLengths | Workload, rng: np.random.Generator, step: int) -> Batch:
    """Lengths of the samples of one step (the same distribution in every step: lengths do not drift yet)."""
    known = workload_lengths(lengths) if isinstance(lengths, Workload) else lengths
    prompt = known.prompt.sample(rng, known.prompts, 1, 0.0)[:, 0]
    response = known.response.sample(rng, known.prompts, known.group, known.correlation)
    if known.limit is not None:
        response = np.minimum(response, np.maximum(known.limit - prompt, 1)[:, None])
    return Batch(prompt, response)


@lru_cache(maxsize=16)
def read_trace(path: str, column: str) -> tuple[Array, float | None]:
    """Sorted values of one column of a trace, and their correlation within prompts (None if prompts do not repeat)."""
    frame = _read_table(path)
    if column not in frame.columns:
        have = ", ".join(str(name) for name in frame.columns)
        raise UserError(
            f"the trace has no column {column}", file=path, fix=f"columns prompt_id, {column}; it has {have}"
        )
    values = np.asarray(frame[column], dtype=np.float64)
    if not values.size or not np.isfinite(values).all() or (values < 1).any():
        raise UserError(
            f"column {column} holds no, missing or non-positive lengths", file=path, fix="whole numbers ≥ 1"
        )
    correlation = _within_groups(values, np.asarray(frame["prompt_id"])) if "prompt_id" in frame.columns else None
    return np.sort(values), correlation


def _read_table(path: str) -> Any:
    import pandas as pd

    readers: dict[str, Callable[[str], Any]] = {
        ".parquet": pd.read_parquet,
        ".csv": pd.read_csv,
        ".jsonl": lambda name: pd.read_json(name, lines=True),
        ".json": lambda name: pd.read_json(name, lines=True),
    }
    reader = readers.get(Path(path).suffix.lower())
    if reader is None:
        raise UserError("unknown kind of trace", file=path, fix="a .parquet, .csv or .jsonl file")
    try:
        return reader(path)
    except FileNotFoundError:
        raise UserError("no such trace", file=path, fix="a path relative to the scenario file") from None
    except (ValueError, OSError) as error:
        raise UserError(f"the trace cannot be read: {error}", file=path) from None


def _within_groups(values: Array, groups: NDArray[Any]) -> float | None:
    """Correlation of normal scores of samples of one prompt: mean product of distinct pairs ÷ variance."""
    ranks = np.empty(len(values))
    ranks[np.argsort(values, kind="stable")] = np.arange(len(values))
    scores = special.ndtri((ranks + 0.5) / len(values))
    _, index, counts = np.unique(groups, return_inverse=True, return_counts=True)
    if counts.max() < 2:
        return None
    sums = np.bincount(index, weights=scores)
    squares = np.bincount(index, weights=scores**2)
    pairs = counts * (counts - 1)
    products = float((sums**2 - squares).sum())
    return float(np.clip(products / pairs.sum() / scores.var(), 0.0, 0.99))
