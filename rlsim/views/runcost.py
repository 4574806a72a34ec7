"""What a training costs, as a table with one column for each variant."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from rlsim.costs.training_layer import IDLE_SHARE
from rlsim.runcost import RunCost

Cell = Callable[[RunCost], str]


def report(costs: Sequence[RunCost]) -> RenderableType:
    """The table, the prices it rests on, and what is not in it."""
    table = Table(box=None, padding=(0, 2, 0, 0), show_edge=False, header_style="bold")
    table.add_column(f"{costs[0].steps:,} steps", no_wrap=True)
    for one in costs:
        table.add_column(one.variant, justify="right", no_wrap=True)
    for name, cell in _rows(costs):
        table.add_row(name, *[cell(one) for one in costs], style="bold" if name == "run time" else None)
    notes = [*_prices(costs), *_notes(costs)]
    return Group(Text(costs[0].name, style="bold"), table, Text(""), *(Text(note, style="dim") for note in notes))


def duration(seconds: float) -> str:
    """In the unit that a person would say it in."""
    for limit, size, unit in ((120, 1, "s"), (7200, 60, "min"), (172800, 3600, "h")):
        if seconds < limit:
            return f"{seconds / size:,.1f} {unit}"
    return f"{seconds / 86400:,.1f} days"


def _rows(costs: Sequence[RunCost]) -> list[tuple[str, Cell]]:
    rows: list[tuple[str, Cell]] = [
        ("one step", lambda c: f"{c.step_s:,.1f} s"),
        ("useful work", lambda c: duration(c.useful_s)),
    ]
    if any(c.checkpoint_every for c in costs):
        rows += [("checkpoints every", _every), ("  trainer held up", lambda c: duration(c.checkpoint_s))]
    if any(c.mtbf_s for c in costs):
        rows += [
            ("trainer crash every", lambda c: duration(c.mtbf_s) if c.mtbf_s else "-"),
            ("  crashes expected", lambda c: f"{c.crashes:,.2f}"),
            ("  restarts, work lost", lambda c: duration(c.lost_s)),
            ("goodput", lambda c: f"{c.goodput:.1%}"),
        ]
    return [
        *rows,
        ("run time", lambda c: duration(c.wall_s)),
        ("GPU-hours", lambda c: f"{c.gpu_hours:,.0f}"),
        ("cost", lambda c: f"${c.usd:,.0f}"),
        ("  a step", lambda c: f"${c.usd_per_step:,.2f}"),
        ("  1,000 steps", lambda c: f"${1000 * c.usd_per_step:,.0f}"),
        ("energy of the GPUs", lambda c: f"{c.kwh:,.0f} kWh"),
        ("  a step", lambda c: f"{c.kwh_per_step:,.2f} kWh"),
    ]


def _every(one: RunCost) -> str:
    if one.checkpoint_every is None:
        return "never"
    text = f"{one.checkpoint_every:,} steps"
    if one.chosen:
        return f"{text} (best)"
    return text if one.best_every in (None, one.checkpoint_every) else f"{text} (best: {one.best_every:,})"


def _prices(costs: Sequence[RunCost]) -> list[str]:
    """Where dollars come from, once each."""
    lines = [f"${p.usd_per_gpu_hour:.2f} a {p.gpu}-hour: {p.source}" for one in costs for p in one.prices]
    return list(dict.fromkeys(lines))


def _notes(costs: Sequence[RunCost]) -> list[str]:
    notes = [
        f"energy: GPUs at their power limit while they work, at {IDLE_SHARE:.0%} of it while they wait; decoding draws "
        "less; hosts, network and cooling are not in it"
    ]
    if not any(one.mtbf_s for one in costs):
        notes.append("no failures: --mtbf 150d (of one node), or faults in the file, put them in")
    return notes
