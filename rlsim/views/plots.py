"""Plotly figures of results. Every axis has a title with its unit; the same phase has the same colour everywhere."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import plotly.graph_objects as go

from rlsim.result import Result
from rlsim.views.palette import PHASES, POOL, colour, label

Summary = Mapping[str, Any]
MAX_POINTS = 4000  # points of one curve in a report; more only makes the file heavy
TIMELINE_STEPS = 3  # steps shown in the timeline


def phase_bars(summaries: Sequence[Summary]) -> go.Figure:
    """Seconds of the trainer group's clock by phase, one stacked bar per variant."""
    return _stacked(summaries, "phases_s", list(PHASES), "step time by phase (trainer group's clock)")


def pool_bars(summaries: Sequence[Summary]) -> go.Figure:
    """The same account for the rollout pool."""
    return _stacked(summaries, "rollout_pool_s", list(POOL), "what the rollout pool does in a step")


def _stacked(summaries: Sequence[Summary], key: str, names: Sequence[str], title: str) -> go.Figure:
    figure = go.Figure()
    variants = [s["variant"] for s in summaries]
    for name in names:
        seconds = [s[key].get(name) or 0.0 for s in summaries]
        if any(seconds):
            figure.add_bar(
                y=variants,
                x=seconds,
                name=label(name),
                orientation="h",
                marker_color=colour(name),
                hovertemplate="%{x:.2f} s<extra>" + label(name) + "</extra>",
            )
    figure.update_layout(barmode="stack", title=title, xaxis_title="seconds per step", yaxis_title="variant")
    figure.update_yaxes(autorange="reversed")
    return style(figure, max(300, 120 + 60 * len(variants)))


def timeline(result: Result) -> go.Figure:
    """Gantt chart of the first measured steps, one row per role."""
    spans = result.spans
    first = int(result.steps["step"].iloc[0])
    spans = spans[(spans["step"] >= first) & (spans["step"] < first + TIMELINE_STEPS)]
    start = float(spans["start"].min()) if len(spans) else 0.0
    figure = go.Figure()
    for phase, rows in spans.groupby("phase", sort=False, observed=True):
        figure.add_bar(
            y=rows["track"].astype(str),
            x=rows["end"] - rows["start"],
            base=rows["start"] - start,
            orientation="h",
            name=label(str(phase)),
            marker_color=colour(str(phase)),
            customdata=rows["step"],
            hovertemplate="step %{customdata}, %{x:.2f} s<extra>" + label(str(phase)) + "</extra>",
        )
    title = f"{result.variant}: timeline of the first {spans['step'].nunique()} measured steps"
    figure.update_layout(barmode="overlay", title=title, xaxis_title="time (s)", yaxis_title="role")
    figure.update_yaxes(autorange="reversed")
    return style(figure, 260)


def tail_curve(results: Sequence[Result]) -> go.Figure:
    """Running sequences over time within the first measured rollouts: the long tail, visible."""
    figure = go.Figure()
    shades = ["#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9"]
    for result, shade in zip(results, shades * len(results), strict=False):
        begin, end = result.window(TIMELINE_STEPS)
        counters = result.counters
        rows = counters[(counters["time"] >= begin) & (counters["time"] <= end)]
        stride = max(1, len(rows) // MAX_POINTS)
        figure.add_scatter(
            x=np.asarray(rows["time"])[::stride] - begin,
            y=np.asarray(rows["running"])[::stride],
            mode="lines",
            line={"shape": "hv", "width": 1.5, "color": shade},
            name=result.variant,
        )
    figure.update_layout(
        title="running sequences on the rollout pool", xaxis_title="time (s)", yaxis_title="running sequences"
    )
    return style(figure, 360)


def style(figure: go.Figure, height: int) -> go.Figure:
    """What all figures have in common."""
    figure.update_layout(
        template="plotly_white",
        height=height,
        margin={"l": 10, "r": 10, "t": 50, "b": 10},
        font={"family": "system-ui, sans-serif", "size": 13},
        legend={"traceorder": "normal"},
    )
    figure.update_yaxes(automargin=True)
    figure.update_xaxes(automargin=True)
    return figure
