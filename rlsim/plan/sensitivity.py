"""Sensitivity: which of the inputs that a user is unsure of would change the answer, every figure simulated."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal, get_args

import numpy as np

from rlsim import api
from rlsim.errors import UserError
from rlsim.plan import figures, indices
from rlsim.plan.case import Case, Outcome, Setting, read_study
from rlsim.plan.indices import Index
from rlsim.plan.manifest import manifest_of
from rlsim.plan.runner import Runner
from rlsim.plan.uncertain import Input, inputs_of
from rlsim.plan.workers import Progress
from rlsim.scenario.schema import Scenario

Method = Literal["tornado", "sobol", "morris"]
MARGIN = "margin"
"""Step time of the second of two variants over that of the first, minus 1: above 0 the first is faster."""
STEPS = 2
"""Measured steps of a simulation: all have the same samples, so differences are far sharper than step times."""
NONE = Index()
TOP = 8
"""Inputs that Sobol's method takes where none are named: those that move the figure most one at a time."""


@dataclass(frozen=True)
class Metric:
    """The figure looked at, and the variants that it needs: one, or the two of a margin."""

    key: str
    variants: tuple[str, ...]

    @property
    def label(self) -> str:
        if self.key == MARGIN:
            return f"step time of {self.variants[1]} over {self.variants[0]}, minus 1"
        return figures.heading(self.key)

    @property
    def unit(self) -> str:
        return "" if self.key == MARGIN else figures.unit(self.key)

    def of(self, outcomes: Sequence[Outcome]) -> float | None:
        """The figure, from one outcome for each variant; None where one has none."""
        if self.key != MARGIN:
            return outcomes[0].values.get(self.key)
        steps = [outcome.values.get("step_time_s.mean") for outcome in outcomes]
        return None if None in steps else float(steps[1]) / float(steps[0]) - 1  # type: ignore[arg-type]


@dataclass(frozen=True)
class Effect:
    """An input at either end of its range, all others as they are; `message`: why a figure is missing."""

    input: Input
    base: float
    at_low: float | None
    at_high: float | None
    message: str | None
    index: Index = NONE

    @property
    def swing(self) -> float | None:
        """How far the figure moves between low, base and high; None where an end has no figure."""
        if self.at_low is None or self.at_high is None:
            return None
        ends = (self.at_low, self.base, self.at_high)
        return max(ends) - min(ends)

    @property
    def flips(self) -> bool:
        """Whether the figure changes its sign."""
        return any(end is not None and end * self.base < 0 for end in (self.at_low, self.at_high))


@dataclass(frozen=True)
class Sampled:
    """All inputs moved at once: how the figure is spread. `dropped`: points left out with their group."""

    points: int
    dropped: int
    mean: float
    p10: float
    p50: float
    p90: float


@dataclass(frozen=True)
class Sensitivity:
    """The answer, effects sorted by size. `no_effect`: parameters of the profile that this run does not read."""

    name: str
    method: Method
    metric: Metric
    base: float
    effects: tuple[Effect, ...]
    no_effect: tuple[str, ...]
    sampled: Sampled | None
    steps: int
    simulations: int

    @property
    def variant(self) -> str:
        return self.metric.variants[0]

    def as_dict(self) -> dict[str, Any]:
        """The answer of `--json`."""
        return {
            "name": self.name,
            "variant": self.variant,
            "between": list(self.metric.variants) if self.metric.key == MARGIN else None,
            "method": self.method,
            "metric": {"key": self.metric.key, "label": self.metric.label, "unit": self.metric.unit},
            "base": self.base,
            "steps": self.steps,
            "simulations": self.simulations,
            "inputs": [self._row(one) for one in self.effects],
            "no_effect": list(self.no_effect),
            "sampled": None if self.sampled is None else vars(self.sampled),
        }

    def _row(self, one: Effect) -> dict[str, Any]:
        given, swing = one.input, one.swing
        return {
            "key": given.key,
            "label": given.label,
            "unit": given.unit,
            "kind": given.kind,
            "source": given.source,
            "value": given.value or None,
            "low": given.low,
            "high": given.high,
            "at_low": one.at_low,
            "at_high": one.at_high,
            "swing": swing,
            "swing_share": swing / abs(self.base)
            if swing is not None and self.base and self.metric.key != MARGIN
            else None,
            "flips": one.flips if self.metric.key == MARGIN else None,
            "message": one.message,
            **vars(one.index),
        }


