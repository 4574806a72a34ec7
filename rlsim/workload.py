"""Lengths of prompts and responses: sampling with the exact marginal distribution and correlation within groups.

Lengths are censored at their cap: a longer answer stops there and counts there. Samples of one group are correlated
through a Gaussian copula, `z = √ρ·z_group + √(1−ρ)·z_sample`, so that every marginal stays exact.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray
from scipy import special

from rlsim.distributions import Array, UnreachableError
from rlsim.errors import UserError
from rlsim.scenario.lengths import MASS, SCORES, curve_of, mixture_table
from rlsim.scenario.schema_lengths import LengthSpec, SecondsSpec
from rlsim.scenario.schema_workload import Drift, Images, Workload
from rlsim.trace import Rows, read_trace, rows_of

if TYPE_CHECKING:
    from rlsim.turns import TurnModel, TurnPlans

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
        return self._mean(1.0)

    def _mean(self, times: float) -> float:
        """Mean after capping, all uncensored lengths multiplied."""
        if self.observed is not None:
            return float(np.clip(times * self.observed, self.low, self.cap).mean())
        return float(np.clip(times * self.table, self.low, self.cap) @ MASS / MASS.sum())

    def times(self, factor: float) -> float:
        """What multiplies every uncensored length when the mean after capping grows by `factor`; the cap stays.

        Raises `UnreachableError` where that mean would reach the cap.
        """
        if factor == 1.0:
            return 1.0
        target = factor * self.mean
        if target >= self.cap * (1 - 1e-6):
            raise UnreachableError(
                f"the mean would be {target:,.0f} tokens, but max is {self.cap:,.0f}",
                "slower growth, a table that levels off, or a larger max",
            )
        from scipy.optimize import brentq

        if target <= self._mean(1e-9):
            return 1e-9
        high = 1.0
        while self._mean(high) < target:
            high *= 2
        return float(brentq(lambda m: self._mean(m) - target, 1e-9, high, xtol=1e-12, rtol=1e-12))

    def multiplied(self, times: float) -> LengthModel:
        """Every uncensored length multiplied, the cap kept."""
        if times == 1.0:
            return self
        observed = None if self.observed is None else times * self.observed
        return replace(self, table=times * self.table, observed=observed)

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
        trace = read_trace(spec.trace)
        values = np.sort(trace.column(column))
        return LengthModel(np.empty(0), values, low, top, (), trace.correlation(column))
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
    """What one step has to do: `prompt_tokens` int64[prompts], `response_tokens` int64[prompts, group].

    From a trace that has them, of the same rows as the responses: `reward_seconds` and `environment_seconds`
    float64[prompts, group], `turns` int64[prompts, group]. `plan`: the turns of every sample, where there are several.
    """

    prompt_tokens: Ints
    response_tokens: Ints
    reward_seconds: Array | None = None
    environment_seconds: Array | None = None
    turns: Ints | None = None
    plan: TurnPlans | None = None


@dataclass(frozen=True, eq=False)
class WorkloadLengths:
    """All lengths of a workload, solved once.

    `correlation` is that of response lengths within a group, of their normal scores; `limit` is the most tokens of
    prompt and response together, None for no limit. `assumptions` say what the scenario leaves open. `rows` draws from
    a trace of responses; `joint`: the prompts come from the same rows; `reward_seconds`: the rewards too. `drift`
    changes the responses over the steps. `images` come on top of the prompts.
    """

    prompts: int
    group: int
    prompt: LengthModel
    response: LengthModel
    correlation: float
    limit: int | None
    assumptions: tuple[str, ...]
    rows: Rows | None = None
    joint: bool = False
    reward_seconds: bool = False
    drift: Drift | None = None
    images: Images | None = None
    turns: TurnModel | None = None


def workload_lengths(workload: Workload) -> WorkloadLengths:
    """The length distributions of a workload."""
    from rlsim.turns import total_tokens, turn_model

    prompt = length_model(workload.prompt_tokens, None, "prompt_tokens")
    turns = turn_model(workload)
    response = length_model(workload.response_tokens) if turns is None else total_tokens(turns)
    texts = [f"prompt lengths: {text}" for text in prompt.assumptions]
    texts += [f"response lengths: {text}" for text in response.assumptions]
    correlation = workload.group_correlation if workload.group_correlation is not None else response.correlation
    if correlation is None:
        correlation = DEFAULT_CORRELATION
        if workload.group_size > 1:
            texts.append(f"correlation of response lengths within a group: {DEFAULT_CORRELATION}")
    rows = _rows(workload)
    if rows is not None:
        texts += _unused_columns(workload, rows)
    return WorkloadLengths(
        prompts=workload.prompts,
        group=workload.group_size,
        prompt=prompt,
        response=response,
        correlation=correlation,
        limit=None if workload.total_tokens is None else workload.total_tokens.max,
        assumptions=tuple(texts),
        rows=rows,
        joint=_joint(workload),
        reward_seconds=rewards_from_trace(workload),
        drift=workload.drift,
        images=workload.images,
        turns=turns,
    )


def _unused_columns(workload: Workload, rows: Rows) -> list[str]:
    """Columns of a trace that the scenario leaves without effect."""
    columns, turns = rows.trace.columns, workload.turns
    if turns is None:
        names = [name for name in ("turns", "environment_seconds") if name in columns]
        return [f"{name} of the trace are not played: every sample is one turn" for name in names]
    texts = ["response_tokens of the trace are not used: workload.turns says what a sample generates"]
    if turns.wait is not None and "environment_seconds" in columns:
        texts.append("environment_seconds of the trace give way to workload.turns.wait")
    return texts


def _joint(workload: Workload) -> bool:
    return workload.prompt_tokens.trace is not None and workload.prompt_tokens.trace == workload.response_tokens.trace


def rewards_from_trace(workload: Workload) -> bool:
    """Whether reward times come from the trace of the responses: it has them and the scenario gives none."""
    path, reward = workload.response_tokens.trace, workload.reward
    if path is None or reward.seconds is not None or reward.kind == "environment":
        return False
    return "reward_seconds" in read_trace(path).columns


def _rows(workload: Workload) -> Rows | None:
    """Draws from the trace of the responses, if they have one."""
    path = workload.response_tokens.trace
    if path is None:
        return None
    trace = read_trace(path)
    correlation = workload.group_correlation
    if correlation is None and trace.correlation("response_tokens") is None:
        correlation = DEFAULT_CORRELATION
    return rows_of(trace, workload.group_size, correlation, _joint(workload))


def growth(drift: Drift | None, step: int) -> float:
    """Mean response length of a step over that of the workload: 1 + per_step·step, or the table, linear between its
    steps and constant outside. Steps count from the first measured one; the warm-up has the lengths of step 0.
    """
    if drift is None:
        return 1.0
    if drift.table is not None:
        steps = sorted(drift.table)
        return float(np.interp(max(step, 0), steps, [drift.table[at] for at in steps]))
    return max(0.0, 1.0 + (drift.per_step or 0.0) * max(step, 0))


def sample_batch(lengths: WorkloadLengths | Workload, rng: np.random.Generator, step: int) -> Batch:
    """The samples of one step; steps count from the first measured one."""
    known = workload_lengths(lengths) if isinstance(lengths, Workload) else lengths
    times = _times(known, step) if known.turns is None else 1.0
    if known.rows is not None:
        batch = _from_trace(known, known.rows, rng, times)
    else:
        prompt = known.prompt.sample(rng, known.prompts, 1, 0.0)[:, 0]
        response = known.response.multiplied(times)
        batch = Batch(prompt, response.sample(rng, known.prompts, known.group, known.correlation))
    if known.images is not None:
        batch = replace(batch, prompt_tokens=batch.prompt_tokens + _image_tokens(known.images, rng, known.prompts))
    if known.turns is not None:
        return known.turns.with_turns(batch, rng, known.limit, growth(known.drift, step))
    if known.limit is None:
        return batch
    room = np.maximum(known.limit - batch.prompt_tokens, 1)[:, None]
    return replace(batch, response_tokens=np.minimum(batch.response_tokens, room))


def _image_tokens(images: Images, rng: np.random.Generator, prompts: int) -> Ints:
    """Tokens of the images of each prompt, int64[prompts]: of 1.5 images a prompt every other one has a second."""
    whole = int(images.per_prompt)
    count = whole + (rng.random(prompts) < images.per_prompt - whole)
    return np.asarray(count * images.tokens, dtype=np.int64)


def _times(known: WorkloadLengths, step: int) -> float:
    """What multiplies the uncensored responses of a step."""
    factor = growth(known.drift, step)
    try:
        return known.response.times(factor)
    except UnreachableError as error:
        raise UserError(f"at step {step} {error.message}", key="workload.drift", fix=error.fix) from None


def _from_trace(known: WorkloadLengths, rows: Rows, rng: np.random.Generator, times: float) -> Batch:
    """Rows of the trace, with all their columns."""
    heads, samples = rows.draw(rng, known.prompts, known.group)
    columns, model = rows.trace.columns, known.prompt
    if known.joint:
        prompt = np.rint(np.clip(columns["prompt_tokens"][heads], model.low, model.cap)).astype(np.int64)
    else:
        prompt = model.sample(rng, known.prompts, 1, 0.0)[:, 0]
    responses = np.clip(times * columns["response_tokens"][samples], known.response.low, known.response.cap)
    turns = columns["turns"][samples] if "turns" in columns else None
    return Batch(
        prompt_tokens=prompt,
        response_tokens=np.rint(responses).astype(np.int64),
        reward_seconds=columns["reward_seconds"][samples] if known.reward_seconds else None,
        environment_seconds=columns["environment_seconds"][samples] if "environment_seconds" in columns else None,
        turns=None if turns is None else np.rint(turns).astype(np.int64),
    )
