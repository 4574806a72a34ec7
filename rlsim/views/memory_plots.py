"""Plotly figures of the memory of all roles over one step, and of the offload ledger."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import plotly.graph_objects as go
from plotly.subplots import make_subplots

from rlsim.views.palette import MEMORY, label, memory_group
from rlsim.views.plots import style

Summary = Mapping[str, Any]
Row = Mapping[str, Any]


def peak_bars(summaries: Sequence[Summary]) -> go.Figure:
    """Every role of every variant at its fullest moment, by kind of bytes; a tick where its GPU's memory ends."""
    figure = go.Figure()
    bars = [(summary, peak) for summary in summaries for peak in summary["memory_peak"]]
    names = [f"{summary['variant']}: {peak['role']}, {label(peak['moment'])}" for summary, peak in bars]
    grouped = [_grouped(_fullest(summary, peak)["parts_gib"]) for summary, peak in bars]
    for group, shade in MEMORY.items():
        widths = [parts.get(group, 0.0) for parts in grouped]
        if any(widths):
            figure.add_bar(
                y=names,
                x=widths,
                orientation="h",
                name=group,
                marker_color=shade,
                hovertemplate="%{x:.2f} GiB<extra>" + group + "</extra>",
            )
    figure.add_scatter(
        y=names,
        x=[peak["hbm_gib"] for _, peak in bars],
        mode="markers",
        name="GPU memory",
        marker={"symbol": "line-ns", "size": 18, "line": {"width": 2, "color": "#333333"}},
        hovertemplate="%{x:.1f} GiB<extra>GPU memory</extra>",
    )
    figure.update_layout(
        barmode="stack",
        title="memory at the fullest moment, by role",
        xaxis_title="GiB per GPU",
        yaxis_title="variant and role",
    )
    figure.update_yaxes(autorange="reversed", categoryorder="array", categoryarray=names)
    return style(figure, max(420, 120 + 34 * len(bars)))


def _fullest(summary: Summary, peak: Summary) -> Row:
    rows = [row for row in summary["memory_timeline"] if row["role"] == peak["role"]]
    return max(rows, key=lambda row: sum(row["parts_gib"].values()))


def over_step(summary: Summary) -> go.Figure:
    """One panel per role: a stacked bar for every phase in the order of the step, against the GPU's memory.

    Bars are equally wide, since the rollout would leave no room for the others; their seconds are written below.
    """
    panels = [
        (peak, [r for r in summary["memory_timeline"] if r["role"] == peak["role"]]) for peak in summary["memory_peak"]
    ]
    widths = [max(1.0, float(len(rows))) for _, rows in panels]
    figure = make_subplots(
        cols=len(panels),
        shared_yaxes=True,
        horizontal_spacing=0.03,
        column_widths=[w / sum(widths) for w in widths],
        subplot_titles=[f"{peak['role']} GPU" for peak, _ in panels],
    )
    shown: set[str] = set()
    for column, (peak, rows) in enumerate(panels, start=1):
        _panel(figure, column, rows, shown)
        figure.add_hline(y=peak["hbm_gib"], line_dash="dash", line_color="#333333", col=column, row=1)
    told = "; ".join(
        f"{p['role']} peak {p['gib']:.1f} of {p['hbm_gib']:.1f} GiB in {label(p['moment'])}" for p, _ in panels
    )
    title = f"{summary['variant']}: memory of one GPU over the step"
    figure.update_layout(barmode="stack", bargap=0.12, title={"text": title, "subtitle": {"text": told}})
    figure.update_yaxes(title_text="GiB per GPU", col=1)
    figure = style(figure, 460)
    figure.update_layout(margin={"t": 100})
    return figure


def _panel(figure: go.Figure, column: int, rows: Sequence[Row], shown: set[str]) -> None:
    """The bars of one role; parts of one kind are one colour."""
    grouped = [_grouped(row["parts_gib"]) for row in rows]
    for rank, (group, shade) in enumerate(MEMORY.items()):
        heights = [parts.get(group, 0.0) for parts in grouped]
        if not any(heights):
            continue
        figure.add_bar(
            x=list(range(len(rows))),
            y=heights,
            name=group,
            legendgroup=group,
            legendrank=rank,
            showlegend=group not in shown,
            marker_color=shade,
            hovertemplate="%{y:.2f} GiB<extra>" + group + "</extra>",
            row=1,
            col=column,
        )
        shown.add(group)
    texts = [f"{label(row['phase']).replace(' ', '<br>')}<br>{row['end'] - row['start']:.1f} s" for row in rows]
    if rows[0]["role"] not in ("shared", "trainer"):
        texts = [f"{label(row['phase'])},<br>all the step" for row in rows]
    figure.update_xaxes(tickvals=list(range(len(rows))), ticktext=texts, tickangle=0, col=column, row=1)


def _grouped(parts: Mapping[str, float]) -> dict[str, float]:
    total: dict[str, float] = {}
    for part, gib in parts.items():
        group = memory_group(part)
        total[group] = total.get(group, 0.0) + gib
    return total


def ledger(summary: Summary) -> go.Figure:
    """The offload ledger as a table: bytes each way, how the host holds them, seconds, who waits."""
    found = summary["offload_ledger"]
    columns = {
        "role": [row["role"] for row in found["rows"]],
        "moved, GiB": [f"{row['moved_gib']:.2f}" for row in found["rows"]],
        "only mapped, GiB": [f"{row['mapped_gib']:.2f}" for row in found["rows"]],
        "host memory": [row["host_memory"] for row in found["rows"]],
        "out, s": [f"{row['offload_seconds']:.2f}" for row in found["rows"]],
        "in, s": [f"{row['onload_seconds']:.2f}" for row in found["rows"]],
        "out is waited for by": [row["waits_for_offload"] for row in found["rows"]],
        "in is waited for by": [row["waits_for_onload"] for row in found["rows"]],
    }
    sides = ["left", "right", "right", "left", "right", "right", "left", "left"]
    figure = go.Figure(
        go.Table(
            header={"values": list(columns), "align": sides, "fill_color": "#e8eaed"},
            cells={"values": list(columns.values()), "align": sides, "fill_color": "#ffffff", "height": 24},
            columnwidth=[2, 1, 1.3, 1.1, 0.8, 0.8, 2, 1.4],
        )
    )
    need = "needed: without it the roles do not fit" if found["needed"] else "not needed for the roles to fit"
    title = f"{summary['variant']}: offload ledger, {found['exposed_seconds']:.1f} s a step, all exposed; {need}"
    figure.update_layout(title=title)
    return style(figure, 120 + 26 * (len(found["rows"]) + 1))
