"""Figures of the report: predicted against measured, residuals by source, tiers, the ablation ladder."""

from __future__ import annotations

from collections.abc import Sequence

import plotly.graph_objects as go

from rlsim.views.palette import MEMORY, PHASES
from rlsim.views.plots import style
from validation.ablation import Rung
from validation.published.rows import FITTED, PREDICTED, REPEAT, Row
from validation.summary import done

COLOURS = list(dict.fromkeys([*PHASES.values(), *MEMORY.values()]))
SYMBOLS = {PREDICTED: "circle", FITTED: "circle-open", REPEAT: "diamond-open"}
BANDS = ((0.25, "rgba(120,120,120,0.12)"), (0.10, "rgba(120,120,120,0.22)"))


def _times(rows: Sequence[Row]) -> list[Row]:
    return [row for row in done(rows) if not row.is_rate]


def scatter(rows: Sequence[Row]) -> go.Figure:
    """Predicted against measured seconds, log-log, with bands of 10 and 25%; open marks were fitted."""
    times = _times(rows)
    figure = go.Figure()
    low, high = min(r.measured for r in times) / 2, max(r.measured for r in times) * 2
    for width, colour in BANDS:
        figure.add_scatter(
            x=[low, high, high, low],
            y=[low / (1 + width), high / (1 + width), high * (1 + width), low * (1 + width)],
            fill="toself",
            fillcolor=colour,
            line_width=0,
            mode="lines",
            hoverinfo="skip",
            name=f"±{width:.0%}",
        )
    for i, source in enumerate(dict.fromkeys(r.source for r in times)):
        mine = [r for r in times if r.source == source]
        figure.add_scatter(
            x=[r.measured for r in mine],
            y=[r.predicted for r in mine],
            mode="markers",
            name=source,
            marker={
                "color": COLOURS[i % len(COLOURS)],
                "size": 7,
                "symbol": [SYMBOLS[r.status] for r in mine],
                "line": {"width": 1.5},
            },
            text=[f"{r.id}<br>{r.quantity}" for r in mine],
            hovertemplate="%{text}<br>measured %{x:.3g} s, predicted %{y:.3g} s<extra></extra>",
        )
    figure.update_layout(title="predicted against measured (open marks: fitted or repeated)")
    figure.update_xaxes(type="log", title="measured, s")
    figure.update_yaxes(type="log", title="predicted, s")
    return style(figure, 640)


def residuals(rows: Sequence[Row]) -> go.Figure:
    """Errors by source, every row a point."""
    figure = go.Figure()
    for source in dict.fromkeys(r.source for r in done(rows)):
        for status, colour in ((PREDICTED, PHASES["rollout"]), (FITTED, PHASES["other"])):
            mine = [r for r in done(rows) if r.source == source and (r.status == PREDICTED) == (status == PREDICTED)]
            if mine:
                figure.add_box(
                    x=[100 * max(-100.0, min(3.0, r.error or 0.0)) for r in mine],
                    y=[source] * len(mine),
                    orientation="h",
                    boxpoints="all",
                    jitter=0.5,
                    pointpos=0,
                    name="predicted" if status == PREDICTED else "fitted or repeated",
                    legendgroup=status,
                    showlegend=not any(t.legendgroup == status for t in figure.data),
                    marker={"color": colour, "size": 5},
                    line_width=1,
                    text=[f"{r.id} {r.quantity}" for r in mine],
                    hovertemplate="%{text}: %{x:.0f}%<extra></extra>",
                )
    figure.add_vline(x=0, line_color="#444444", line_width=1)
    figure.update_layout(title="errors by source", boxmode="group", xaxis_title="error, % (+ is too slow; cut at +300)")
    figure.update_yaxes(autorange="reversed", title="source")
    return style(figure, 720)


def ladder(rungs: Sequence[Rung]) -> go.Figure:
    """Median and 90th percentile of the error without each effect."""
    names = [rung.name for rung in rungs]
    figure = go.Figure()
    for label, values, colour in (
        ("median", [rung.score.median for rung in rungs], PHASES["rollout"]),
        ("90th percentile", [rung.score.p90 for rung in rungs], PHASES["logprob"]),
    ):
        figure.add_bar(y=names, x=[100 * v for v in values], orientation="h", name=label, marker_color=colour)
    figure.update_layout(
        title="error of NeMo-RL's steps with one effect switched off",
        barmode="group",
        xaxis_title="|error|, %",
        yaxis_title="without",
    )
    figure.update_yaxes(autorange="reversed")
    return style(figure, 560)


def intervals(rows: Sequence[Row]) -> go.Figure:
    """Where the measured value lies in the predicted interval: 0 at its 10th, 1 at its 90th percentile."""
    known = [r for r in done(rows) if r.status == PREDICTED and r.p10 and r.p90 and r.p90 > r.p10]
    places = [max(-2.0, min(3.0, (r.measured - (r.p10 or 0)) / ((r.p90 or 1) - (r.p10 or 0)))) for r in known]
    figure = go.Figure(
        go.Histogram(x=places, xbins={"start": -2, "end": 3, "size": 0.25}, marker_color=PHASES["train"])
    )
    figure.add_vrect(x0=0, x1=1, fillcolor="rgba(120,120,120,0.2)", line_width=0)
    figure.update_layout(
        title="measured values against their predicted interval (grey)",
        xaxis_title="place in the interval: 0 = p10, 1 = p90",
        yaxis_title="rows",
        showlegend=False,
    )
    return style(figure, 360)
