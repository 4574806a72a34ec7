"""Where co-located and disaggregated trade places: maps as text, the line by column, and what follows in words."""

from __future__ import annotations

from itertools import groupby, pairwise
from math import exp, sqrt
from pathlib import Path

import plotly.graph_objects as go
from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from rlsim.plan.crossover.axes import Axis
from rlsim.plan.crossover.crossover import Border, Crossover
from rlsim.plan.crossover.designs import COLOCATED
from rlsim.plan.crossover.refine import NONE, A, B
from rlsim.views.palette import SERIES

MARKS = {A: ("■", SERIES[0]), B: ("·", SERIES[1]), NONE: ("×", "#666666")}
OWN = {A: "▣", B: "◉", NONE: "⊗"}
CLOSE = 0.02
"""Differences of step time below this are called a tie."""
WORTH = 0.1
"""How far the middle of one side must lie from the other's, as a share of an axis, to say in which direction it is."""


def report(answer: Crossover) -> RenderableType:
    """The maps side by side, the line as numbers, and the sentences."""
    x, y = answer.x, answer.y
    lattice = len(x.values) * len(y.values)
    parts: list[RenderableType] = [
        Text(f"{answer.name}: {answer.model}, {name(x)} across, {name(y)} up", style="bold"),
        Text("■ co-located is faster   · the other is faster   × neither fits   ▣ ◉ the file's own point"),
        Text(""),
        _maps(answer),
        Text(""),
        Text(f"Who is faster from low to high {name(y)}, and where that changes", style="bold"),
        _columns(answer),
        Text(""),
        *(Padding(Text(line), (0, 0, 0, 2), expand=False) for line in sentences(answer)),
        Text(
            f"\n{answer.simulations:,} simulations of {answer.steps} steps each, at {len(answer.points):,} of"
            f" {lattice:,} points: where a line runs",
            style="dim",
        ),
    ]
    return Group(*parts)


def _maps(answer: Crossover) -> Table:
    table = Table(box=None, padding=(0, 2, 0, 0), header_style="bold")
    table.add_column(label(answer.y), justify="right", no_wrap=True)
    width = 2 * len(answer.x.values) - 1
    for border in answer.borders:
        table.add_column(title(border), no_wrap=True, min_width=width)
    for j in reversed(range(len(answer.y.values))):
        table.add_row(value(answer.y, answer.y.values[j]), *(_line(answer, border, j) for border in answer.borders))
    low, high = (value(answer.x, at) for at in (answer.x.values[0], answer.x.values[-1]))
    ends = f"{low}{high:>{max(1, width - len(low))}}" if low != high else low
    table.add_row(f"{label(answer.x)}:", *(Text(ends, style="dim") for _ in answer.borders))
    return table


def _line(answer: Crossover, border: Border, j: int) -> Text:
    line = Text()
    for i in range(len(answer.x.values)):
        side = border.winner[j][i]
        mark, colour = MARKS[side]
        line.append((OWN[side] if answer.own.at == (i, j) else mark) + " ", style=colour)
    line.rstrip()
    return line


def _columns(answer: Crossover) -> Table:
    """For every value of x, who is faster from the low to the high end of y."""
    table = Table(box=None, padding=(0, 2, 0, 0), header_style="bold")
    table.add_column(label(answer.x), justify="right", no_wrap=True)
    for border in answer.borders:
        table.add_column(title(border), no_wrap=True)
    for i, at in enumerate(answer.x.values):
        table.add_row(value(answer.x, at), *(_runs(answer, border, i) for border in answer.borders))
    return table


def _runs(answer: Crossover, border: Border, i: int) -> str:
    """`disaggregated < 431 < co-located`: who is faster, and the y at which that changes."""
    found = [(side, [j for j, _ in rows]) for side, rows in groupby(enumerate(column(border, i)), lambda row: row[1])]
    told = [_side(border, found[0][0])]
    for (_, before), (side, _) in pairwise(found):
        told.append(f"{value(answer.y, edge(answer, border, i, before[-1]))} < {_side(border, side)}")
    return " < ".join(told)


def column(border: Border, i: int) -> list[str]:
    """Sides of one column, from low to high."""
    return [row[i] for row in border.winner]


def edge(answer: Crossover, border: Border, i: int, j: int) -> float:
    """The y at which the side changes between lattice rows j and j + 1 in column i: where the margin is zero, else the
    middle.
    """
    ys, at = answer.y.values, answer.x.values[i]
    inside = [y for x, y in border.crossings if x == at and ys[j] <= y <= ys[j + 1]]
    if inside:
        return inside[0]
    return sqrt(ys[j] * ys[j + 1]) if ys[j] > 0 else (ys[j] + ys[j + 1]) / 2


# --- words -----------------------------------------------------------------------------------------------------------
def sentences(answer: Crossover) -> list[str]:
    """What the maps say, comparison by comparison, and how to read them."""
    told = [_own(answer)]
    told += [_area(answer, border) for border in answer.borders]
    told += [line for border in answer.borders if (line := _memory(answer, border))]
    told.append(
        "Layouts are the file's; a disaggregated point is the best of a few splits"
        + (", whole nodes from two nodes up." if answer.x.unit == "GPUs" or answer.y.unit == "GPUs" else ".")
    )
    return told


def _own(answer: Crossover) -> str:
    """The file's variants as `rlsim run` has them."""
    seconds = answer.own.seconds
    own = [(one, answer.own.regimes.get(one.b)) for one in answer.borders]
    a = answer.own.regimes.get(COLOCATED)
    pairs = [(one, variant) for one, variant in own if variant is not None and a is not None]
    if not pairs or a is None:
        return "The file has no variants of both placements; the base is played in each."
    told = [
        f"{seconds[variant]:,.1f} s {variant}" if seconds[variant] is not None else f"{variant} does not fit"
        for variant in dict.fromkeys([a, *(variant for _, variant in pairs)])
    ]
    return "The file's own variants, a step: " + ", ".join(told) + "."


