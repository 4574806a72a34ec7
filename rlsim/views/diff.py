"""`rlsim diff`: the keys that differ, and the step of each side by side."""

from __future__ import annotations

from typing import Any

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from rlsim.difference import Difference
from rlsim.views import text
from rlsim.views.palette import PHASES, colour, label


def report(answer: Difference) -> RenderableType:
    """Changed keys, then seconds by phase with the change."""
    names = (_name(answer.a, answer.b), _name(answer.b, answer.a))
    parts: list[RenderableType] = [_keys(answer, names)]
    infeasible = [s for s in (answer.a, answer.b) if not s["feasible"]]
    if infeasible:
        parts += [text.problem_text(s) for s in infeasible]
        fits = [(s, name) for s, name in zip((answer.a, answer.b), names, strict=True) if s["feasible"]]
        parts += [Text(_alone(s, name), style="bold") for s, name in fits]
    else:
        parts += [Text(""), _phases(answer, names), Text(""), Text(_sentence(answer, names), style="bold")]
    return Group(*parts)


def _name(one: dict[str, Any], other: dict[str, Any]) -> str:
    return str(one["variant"] if one["variant"] != other["variant"] else one["name"])


def _keys(answer: Difference, names: tuple[str, str]) -> RenderableType:
    if not answer.changed:
        return Text("no key differs")
    table = Table(box=None, padding=(0, 2, 0, 0), header_style="bold")
    table.add_column("changed")
    for name in names:
        table.add_column(name, justify="right")
    for key, values in answer.changed.items():
        table.add_row(key, *[str(v) for v in values])
    return table


def _phases(answer: Difference, names: tuple[str, str]) -> Table:
    table = Table(box=None, padding=(0, 2, 0, 0), header_style="bold")
    table.add_column("seconds per step")
    for name in (*names, "change"):
        table.add_column(name, justify="right")
    rows = {"step time": (answer.a["step_time_s"]["mean"], answer.b["step_time_s"]["mean"])}
    rows |= {n: (answer.a["phases_s"][n], answer.b["phases_s"][n]) for n in PHASES}
    for name, (a, b) in rows.items():
        if a or b:
            shown = Text(label(name), style=colour(name) if name in PHASES else "bold")
            table.add_row(shown, f"{a:.2f}", f"{b:.2f}", f"{b - a:+.2f}")
    return table


def _alone(one: dict[str, Any], name: str) -> str:
    """The side that fits, where there is nothing to compare it with."""
    step, money = one["step_time_s"]["mean"], one["cost"]["usd_per_step"]
    return f"A step of {name} takes {step:.1f} s and costs {money:.2f} $."


def _sentence(answer: Difference, names: tuple[str, str]) -> str:
    a, b = answer.a["step_time_s"]["mean"], answer.b["step_time_s"]["mean"]
    money = answer.b["cost"]["usd_per_step"] - answer.a["cost"]["usd_per_step"]
    change = f"{abs(b / a - 1):.1%} {'less' if b < a else 'more'} than" if a != b else "as long as"
    return f"A step of {names[1]} takes {change} {names[0]} and costs {money:+.2f} $."
