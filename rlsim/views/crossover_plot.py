"""The crossover maps as a picture."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from math import exp, sqrt

import plotly.graph_objects as go
from plotly.subplots import make_subplots

from rlsim.plan.crossover.crossover import Border, Crossover
from rlsim.plan.crossover.designs import COLOCATED
from rlsim.plan.crossover.refine import NONE, A, B, Point
from rlsim.views import crossover as words
from rlsim.views.palette import SERIES
from rlsim.views.plots import style

TINTS = {A: "rgba(0,114,178,0.28)", B: "rgba(213,94,0,0.28)", NONE: "rgba(120,120,120,0.20)"}
"""The first two of `SERIES`, pale: areas behind points and lines."""
CODES = {A: 0.0, B: 1.0, NONE: 2.0}


def draw(answer: Crossover) -> go.Figure:
    """Maps side by side on the same axes, logarithmic where all values are above 0."""
    titles = [words.title(one) for one in answer.borders]
    drawn = make_subplots(1, len(answer.borders), shared_yaxes=True, subplot_titles=titles, horizontal_spacing=0.03)
    for n, border in enumerate(answer.borders, start=1):
        drawn.add_trace(_areas(answer, border), row=1, col=n)
        drawn.add_trace(_points(answer, border, n == 1), row=1, col=n)
        drawn.add_trace(_lines(border, n == 1), row=1, col=n)
        if answer.own.at is not None:
            drawn.add_trace(_own(answer, n == 1), row=1, col=n)
    for side, text in ((A, "co-located is faster"), (B, "the other is faster"), (NONE, "neither fits")):
        if any(side in row for one in answer.borders for row in one.winner):
            drawn.add_scatter(
                x=[None],
                y=[None],
                mode="markers",
                name=text,
                marker={"symbol": "square", "size": 14, "color": TINTS[side]},
            )
    for axis, update, most in ((answer.x, drawn.update_xaxes, 6), (answer.y, drawn.update_yaxes, 9)):
        update(showgrid=False, zeroline=False, tickangle=0)
        if min(axis.values) > 0:
            shown = _ticks(axis.values, most)
            update(type="log", tickvals=shown, ticktext=[words.value(axis, one) for one in shown])
    drawn.update_xaxes(title_text=words.name(answer.x) if answer.x.unit != "GPUs" else "GPUs (total)")
    drawn.update_yaxes(title_text=words.name(answer.y), col=1)
    drawn.update_layout(title=f"{answer.name}: where co-located and disaggregated trade places")
    styled = style(drawn, 560)
    styled.update_layout(margin={"t": 90}, legend={"orientation": "h", "y": -0.16})
    return styled


def _ticks(values: Sequence[float], most: int) -> list[float]:
    """At most so many of the values, the ends among them."""
    count = min(most, len(values))
    return [values[round(n * (len(values) - 1) / max(1, count - 1))] for n in range(count)]


def _edges(values: Sequence[float]) -> list[float]:
    """Borders of the cells around values: halfway between neighbours, in the logarithm where all are above 0."""
    if len(values) == 1:
        return [values[0] * 0.8, values[0] * 1.25]
    if min(values) > 0:
        inner = [sqrt(a * b) for a, b in pairwise(values)]
        return [values[0] ** 2 / inner[0], *inner, values[-1] ** 2 / inner[-1]]
    inner = [(a + b) / 2 for a, b in pairwise(values)]
    return [2 * values[0] - inner[0], *inner, 2 * values[-1] - inner[-1]]


def _areas(answer: Crossover, border: Border) -> go.Heatmap:
    steps = [(n / 3, TINTS[side]) for side, n in ((A, 0), (A, 1), (B, 1), (B, 2), (NONE, 2), (NONE, 3))]
    return go.Heatmap(
        x=_edges(answer.x.values),
        y=_edges(answer.y.values),
        z=[[CODES[side] for side in row] for row in border.winner],
        zmin=-0.5,
        zmax=2.5,
        colorscale=steps,
        showscale=False,
        hoverinfo="skip",
    )


def _points(answer: Crossover, border: Border, first: bool) -> go.Scatter:
    """Where it was simulated, with the step times of both."""
    points = sorted(border.seen)
    return go.Scatter(
        x=[answer.x.values[i] for i, _ in points],
        y=[answer.y.values[j] for _, j in points],
        mode="markers",
        name="simulated point",
        legendgroup="points",
        showlegend=first,
        marker={"size": 5, "color": [SERIES[0] if border.seen[p].side == A else SERIES[1] for p in points]},
        text=[_told(answer, border, p) for p in points],
        hovertemplate="%{text}<extra></extra>",
    )


def _told(answer: Crossover, border: Border, point: Point) -> str:
    i, j = point
    lines = [f"{words.named(answer.x, answer.x.values[i])}, {words.named(answer.y, answer.y.values[j])}"]
    for regime in (COLOCATED, border.b):
        played = answer.points[point][regime]
        if played.seconds is None:
            lines.append(f"{regime}: {played.status}")
        else:
            split = played.split
            apart = f" ({split.trainer:,} + {split.rollout:,} GPUs)" if split and regime != COLOCATED else ""
            lines.append(f"{regime}: {played.seconds:,.1f} s a step{apart}")
    margin = border.seen[point].margin
    if margin is not None:
        winner = "co-located" if margin >= 0 else border.b
        lines.append(f"{winner} is {1 - exp(-abs(margin)):.1%} shorter")
    return "<br>".join(lines)


def _lines(border: Border, first: bool) -> go.Scatter:
    """The pieces of the line in one trace, with gaps between them."""
    xs: list[float | None] = []
    ys: list[float | None] = []
    for (x0, y0), (x1, y1) in border.boundary:
        xs += [x0, x1, None]
        ys += [y0, y1, None]
    return go.Scatter(
        x=xs,
        y=ys,
        mode="lines",
        name="step times are equal",
        legendgroup="line",
        showlegend=first,
        line={"color": "#1a1a1a", "width": 2.5},
        hoverinfo="skip",
    )


def _own(answer: Crossover, first: bool) -> go.Scatter:
    i, j = answer.own.at or (0, 0)
    return go.Scatter(
        x=[answer.x.values[i]],
        y=[answer.y.values[j]],
        mode="markers",
        name="the file's own point",
        legendgroup="own",
        showlegend=first,
        marker={"symbol": "star", "size": 15, "color": "#F0E442", "line": {"color": "#1a1a1a", "width": 1.2}},
        hovertemplate=f"{answer.name}<extra></extra>",
    )
