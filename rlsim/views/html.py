"""A report in one HTML file that needs nothing from the network: plotly's script is inside it."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from pathlib import Path

import plotly.graph_objects as go
from plotly.offline import get_plotlyjs
from rich.console import Console, RenderableType

from rlsim.api import Comparison
from rlsim.views import memory_plots, plots, text

STYLE = """
body{font-family:system-ui,sans-serif;margin:2rem auto;max-width:1180px;padding:0 1rem;color:#1a1a1a;background:#fff}
h1{font-size:1.5rem;margin:.2rem 0}
pre{font-size:13px;line-height:1.35;overflow-x:auto;background:#f6f7f9;padding:1rem;border-radius:6px}
@media (prefers-color-scheme:dark){
body{background:#16181c;color:#e6e6e6}pre{background:#20242b}.figure{background:#fff;border-radius:6px}}
"""


def write(comparisons: Sequence[Comparison], path: Path) -> None:
    """Write the report: per scenario the summary, phase bars, tail curve, timelines, memory bars."""
    body = "\n".join(_section(c) for c in comparisons)
    title = escape(comparisons[0].header.splitlines()[0])
    page = (
        f'<!doctype html><html lang="en"><head><meta charset="utf-8"><title>{title}</title>'
        f'<meta name="viewport" content="width=device-width,initial-scale=1"><style>{STYLE}</style>'
        f"<script>{get_plotlyjs()}</script></head><body>{body}</body></html>"
    )
    path.write_text(page, encoding="utf-8")


def _section(answer: Comparison) -> str:
    shown = [s for s in answer.summaries if s["feasible"]]
    figures: list[go.Figure] = []
    if answer.results:
        figures = [plots.phase_bars(shown), plots.pool_bars(shown), plots.tail_curve(answer.results)]
        figures += [plots.timeline(result) for result in answer.results]
        figures.append(memory_plots.peak_bars(shown))
        figures += [memory_plots.over_step(s) for s in shown]
        figures += [memory_plots.ledger(s) for s in shown if s["offload_ledger"] is not None]
    drawn = "\n".join(f'<div class="figure">{_div(figure)}</div>' for figure in figures)
    title = escape(answer.header.splitlines()[0])
    return f"<h1>{title}</h1><pre>{escape(plain(text.summary(answer)))}</pre>{drawn}"


def _div(figure: go.Figure) -> str:
    return str(figure.to_html(full_html=False, include_plotlyjs=False, config={"displaylogo": False}))


def page(title: str, figures: Sequence[go.Figure], shown: RenderableType) -> str:
    """A page of figures, and under them the text that the command prints."""
    head = escape(title)
    divs = "\n".join(f'<div class="figure">{_div(figure)}</div>' for figure in figures)
    return (
        f'<!doctype html><html lang="en"><head><meta charset="utf-8"><title>{head}</title>'
        f'<meta name="viewport" content="width=device-width,initial-scale=1"><style>{STYLE}pre{{white-space:pre-wrap}}'
        f"</style><script>{get_plotlyjs()}</script></head><body><h1>{head}</h1>{divs}"
        f"<pre>{escape(plain(shown))}</pre></body></html>"
    )


def plain(shown: RenderableType) -> str:
    """What the terminal shows, without colours."""
    console = Console(width=140, highlight=False, color_system=None)
    with console.capture() as capture:
        console.print(shown)
    return capture.get()
