"""Which inputs move a figure: a tornado as text and as a picture, and what to find out first."""

from __future__ import annotations

from pathlib import Path

import plotly.graph_objects as go
from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from rlsim.plan.keys import PROFILE
from rlsim.plan.sensitivity import MARGIN, Effect, Metric, Sensitivity
from rlsim.plan.uncertain import Input
from rlsim.scenario.quantity import BYTES, RATE, SECONDS
from rlsim.views.palette import SERIES

SHOWN = 12
FAINT = 0.002
"""Share of the figure below which an input hardly moves it."""
BAR = 24
_UNITS = {"s": SECONDS, "B": BYTES, "B/s": RATE}


def report(answer: Sensitivity) -> RenderableType:
    """The figure, the table of what moves it, and the sentences."""
    shown = [e for e in answer.effects if e.swing is not None or e.message is not None][:SHOWN]
    parts: list[RenderableType] = [
        Text(_head(answer), style="bold"),
        Text(_how(answer)),
        Text(""),
        _table(answer, shown),
        Text(""),
        Text("What would change your mind", style="bold"),
        *(Padding(Text(line), (0, 0, 0, 2), expand=False) for line in sentences(answer)),
        Text(f"\n{answer.simulations:,} simulations of {answer.steps} steps each", style="dim"),
    ]
    return Group(*parts)


def _head(answer: Sensitivity) -> str:
    if answer.metric.key == MARGIN:
        return f"{answer.name}: {_lead(answer)}"
    return f"{answer.name}, {answer.variant}: {_plain(answer.metric)} {amount(answer.base, answer.metric)}"


def _plain(metric: Metric) -> str:
    """The figure's name without its unit."""
    return metric.label.removesuffix(f" ({metric.unit})")


def _lead(answer: Sensitivity) -> str:
    """Who is ahead, and by how much of the faster one's step."""
    first, second = answer.metric.variants
    ahead, behind = (first, second) if answer.base > 0 else (second, first)
    longer = answer.base if answer.base > 0 else 1 / (1 + answer.base) - 1
    return f"a step of {behind} takes {longer:.1%} longer than one of {ahead}"


def _how(answer: Sensitivity) -> str:
    told = "Each input at the low and at the high end of its range, everything else as it is."
    if answer.sampled is None:
        return told
    s = answer.sampled
    inside = (
        f"All {_moved(answer)} of them at once, {s.points:,} points: {_range(s.p10, s.p90, answer.metric)} (p10-p90)."
    )
    left = (
        f" {s.dropped:,} points left out: some of their group do not fit or contradict each other." if s.dropped else ""
    )
    return f"{told}\n{inside}{left}"


def _moved(answer: Sensitivity) -> int:
    """Inputs that have an index."""
    return sum(e.index.total is not None or e.index.mu_star is not None for e in answer.effects)


def _table(answer: Sensitivity, shown: list[Effect]) -> Table:
    table = Table(box=None, padding=(0, 2, 0, 0), header_style="bold")
    table.add_column("input", no_wrap=True)
    for title in ("low", "as it is", "high"):
        table.add_column(title, justify="right", no_wrap=True)
    for title in ("at low", "at high", "swing"):
        table.add_column(title, justify="right", no_wrap=True)
    if answer.metric.key != MARGIN:
        table.add_column("", justify="right", no_wrap=True)
    extra = _index_columns(answer)
    for title in extra:
        table.add_column(title, justify="right", no_wrap=True)
    if not extra:
        table.add_column("", no_wrap=True)
    for effect in shown:
        given, metric = effect.input, answer.metric
        cells = [
            short(given),
            text_of(given, given.low),
            text_of(given, given.value) or "-",
            text_of(given, given.high),
        ]
        cells += [_cell(effect.at_low, metric), _cell(effect.at_high, metric), _size(effect.swing, metric, unit=False)]
        if metric.key != MARGIN:
            cells.append("" if effect.swing is None or not answer.base else f"{effect.swing / abs(answer.base):.1%}")
        cells += _index_cells(effect, answer) if extra else [_bar(effect, shown)]
        table.add_row(*cells)
    return table


def _index_columns(answer: Sensitivity) -> list[str]:
    return {"sobol": ["first order", "total"], "morris": ["mean effect", "spread of it"]}.get(answer.method, [])


