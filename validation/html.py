"""The report as one HTML file with plots that needs nothing from the network."""

from __future__ import annotations

import re
from collections.abc import Sequence
from html import escape
from pathlib import Path

import plotly.graph_objects as go
from plotly.offline import get_plotlyjs

from rlsim.views.html import STYLE
from validation import plots
from validation.ablation import Rung
from validation.published.rows import Row

TABLES = """
table{border-collapse:collapse;font-size:13px;margin:.6rem 0;display:block;overflow-x:auto}
td,th{border-bottom:1px solid #ccc;padding:.15rem .5rem;text-align:left}
.n{text-align:right;font-variant-numeric:tabular-nums}
h2{font-size:1.15rem;margin-top:1.6rem}
"""


def write(rows: Sequence[Row], rungs: Sequence[Rung], page: str, path: Path) -> None:
    """The Markdown page with figures in front of its tables."""
    figures = [plots.scatter(rows), plots.residuals(rows), plots.intervals(rows)]
    figures += [plots.ladder(rungs)] if rungs else []
    head, _, rest = page.partition("## Scores")
    drawn = "\n".join(f'<div class="figure">{_div(figure)}</div>' for figure in figures)
    body = html_of(head) + drawn + html_of("## Scores" + rest)
    text = (
        '<!doctype html><html lang="en"><head><meta charset="utf-8"><title>Predicted against measured</title>'
        f'<meta name="viewport" content="width=device-width,initial-scale=1"><style>{STYLE}{TABLES}</style>'
        f"<script>{get_plotlyjs()}</script></head><body>{body}</body></html>"
    )
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")


def _div(figure: go.Figure) -> str:
    return str(figure.to_html(full_html=False, include_plotlyjs=False, config={"displaylogo": False}))


def html_of(markdown: str) -> str:
    """Headings, tables, lists and paragraphs of the page's own Markdown."""
    out = []
    for block in re.split(r"\n\n+", markdown.strip()):
        lines = block.splitlines()
        if block.startswith("<!--"):
            continue
        if block.startswith("#"):
            level = len(block) - len(block.lstrip("#"))
            out.append(f"<h{level}>{_inline(block.lstrip('# '))}</h{level}>")
        elif any(line.startswith("|") for line in lines):
            first = next(i for i, line in enumerate(lines) if line.startswith("|"))
            out += [f"<p>{_inline(' '.join(lines[:first]))}</p>"] if first else []
            out.append(_table(lines[first:]))
        elif block.startswith("- "):
            items = re.split(r"\n- ", block[2:])
            out.append("<ul>" + "".join(f"<li>{_inline(item)}</li>" for item in items) + "</ul>")
        else:
            out.append(f"<p>{_inline(block)}</p>")
    return "\n".join(out)


def _table(lines: Sequence[str]) -> str:
    rows = [[cell.strip() for cell in line.strip().strip("|").split("|")] for line in lines]
    right = ["--:" in cell for cell in rows[1]]
    out = []
    for i, row in enumerate([rows[0], *rows[2:]]):
        tag = "th" if i == 0 else "td"
        cells = zip(row, right, strict=False)
        out.append("".join(f"<{tag}{' class=n' if r else ''}>{_inline(cell)}</{tag}>" for cell, r in cells))
    return "<table>" + "".join(f"<tr>{row}</tr>" for row in out) + "</table>"


def _inline(text: str) -> str:
    text = re.sub(r"\*\*(.+?)\*\*", r"<b>\1</b>", escape(text))
    text = re.sub(r"(?<![\w*])\*(?!\s)([^*]+?)\*", r"<i>\1</i>", text)
    return re.sub(r"`(.+?)`", r"<code>\1</code>", text)
