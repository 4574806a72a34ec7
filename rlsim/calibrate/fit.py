"""Fits of the benchmarks' forms to tables, and their errors on what was held out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from rlsim.calibrate import hold_out
from rlsim.calibrate.forms import APART, FORMS, Form, Term
from rlsim.calibrate.least_squares import Floats, Solution, quantiles, relative_errors, solve
from rlsim.errors import UserError

if TYPE_CHECKING:
    import pandas as pd

RANGES = (
    "m", "n", "k", "bytes", "world", "batch", "context", "tokens", "parameters", "micro_batch", "sequence", "receivers",
    "nic",
)  # fmt: skip
"""Columns whose least and most are a fit's range of validity."""
DRAW = 1.1  # scatter over the best form's up to which an earlier form is kept
PREFERRED = {
    "broadcast": "tree",
    "send": "pipeline",
    "sendrecv": "pipeline",
    "send_recv": "pipeline",
    "p2p": "pipeline",
    "all_to_all": "ring of a whole",
    "reduce_scatter": "ring of a whole",
    "all_reduce": "two halves of a ring",
}
"""Form that comes first for an operation."""
PREFERRED_SYNC = {
    "root-fanout": "a copy to each",
    "p2p": "shares to each",
    "chain": "pipelined buckets",
    "replicate": "to one, then along its peers",
    "broadcast": "tree",
}
"""Form that comes first for a way of moving weights (`rlsim.reshard.distributed`)."""


@dataclass(frozen=True)
class Coefficient:
    """One fitted term, SI."""

    value: float
    stderr: float
    unit: str


@dataclass(frozen=True)
class Errors:
    """Of predictions over measurements - 1: number, median and 90th percentile of the absolute, median signed."""

    points: int
    median: float
    p90: float
    bias: float


@dataclass(frozen=True)
class Fitted:
    """One form fitted to one group of one benchmark.

    group         values of the columns that are fitted apart
    coefficients  by term; correlations between terms' log errors
    fitted, held  errors on the points that were fitted, and on those held out (None: nothing was)
    unseen        predicted over measured - 1 of each point that was held out
    ranges        least and most of the fitted points
    models        distinct model shapes among the points
    """

    benchmark: str
    group: Mapping[str, Any]
    form: str
    coefficients: Mapping[str, Coefficient]
    correlations: Mapping[tuple[str, str], float]
    fitted: Errors
    held: Errors | None
    ranges: Mapping[str, tuple[float, float]]
    files: tuple[str, ...]
    machine: str
    repetitions: int
    scatter: float
    models: int = 1
    unseen: tuple[float, ...] = ()

    @property
    def name(self) -> str:
        """ "collective all_gather gloo" """
        return " ".join([self.benchmark, *(str(v) for v in self.group.values())])


def fit_all(points: pd.DataFrame, rules: Sequence[str], model: pd.DataFrame | None = None) -> list[Fitted]:
    """Every benchmark's groups. `model`: one row with the shape at which terms that differ by model are given."""
    hold_out.check_rules(rules)
    unknown = sorted(set(points["benchmark"]) - set(FORMS))
    if unknown:
        raise UserError(f"no form for benchmark {unknown[0]!r}", fix="one of " + ", ".join(FORMS))
    found = []
    for benchmark, rows in points.groupby("benchmark", sort=False):
        apart = [c for c in APART if c in rows.columns and rows[c].notna().any()]
        groups = rows.groupby(apart, dropna=False, sort=False) if apart else [((), rows)]
        for key, group in groups:
            varied = {c: v for c, v in zip(apart, key, strict=True) if rows[c].nunique(dropna=False) > 1}
            found.append(fit_group(str(benchmark), varied, group, rules, model))
    return found