def sensitivity(
    file: str | Path,
    over: Sequence[str] = (),
    *,
    method: Method = "tornado",
    metric: str = "step_time",
    between: tuple[str, str] | None = None,
    sets: Sequence[str] = (),
    variant: str | None = None,
    samples: int | None = None,
    steps: int | None = None,
    seed: int | None = None,
    jobs: int | None = None,
    ray: str | None = None,
    out: str | Path | None = None,
    progress: Progress | None = None,
) -> Sensitivity:
    """Move every input to its low and its high value, one at a time; with `method` sobol or morris all at once too.

    `over`: `key=low..high[:log]`, or `key` with its default range; none: the profile's parameters with their own
    ranges, lengths, network, KV budget and others (`rlsim.plan.uncertain`). `metric`: a figure of `rlsim run --json`,
    or `margin` between two variants (`between`; default: the variant and the fastest of the other placement under the
    same schedule). `samples`: groups of points of sobol (a power of 2) or morris. Others as in `sweep`.
    """
    if method not in get_args(Method):
        raise UserError(f"no method {method!r}", key="--method", fix="tornado, sobol or morris")
    steps, samples = steps or STEPS, _samples(method, samples)
    loaded = api.load_scenario(file, sets).variants
    asked = _metric(loaded, metric, between, variant, steps)
    reports = [api.check(one) for name in asked.variants for one in loaded if one.variant == name]
    for report in reports:
        if not report.feasible:
            message, fix = f"{report.scenario.variant} does not fit into memory", report.memory.problems[0].fix
            raise UserError(message, file=str(file), fix=fix)
    inputs, unread = inputs_of(reports, over, asked.key.startswith("cost."))
    study = read_study(file, tuple(sets), steps, seed)
    ends = {one.key: [one.low, one.high, one.range.log] for one in inputs}
    manifest = manifest_of(
        study,
        [report.scenario for report in reports],
        {"sensitivity": list(asked.variants), "over": ends, "method": [method, samples]},
    )
    with Runner(study, jobs=jobs, ray=ray, out=out, manifest=manifest, progress=progress) as runner:
        value, effects = _one_at_a_time(runner, asked, inputs)
        sampled: Sampled | None = None
        if method != "tornado":
            effects, sampled = _all_at_once(runner, asked, effects, method, samples, limit=not over)
        return Sensitivity(
            reports[0].scenario.name, method, asked, value, effects, unread, sampled, steps, runner.simulated
        )


def _samples(method: Method, samples: int | None) -> int:
    if method == "tornado":
        if samples is not None:
            raise UserError("a tornado has no samples", key="--samples", fix="--method sobol or --method morris")
        return 0
    count = samples if samples is not None else indices.SAMPLES[method]
    if method == "sobol" and (count < 2 or count & (count - 1)):
        raise UserError(f"{count} is not a power of 2", key="--samples", fix=f"{2 ** max(3, count.bit_length())}")
    if count < 2:
        raise UserError(f"{count} walks", key="--samples", fix="at least 2")
    return count


def _metric(
    loaded: Sequence[Scenario], metric: str, between: tuple[str, str] | None, variant: str | None, steps: int
) -> Metric:
    """The figure, and the variants that it is of."""
    names = [one.variant for one in loaded]
    for name in (*(between or ()), *((variant,) if variant is not None else ())):
        if name not in names:
            raise UserError(f"no variant {name!r}", key="--variant or --between", fix="one of " + ", ".join(names))
    first = variant or names[0]
    if metric != MARGIN:
        if between is not None:
            raise UserError("two variants have no single figure", key="--between", fix="--metric margin")
        return Metric(figures.figure(metric), (first,))
    if between is not None:
        return Metric(MARGIN, between)
    base = next(one for one in loaded if one.variant == first)
    others = [one for one in loaded if one.placement != base.placement and one.schedule == base.schedule]
    others = others or [one for one in loaded if one.placement != base.placement]
    if not others:
        fix = "a variant of the other placement, or --between A,B"
        raise UserError(f"the file has no variant that is not {base.placement}", key="--metric margin", fix=fix)
    if len(others) == 1:
        return Metric(MARGIN, (first, others[0].variant))
    compared = [one for one in api.compare(others, steps=steps).summaries if one["feasible"]]
    if not compared:
        raise UserError(
            "no variant of the other placement fits into memory", key="--metric margin", fix="--between A,B"
        )
    return Metric(MARGIN, (first, min(compared, key=lambda one: one["step_time_s"]["mean"])["variant"]))