def _index_cells(effect: Effect, answer: Sensitivity) -> list[str]:
    """Sobol indices with half the width of their 95% interval; Morris effects in units of the figure."""
    i = effect.index
    if answer.method == "sobol":
        pairs = [(i.first, i.first_conf), (i.total, i.total_conf)]
        return ["-" if a is None else f"{a:.2f} ± {b or 0.0:.2f}" for a, b in pairs]
    if i.mu_star is None:
        return ["-", "-"]
    return [
        f"{_cell(i.mu_star, answer.metric)} ± {_cell(i.mu_star_conf or 0.0, answer.metric)}",
        _cell(i.sigma, answer.metric),
    ]


def _bar(effect: Effect, shown: list[Effect]) -> str:
    """From the lower to the higher end, the scenario marked; all rows on one scale."""
    ends = [v for e in shown for v in (e.at_low, e.at_high, e.base) if v is not None]
    low, high = min(ends), max(ends)
    mine = [v for v in (effect.at_low, effect.at_high, effect.base) if v is not None]

    def place(value: float) -> int:
        return round((value - low) / (high - low) * (BAR - 1)) if high > low else 0

    cells = [" "] * BAR
    cells[place(min(mine)) : place(max(mine)) + 1] = "━" * (place(max(mine)) - place(min(mine)) + 1)
    cells[place(effect.base)] = "┃"
    return "".join(cells).rstrip()


def sentences(answer: Sensitivity) -> list[str]:
    """What to find out before deciding, in plain words."""
    metric, told = answer.metric, []
    known = [e for e in answer.effects if e.swing is not None]
    large = [e for e in known if (e.swing or 0.0) >= _faint(answer)]
    told += [_one(answer, effect) for effect in sorted(large, key=lambda e: -(e.swing or 0.0))[:3]]
    if metric.key == MARGIN:
        told.append(_winner(answer))
    if answer.method == "sobol" and answer.sampled is not None:
        told += _variance(answer)
    told += [f"{short(e.input)} has no figure at one end: {e.message}" for e in answer.effects if e.message][:3]
    small = len(known) - len(large)
    if small:
        told.append(f"{small} of {len(known)} inputs move it by less than {_size(_faint(answer), metric)} each.")
    if answer.no_effect:
        told.append(f"{len(answer.no_effect)} parameters of the profile play no part in this run.")
    return told


def _faint(answer: Sensitivity) -> float:
    return FAINT if answer.metric.key == MARGIN else FAINT * abs(answer.base)


def _one(answer: Sensitivity, effect: Effect) -> str:
    given, metric = effect.input, answer.metric
    what = f"{short(given)} ({given.label})" if given.label else short(given)
    at = ((given.low, effect.at_low), (given.high, effect.at_high))
    ends = ", ".join(f"{amount(v, metric)} at {text_of(given, text)}" for text, v in at if v is not None)
    return f"{what}: {ends}."


def _winner(answer: Sensitivity) -> str:
    """Whether any single input makes the other variant the faster one."""
    lead, flips = _upper(_lead(answer)), [short(e.input) for e in answer.effects if e.flips]
    if not flips:
        return f"{lead}, and no input alone turns that."
    return f"{lead}; alone within its range, each of these turns that: {', '.join(flips)}."


def _variance(answer: Sensitivity) -> list[str]:
    """How few inputs carry the uncertainty, and whether they act together."""
    ranked = [e for e in answer.effects if e.index.first is not None]
    alone = sum(max(0.0, e.index.first or 0.0) for e in ranked)
    lead = [e for e in ranked if (e.index.total or 0.0) >= 0.1]
    told = []
    if lead:
        names = ", ".join(f"{short(e.input)} {e.index.total:.0%}" for e in lead)
        told.append(f"Of the variance with all moving at once, this much goes with: {names}. Narrow these down first.")
    if alone < 0.8:
        told.append(f"Alone the inputs explain {alone:.0%} of the variance: what one does depends on the others.")
    return told


def _upper(text: str) -> str:
    return text[:1].upper() + text[1:]


# --- words -----------------------------------------------------------------------------------------------------------
def short(given: Input) -> str:
    """The key without the block that everybody knows."""
    return given.key.removeprefix(PROFILE).removeprefix("workload.")


def text_of(given: Input, text: str) -> str:
    """A value with its unit: a scenario's text has it, a profile's number is SI."""
    if not text:
        return ""
    if given.kind == "scenario":
        return text if given.range.dimension is None or not text[-1].isdigit() else f"{text} {given.unit}"
    dimension = _UNITS.get(given.unit)
    if dimension is None:
        return f"{float(text):g} {given.unit}".strip()
    value = float(text)
    for unit, scale in _SCALES[given.unit]:
        if value >= scale:
            return f"{value / scale:.3g} {unit}"
    return f"{value:g} {given.unit}"