def _area(answer: Crossover, border: Border) -> str:
    """How much of the map each side has, where it lies, and by how much it wins there."""
    cells = [(side, i, j) for j, row in enumerate(border.winner) for i, side in enumerate(row)]
    mine = [(i, j) for side, i, j in cells if side == A]
    other = [(i, j) for side, i, j in cells if side == B]
    head = f"{policy(border).capitalize()}, "
    if not other and not mine:
        return head + f"neither co-located nor {_side(border, B)} fits anywhere on the map."
    if not other or not mine:
        return head + f"{_side(border, A if mine else B)} is faster on the whole map{_most(answer, border)}."
    share = len(other) / (len(mine) + len(other))
    toward = _toward(answer, mine, other)
    where = f", towards {toward}" if toward else ""
    return head + f"{_side(border, B)} is faster on {share:.0%} of the map{where}{_most(answer, border)}."


def _most(answer: Crossover, border: Border) -> str:
    """The largest leads of both sides among the visited points; who leads by less than `CLOSE` ties."""
    known = {point: look.margin for point, look in border.seen.items() if look.margin is not None}
    if not known:
        return ""
    ends = [(max(known, key=lambda p: known[p]), A), (min(known, key=lambda p: known[p]), B)]
    told = []
    for point, side in ends:
        lead = 1 - exp(-abs(known[point]))
        if known[point] * (1 if side == A else -1) > 0 and lead >= CLOSE:
            told.append(f"with {_side(border, side)} a step is up to {lead:.0%} shorter ({_at(answer, point)})")
    return "; " + ", ".join(told) if told else "; by under 2% everywhere"


def _toward(answer: Crossover, mine: list[tuple[int, int]], other: list[tuple[int, int]]) -> str:
    """In which direction of the axes the other side lies."""
    told = []
    for one, n in ((answer.x, 0), (answer.y, 1)):
        shift = sum(p[n] for p in other) / len(other) - sum(p[n] for p in mine) / len(mine)
        if abs(shift) >= WORTH * max(1, len(one.values) - 1):
            told.append(_word(one, shift > 0))
    return " and ".join(told)


def _word(one: Axis, up: bool) -> str:
    if one.unit == "GPUs":
        return "more GPUs" if up else "fewer GPUs"
    if one.unit == "tokens":
        return (
            "longer responses"
            if up and "response" in one.key
            else "shorter responses"
            if "response" in one.key
            else (f"{'more' if up else 'fewer'} tokens ({label(one)})")
        )
    return f"{'high' if up else 'low'} {label(one)}"


def _memory(answer: Crossover, border: Border) -> str:
    """Where a side has won because the other does not fit."""
    names = {A: border.b, B: COLOCATED}
    told = []
    for side, loser in names.items():
        lost = [p for p, look in border.seen.items() if look.margin is None and look.side == side]
        if lost:
            told.append(f"{loser} does not fit or divide at {len(lost)} of {len(border.seen)} visited points")
    none = [p for p, look in border.seen.items() if look.side == NONE]
    if none:
        reason = answer.points[min(none)][COLOCATED].message.splitlines()
        told.append(f"neither fits at {len(none)}" + (f" ({reason[0]})" if reason else ""))
    return f"{policy(border).capitalize()}, {border.b}: " + "; ".join(told) + "." if told else ""


def _side(border: Border, side: str) -> str:
    """What a side is called."""
    return {A: "co-located", B: "disaggregated" if border.name == "on-policy" else border.b, NONE: "neither fits"}[side]


def title(border: Border) -> str:
    """What a comparison is called: on-policy are those whose samples are of the version that is trained."""
    return f"{policy(border)}: {_side(border, B)}"


def policy(border: Border) -> str:
    return "on-policy" if border.name == "on-policy" else "off-policy"


def _at(answer: Crossover, point: tuple[int, int]) -> str:
    i, j = point
    return f"{named(answer.x, answer.x.values[i])}, {named(answer.y, answer.y.values[j])}"


def label(axis: Axis) -> str:
    """An axis's key without the block that everybody knows; `GPUs`."""
    return "GPUs" if axis.unit == "GPUs" else axis.key.removeprefix("workload.")


def name(axis: Axis) -> str:
    """The label with its unit."""
    return label(axis) + (f" ({axis.unit})" if axis.unit and axis.unit != "GPUs" else "")


def value(axis: Axis, amount: float) -> str:
    """Three digits, whole numbers whole; bandwidths and sizes in G."""
    if axis.unit in ("B", "B/s") and amount >= 1e9:
        return f"{amount / 1e9:.3g} G{axis.unit}"
    return f"{amount:,.0f}" if amount >= 100 else f"{amount:.3g}"


def named(axis: Axis, amount: float) -> str:
    """A value with its unit."""
    text = value(axis, amount)
    return text if not axis.unit or text.endswith(axis.unit) else f"{text} {axis.unit}"


# --- picture ---------------------------------------------------------------------------------------------------------
def figure(answer: Crossover) -> go.Figure:
    """One map for each comparison: sides as areas, the line between them, the simulated points, the file's own."""
    from rlsim.views.crossover_plot import draw

    return draw(answer)


def write_html(answer: Crossover, path: Path) -> None:
    """A page with the maps and the text."""
    from rlsim.views import files, html

    files.write_text(path, html.page(f"{answer.name}: crossover", [figure(answer)], report(answer)), "--html")
