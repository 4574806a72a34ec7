"""`rlsim lengths`: the lengths of a trace beside the distributions fitted to them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from html import escape
from typing import Any

import numpy as np
import plotly.graph_objects as go
from plotly.offline import get_plotlyjs
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text
from scipy import special

from rlsim.length_fits import QUANTILES, LengthFit, LengthFits
from rlsim.views.html import STYLE
from rlsim.views.palette import SERIES
from rlsim.workload import LengthModel

DASHES = ("solid", "dash", "dot", "dashdot", "longdash")
OBSERVED = "#1a1a1a"
POINTS = 600


def report(answers: Sequence[LengthFits]) -> RenderableType:
    """One block per column: quantiles of the trace and of each fit, and the block to paste."""
    return Group(*[_block(a) for a in answers])


def _block(answer: LengthFits) -> RenderableType:
    head = f"{answer.column} of {answer.source}"
    if answer.samples is not None:
        head += f": {answer.samples:,} samples"
    if answer.correlation is not None:
        head += f", correlation within prompts {answer.correlation:.2f}"
    parts: list[RenderableType] = [Text(head, style="bold"), Text(""), _table(answer), Text("")]
    parts += [Text(f"  {note}", style="dim") for note in answer.notes]
    if answer.fits:
        best = answer.fits[0]
        parts += [Text("Into a scenario", style="bold"), Text(_paste(answer.column, best))]
        if answer.correlation is not None and answer.column == "response_tokens":
            parts.append(Text(f"  group_correlation: {answer.correlation:.2f}"))
        parts += [Text("Or", style="bold")] if answer.fits[1:] else []
        parts += [Text(_paste(answer.column, fit)) for fit in answer.fits[1:]]
    return Group(*parts, Text(""))


def _paste(column: str, fit: LengthFit) -> str:
    """The block as it goes into a scenario; a mixture, one component a line."""
    if not fit.spec.components:
        return f"  {column}: {fit.block}"
    one_a_line = fit.block.replace("components: [{", "components: [\n    {").replace("}, {", "},\n    {")
    return f"  {column}: {one_a_line}"


def _table(answer: LengthFits) -> Table:
    table = Table(box=None, padding=(0, 2, 0, 0), header_style="bold")
    table.add_column("after the cap")
    columns = [("trace" if answer.samples is not None else "scenario", answer.given)]
    columns += [(fit.distribution, fit.model) for fit in answer.fits]
    for name, _ in columns:
        table.add_column(name, justify="right")
    rows: dict[str, list[str]] = {"mean": [f"{m.mean:,.0f}" for _, m in columns]}
    rows |= {f"p{100 * q:g}": [f"{m.quantile(q):,.0f}" for _, m in columns] for q in QUANTILES}
    rows["max"] = [f"{m.max:,}" for _, m in columns]
    rows["clip ratio"] = [f"{m.clip_ratio:.4f}" for _, m in columns]
    if answer.fits:
        least = min(fit.aic for fit in answer.fits)
        rows["AIC over the least"] = ["", *[f"{fit.aic - least:,.1f}" for fit in answer.fits]]
        rows["KS distance"] = ["", *[f"{fit.ks:.4f}" for fit in answer.fits]]
    for name, cells in rows.items():
        table.add_row(name, *cells)
    return table


def as_dict(answer: LengthFits) -> dict[str, Any]:
    """The same for `--json`."""
    return {
        "source": answer.source,
        "column": answer.column,
        "samples": answer.samples,
        "cap": None if math.isinf(answer.cap) else answer.cap,
        "correlation": answer.correlation,
        **_figures(answer.given),
        "fits": [
            {
                "distribution": fit.distribution,
                "parameters": dict(fit.parameters),
                "aic": fit.aic,
                "ks": fit.ks,
                "block": fit.block,
                **_figures(fit.model),
            }
            for fit in answer.fits
        ],
        "notes": list(answer.notes),
    }


def _figures(model: LengthModel) -> dict[str, Any]:
    return {
        "mean": model.mean,
        "max": model.max,
        "clip_ratio": model.clip_ratio,
        "quantiles": {f"p{100 * q:g}": model.quantile(q) for q in QUANTILES},
    }


def tail(answer: LengthFits) -> go.Figure:
    """Share of samples that are longer, over the length; both axes logarithmic."""
    figure = go.Figure()
    name = "trace" if answer.samples is not None else "scenario"
    least = 0.5 / answer.samples if answer.samples else 1e-4
    models = [answer.given, *[fit.model for fit in answer.fits]]
    for label, model, line in [
        (name, answer.given, {"color": OBSERVED, "width": 4}),
        *[
            (
                fit.distribution,
                fit.model,
                {"color": SERIES[i % len(SERIES)], "width": 2, "dash": DASHES[i % len(DASHES)]},
            )
            for i, fit in enumerate(answer.fits)
        ],
    ]:
        lengths, share = _complement(model, least)
        hover = f"{label}: %{{y:.2%}} longer than %{{x:,.0f}}<extra></extra>"
        figure.add_scatter(x=lengths, y=share, mode="lines", name=label, line=line, hovertemplate=hover)
    if not math.isinf(answer.cap):
        figure.add_vline(x=answer.cap, line_dash="dash", line_color="#999999", annotation_text="cap")
    what = answer.column.replace("_", " ").replace("tokens", "length")
    figure.update_layout(
        title=f"tail of the {what}",
        template="plotly_white",
        height=520,
        margin={"l": 10, "r": 10, "t": 50, "b": 10},
        font={"family": "system-ui, sans-serif", "size": 13},
    )
    longest = answer.cap if math.isfinite(answer.cap) else answer.given.quantile(1 - least)
    first = max(answer.given.quantile(0.005), 1.0) / 1.5
    lowest = max(least, min(m.clip_ratio for m in models) / 3) if math.isfinite(answer.cap) else least
    for update, title, ends in (
        (figure.update_xaxes, f"{what} (tokens)", (first, longest * 1.2)),
        (figure.update_yaxes, "share of samples that are longer", (lowest, 1.1)),
    ):
        marks = [m * 10.0**e for e in range(-7, 8) for m in (1, 2, 5) if ends[0] <= m * 10.0**e <= ends[1]]
        if len(marks) > 9:
            marks = [mark for mark in marks if math.log10(mark).is_integer()]
        update(title=title, type="log", automargin=True, range=[math.log10(end) for end in ends])
        update(tickvals=marks, ticktext=[f"{mark:,g}" for mark in marks])
    return figure


def _complement(model: LengthModel, least: float) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
    """Lengths and the share above each, down to `least`; at the cap the share falls to nothing."""
    scores = np.linspace(-3.5, float(special.ndtri(1 - least)), POINTS)
    lengths, share = model.at(scores), special.ndtr(-scores)
    below = lengths < model.cap if math.isfinite(model.cap) else np.full(POINTS, True)
    if below.all():
        return lengths, share
    return np.append(lengths[below], [model.cap, model.cap]), np.append(share[below], [model.clip_ratio, least / 10])


def page(answers: Sequence[LengthFits], text: str) -> str:
    """One HTML page that needs nothing from the network."""
    title = escape("lengths of " + ", ".join(dict.fromkeys(a.source for a in answers)))
    figures = [tail(a).to_html(full_html=False, include_plotlyjs=False, config={"displaylogo": False}) for a in answers]
    drawn = "\n".join(f'<div class="figure">{figure}</div>' for figure in figures)
    return (
        f'<!doctype html><html lang="en"><head><meta charset="utf-8"><title>{title}</title>'
        f'<meta name="viewport" content="width=device-width,initial-scale=1"><style>{STYLE}</style>'
        f"<script>{get_plotlyjs()}</script></head><body><h1>{title}</h1><pre>{escape(text)}</pre>{drawn}</body></html>"
    )
