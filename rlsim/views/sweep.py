"""`rlsim sweep`: one line per variant and point, with the figures asked for."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from rlsim.plan import figures
from rlsim.plan.sweep import Row, Sweep

MOST = 40
"""Rows shown in the order of the points; of more, the best `BEST`."""
BEST = 20


def report(answer: Sweep, metrics: Sequence[str], out: Path | None) -> RenderableType:
    """The table, what the best point is, what did not work, and where all of it is."""
    rows, title = _chosen(answer, metrics[0])
    parts: list[RenderableType] = [Text(_head(answer), style="bold")]
    if title:
        parts.append(Text(title))
    parts += [Text(""), _table(answer, rows, metrics), Text("")]
    parts += [Text(line) for line in (*_best(answer, metrics[0]), *_failures(answer))]
    if out is not None:
        parts.append(Text(f"wrote {out}/ (sweep.csv, sweep.parquet; {answer.simulated:,} simulated now)"))
    return Group(*parts)


def _head(answer: Sweep) -> str:
    points = len(answer.rows) // len(answer.variants)
    kind = {"grid": "grid", "random": "random sample", "lhs": "Latin hypercube"}[answer.space.sampler]
    several = f" x {len(answer.variants)} variants" if len(answer.variants) > 1 else f", {answer.variants[0]}"
    return f"{answer.name}: {points:,} points ({kind} over {', '.join(answer.space.keys)}){several}"


def _chosen(answer: Sweep, metric: str) -> tuple[Sequence[Row], str]:
    if len(answer.rows) <= MOST:
        return answer.rows, ""
    ranked = _ranked(answer.rows, metric)
    return ranked[:BEST], f"the {min(BEST, len(ranked))} best of {len(answer.rows):,} by {figures.heading(metric)}"


def _ranked(rows: Sequence[Row], metric: str) -> list[Row]:
    """Rows that have the figure, best first; equal ones in the order of the points."""
    sign = -1 if figures.more_is_better(metric) else 1
    known = [row for row in rows if row.outcome.values.get(metric) is not None]
    return sorted(known, key=lambda row: sign * row.outcome.values[metric])


def _table(answer: Sweep, rows: Sequence[Row], metrics: Sequence[str]) -> Table:
    table = Table(box=None, padding=(0, 2, 0, 0), header_style="bold")
    for key in answer.space.keys:
        table.add_column(key.removeprefix("workload."), justify="right")
    several = len(answer.variants) > 1
    if several:
        table.add_column("variant")
    for metric in metrics:
        table.add_column(figures.heading(metric), justify="right")
    for row in rows:
        cells = [value for _, value in row.settings] + ([row.variant] if several else [])
        if row.outcome.values:
            cells += [number(row.outcome.values.get(metric)) for metric in metrics]
        else:
            cells += ["does not fit" if row.outcome.status == "infeasible" else "failed"]
        table.add_row(*cells)
    return table


def _best(answer: Sweep, metric: str) -> list[str]:
    ranked = _ranked(answer.rows, metric)
    if len(ranked) < 2:
        return []
    best, worst = ranked[0], ranked[-1]
    where = ", ".join(f"{key} = {value}" for key, value in best.settings)
    name = f" ({best.variant})" if len(answer.variants) > 1 else ""
    values = best.outcome.values[metric], worst.outcome.values[metric]
    return [f"Best {figures.heading(metric)}: {number(values[0])} at {where}{name}; worst {number(values[1])}."]


def _failures(answer: Sweep) -> list[str]:
    """How many rows have no figures, with the first one's reason."""
    lines = []
    for status, words in (("infeasible", "do not fit into memory"), ("error", "failed")):
        first = next((row for row in answer.rows if row.outcome.status == status), None)
        if first is not None:
            where = ", ".join(f"{key} = {value}" for key, value in first.settings)
            verb = words if answer.count(status) > 1 else words.replace("do not", "does not")
            lines.append(f"{answer.count(status):,} {verb}; the first, at {where}: {first.outcome.message}")
    return lines


def number(value: float | None) -> str:
    """Four digits, thousands separated."""
    if value is None:
        return "-"
    digits = 0 if abs(value) >= 1000 else 1 if abs(value) >= 100 else 2 if abs(value) >= 1 else 4
    return f"{value:,.{digits}f}"