_SCALES = {
    "s": (("s", 1.0), ("ms", 1e-3), ("us", 1e-6)),
    "B": (("GB", 1e9), ("MB", 1e6), ("kB", 1e3)),
    "B/s": (("GB/s", 1e9), ("MB/s", 1e6)),
}


def amount(value: float, metric: Metric) -> str:
    """A figure with its unit."""
    if metric.key == MARGIN:
        return f"{value:+.1%}"
    text = _cell(value, metric)
    return f"${text}" if metric.unit == "$" else f"{text} {metric.unit}".strip()


def _size(value: float | None, metric: Metric, unit: bool = True) -> str:
    """How far a figure moves: of a margin, in percent of the step, without a sign."""
    if metric.key == MARGIN:
        return "-" if value is None else f"{value:.1%}"
    return amount(value, metric) if unit and value is not None else _cell(value, metric)


def _cell(value: float | None, metric: Metric) -> str:
    if value is None:
        return "-"
    if metric.key == MARGIN:
        return f"{value:+.1%}"
    digits = 0 if abs(value) >= 1000 else 1 if abs(value) >= 100 else 2 if abs(value) >= 1 else 4
    return f"{value:,.{digits}f}"


def _range(low: float, high: float, metric: Metric) -> str:
    return f"{_cell(low, metric)} to {amount(high, metric)}"


# --- picture ---------------------------------------------------------------------------------------------------------
def figure(answer: Sensitivity) -> go.Figure:
    """The tornado: a bar from the scenario's figure to that at either end, largest on top."""
    from rlsim.views.plots import style

    shown = [e for e in answer.effects if e.swing is not None][:SHOWN][::-1]
    names = [short(e.input) for e in shown]
    drawn = go.Figure()
    ends = (("low end", "at_low", "low", SERIES[0]), ("high end", "at_high", "high", SERIES[1]))
    for name, at, end, colour in ends:
        values = [getattr(e, at) for e in shown]
        drawn.add_bar(
            y=names,
            x=[value - answer.base for value in values],
            base=[answer.base] * len(shown),
            orientation="h",
            name=name,
            marker_color=colour,
            customdata=[
                [text_of(e.input, getattr(e.input, end)), amount(v, answer.metric)]
                for e, v in zip(shown, values, strict=True)
            ],
            hovertemplate="%{y} = %{customdata[0]}: %{customdata[1]}<extra></extra>",
        )
    drawn.add_vline(x=answer.base, line_color="#333333", line_width=1)
    unit = f" ({answer.metric.unit})" if answer.metric.unit else ""
    drawn.update_layout(
        barmode="overlay",
        title=f"{answer.name}, {answer.variant}: what moves the {_plain(answer.metric)}",
        xaxis_title=_plain(answer.metric) + unit,
        yaxis_title="input, at either end of its range",
    )
    if answer.metric.key == MARGIN:
        drawn.update_xaxes(tickformat="+.0%")
    return style(drawn, 180 + 30 * len(shown))


def index_figure(answer: Sensitivity) -> go.Figure:
    """Sobol or Morris indices with their 95% intervals."""
    from rlsim.views.plots import style

    sobol = answer.method == "sobol"
    shown = [e for e in answer.effects if (e.index.total if sobol else e.index.mu_star) is not None][:SHOWN][::-1]
    series = (
        (("first order", "first", SERIES[0]), ("total", "total", SERIES[2]))
        if sobol
        else (("mean effect", "mu_star", SERIES[2]),)
    )
    drawn = go.Figure()
    for name, key, colour in series:
        drawn.add_bar(
            y=[short(e.input) for e in shown],
            x=[getattr(e.index, key) for e in shown],
            error_x={"type": "data", "array": [getattr(e.index, f"{key}_conf") or 0.0 for e in shown]},
            orientation="h",
            name=name,
            marker_color=colour,
        )
    unit = answer.metric.unit or answer.metric.label
    title = "share of the variance" if sobol else f"mean size of the change over the whole range ({unit})"
    drawn.update_layout(barmode="group", title="All inputs at once", xaxis_title=title, yaxis_title="input")
    return style(drawn, 180 + 45 * len(shown))


def write_html(answer: Sensitivity, path: Path) -> None:
    """A page with the pictures and the text."""
    from rlsim.views import files, html

    drawn = [figure(answer)] + ([index_figure(answer)] if answer.sampled is not None else [])
    files.write_text(path, html.page(f"{answer.name}: sensitivity", drawn, report(answer)), "--html")