def _cases(metric: Metric, settings: Mapping[int, tuple[Setting, ...]]) -> dict[int, Case]:
    """One case for every variant at every point, numbered by point."""
    count = len(metric.variants)
    return {n * count + v: Case(name, given) for n, given in settings.items() for v, name in enumerate(metric.variants)}


def _one_at_a_time(runner: Runner, metric: Metric, inputs: Sequence[Input]) -> tuple[float, tuple[Effect, ...]]:
    """The figure as it is, and every effect, largest first. Point 0 is the scenario; 1 + 2i, 2 + 2i are ends of i."""
    points: dict[int, tuple[Setting, ...]] = {0: ()}
    for i, one in enumerate(inputs):
        points |= {1 + 2 * i: ((one.key, one.low),), 2 + 2 * i: ((one.key, one.high),)}
    found = _figures(runner, metric, points)
    base, message = found[0]
    if base is None:
        raise UserError(f"there is no {metric.label}: {message}", key=f"--metric {metric.key}", fix="another figure")
    effects = []
    for i, one in enumerate(inputs):
        (low, why_low), (high, why_high) = found[1 + 2 * i], found[2 + 2 * i]
        effects.append(Effect(one, base, low, high, why_low or why_high))
    order = sorted(effects, key=lambda e: (e.swing is None, -(e.swing or 0.0), e.input.key))
    return base, tuple(order)


def _figures(
    runner: Runner, metric: Metric, points: Mapping[int, tuple[Setting, ...]]
) -> dict[int, tuple[float | None, str | None]]:
    """The figure at every point, or why it has none."""
    outcomes, count = runner.run(_cases(metric, points)), len(metric.variants)
    found = {}
    for n in points:
        here = [outcomes[n * count + v] for v in range(count)]
        message = next((one.message for one in here if one.status != "ok"), None)
        found[n] = (metric.of(here), message)
    return found


def _all_at_once(
    runner: Runner,
    metric: Metric,
    effects: tuple[Effect, ...],
    method: Literal["sobol", "morris"],
    samples: int,
    limit: bool,
) -> tuple[tuple[Effect, ...], Sampled]:
    """The indices of the inputs, and how the figure is spread; points are numbered after those of the tornado."""
    seed = 0
    moving = [e for e in effects if e.swing is not None]
    chosen = moving[:TOP] if limit and method == "sobol" else moving
    if not chosen:
        raise UserError("no input has a figure at both ends", key="--over", fix="narrower ranges")
    first, inputs = 1 + 2 * len(effects), [e.input for e in chosen]
    shares = indices.points(method, len(inputs), samples, seed)
    rows = {
        first + n: tuple((one.key, one.range.at(share)) for one, share in zip(inputs, row, strict=True))
        for n, row in enumerate(shares.tolist())
    }
    found = [value for value, _ in _figures(runner, metric, rows).values()]
    kept = indices.whole(method, found, len(inputs))
    if kept.sum() < 2 * indices.size(method, len(inputs)):
        raise UserError("too few points have a figure", key="--over", fix="narrower ranges, or more --samples")
    values = np.array([value for value, keep in zip(found, kept, strict=True) if keep], dtype=np.float64)
    by_key = dict(zip((one.key for one in inputs), indices.indices(method, shares[kept], values, seed), strict=True))
    p10, p50, p90 = np.quantile(values, (0.1, 0.5, 0.9)).tolist()
    sampled = Sampled(len(found), len(found) - len(values), float(values.mean()), p10, p50, p90)
    marked = [replace(e, index=by_key.get(e.input.key, NONE)) for e in effects]
    return tuple(sorted(marked, key=_weight)), sampled


def _weight(effect: Effect) -> tuple[bool, float, float]:
    """Largest index first; those without one by their swing."""
    of = effect.index.total if effect.index.total is not None else effect.index.mu_star
    return of is None, -(of or 0.0), -(effect.swing or 0.0)