def fit_group(
    benchmark: str, group: Mapping[str, Any], rows: pd.DataFrame, rules: Sequence[str], model: pd.DataFrame | None
) -> Fitted:
    """The best form of one group. Held-out points choose nothing and fit nothing."""
    held = hold_out.held_out(rows, benchmark, rules)
    if held.all():
        raise UserError(
            f"{' '.join([benchmark, *map(str, group.values())])}: every point is held out",
            key="--hold-out",
            fix="a rule that leaves points to fit",
        )
    seconds = rows["seconds"].to_numpy(dtype=np.float64)
    first = FORMS[benchmark][0].name
    first = PREFERRED.get(str(group.get("op")), PREFERRED_SYNC.get(str(group.get("strategy")), first))
    forms = sorted(FORMS[benchmark], key=lambda f: f.name != first)
    tried = [_solved(form, rows, seconds, held) for form in forms]
    least = min(solution.scatter for _, _, _, solution in tried)
    form, terms, amounts, solution = next(t for t in tried if t[3].scatter <= DRAW * least + 1e-3)
    predicted = solution.predict(amounts)
    errors = relative_errors(predicted, seconds)
    coefficients, correlations = _coefficients(terms, solution, rows if model is None else model)
    machines = dict.fromkeys(str(m) for c in ("machine", "device") if c in rows.columns for m in rows[c].dropna())
    return Fitted(
        benchmark=benchmark,
        group=group,
        form=form.name,
        coefficients=coefficients,
        correlations=correlations,
        fitted=_errors(errors[~held]),
        held=_errors(errors[held]) if held.any() else None,
        ranges=_ranges(rows[~held]),
        files=tuple(dict.fromkeys(rows["file"])),
        machine=", ".join(machines) or "not stated",
        repetitions=int(rows["repetitions"].sum()),
        scatter=solution.scatter,
        models=len(rows[[c for c in ("parameters", "layers", "hidden") if c in rows]].drop_duplicates()),
        unseen=tuple(errors[held].tolist()),
    )


def _solved(
    form: Form, rows: pd.DataFrame, seconds: Floats, held: hold_out.Mask
) -> tuple[Form, list[Term], Floats, Solution]:
    """Terms that the fitted points can tell apart, their amounts for all points, and the solution."""
    terms: list[Term] = []
    columns: list[Floats] = []
    for term in form.terms:
        amount = term.amount(rows) * (term.per(rows) if term.per is not None else 1.0)
        seen = amount[~held]
        if seen.any() and not any(_proportional(seen, other[~held]) for other in columns):
            terms.append(term)
            columns.append(amount)
    amounts = np.stack(columns, axis=1)
    solution = solve(amounts[~held], seconds[~held])
    return form, terms, amounts, solution


def _proportional(a: Floats, b: Floats) -> bool:
    return bool(abs(float(a @ b)) >= (1 - 1e-9) * float(np.linalg.norm(a) * np.linalg.norm(b)))


def _coefficients(
    terms: Sequence[Term], solution: Solution, at: pd.DataFrame
) -> tuple[dict[str, Coefficient], dict[tuple[str, str], float]]:
    """Terms of one name added up at the shape of `at`'s first row; errors and correlations go along, first order."""
    names = list(dict.fromkeys(terms[i].name for i in solution.used))
    weights = np.zeros((len(names), len(solution.used)))
    units = {terms[i].name: terms[i].unit for i in solution.used}
    for n, (i, value) in enumerate(zip(solution.used, solution.coefficients, strict=True)):
        per = terms[i].per
        weights[names.index(terms[i].name), n] = value * (float(per(at)[0]) if per is not None else 1.0)
    values = weights.sum(axis=1)
    covariance = solution.correlations * np.outer(solution.errors, solution.errors)
    joint = weights @ covariance @ weights.T
    errors = np.sqrt(np.diag(joint))
    coefficients = {name: Coefficient(float(values[n]), float(errors[n]), units[name]) for n, name in enumerate(names)}
    pairs = {
        (names[a], names[b]): float(joint[a, b] / (errors[a] * errors[b]))
        for a in range(len(names))
        for b in range(a + 1, len(names))
        if errors[a] > 0 and errors[b] > 0
    }
    return coefficients, pairs


def _errors(errors: Floats) -> Errors:
    return Errors(len(errors), *quantiles(errors))


def _ranges(rows: pd.DataFrame) -> dict[str, tuple[float, float]]:
    found = {}
    for name in RANGES:
        if name in rows.columns and rows[name].notna().any():
            found[name] = (float(rows[name].min()), float(rows[name].max()))
    return found
