"""`rlsim reshard`: who sends what to whom, floor and strategies side by side; one tensor run by run; a heat map."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt
import plotly.graph_objects as go
from plotly.offline import get_plotlyjs
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from rlsim.resharding import Reshard, Run

if TYPE_CHECKING:
    from rlsim.reshard.checkpoint import Written
    from rlsim.reshard.detect import Report

Floats = npt.NDArray[np.float64]
MOST = 16
"""Engine ranks of the map."""
CELLS = 512
"""Cells of the heat map along one side; ranks are added up to fit."""


def report(answer: Reshard) -> RenderableType:
    """The map for the first engine, bytes, floor and strategies."""
    system = answer.system
    parts: list[RenderableType] = [Text(_headline(answer), style="bold"), Text("")]
    first = 0
    for plan, part in zip(answer.plans, system.rollout, strict=True):
        title = f"first of {plan.engines} {part.entry.engine} engines of {plan.engine.gpus_per_engine} GPUs"
        parts.append(_map(answer, plan.engine.gpus_per_engine, first, title))
        first += plan.targets
    parts += [Text(""), _figures(answer), Text(""), _strategies(answer)]
    return Group(*parts)


def _headline(answer: Reshard) -> str:
    t, model = answer.system.trainer, answer.system.model
    engines = sum(plan.engines for plan in answer.plans)
    return f"{model.name}: {t.gpus} trainer ranks ({t.backend}) → {engines} engines of {_sizes(answer)} GPUs"


def _sizes(answer: Reshard) -> str:
    return ", ".join(dict.fromkeys(str(plan.engine.gpus_per_engine) for plan in answer.plans))


def _map(answer: Reshard, ranks: int, first: int, title: str) -> Table:
    table = Table(box=None, padding=(0, 2, 0, 0), header_style="bold", title=title, title_justify="left")
    table.add_column("engine rank", justify="right")
    table.add_column("← trainer ranks")
    table.add_column("GB in", justify="right")
    for rank in range(min(ranks, MOST)):
        column = answer.moved[:, first + rank]
        table.add_row(str(rank), spans(np.flatnonzero(column).tolist()), f"{column.sum() / 1e9:.3f}")
    if ranks > MOST:
        table.add_row("…", f"and {ranks - MOST} more", "")
    return table


def spans(numbers: Sequence[int]) -> str:
    """Numbers as ranges: 0-3, 8, 12-15."""
    if not numbers:
        return "– (all of it is there)"
    found: list[list[int]] = []
    for n in numbers:
        if found and n == found[-1][1] + 1:
            found[-1][1] = n
        else:
            found.append([n, n])
    texts = [str(a) if a == b else f"{a}-{b}" for a, b in found]
    return ", ".join(texts[:6]) + (f", … ({len(numbers)} ranks)" if len(texts) > 6 else "")


def _figures(answer: Reshard) -> Table:
    table = Table(box=None, padding=(0, 2, 0, 0), show_header=False)
    rows = {
        "bytes that move between GPUs": f"{answer.bytes_total / 1e9:,.2f} GB in {answer.messages:,} runs",
        "into the busiest engine GPU": f"{answer.bytes_max_in / 1e9:.3f} GB",
        "out of the busiest trainer GPU, by this plan": f"{answer.bytes_max_out / 1e9:.3f} GB",
        "if every GPU got the whole model": f"{answer.amplification_full_broadcast:.1f} times the bytes",
        "floor: no method is faster": f"{answer.sync.floor_seconds:.3f} s",
    }
    size, seconds = answer.bucket
    rows[f"{answer.sync.strategy} with its best bucket, {size / 2**20:,.0f} MiB"] = f"{seconds:.3f} s"
    for name, value in rows.items():
        table.add_row(name, value)
    return table


def _strategies(answer: Reshard) -> Table:
    table = Table(box=None, padding=(0, 2, 0, 0), header_style="bold")
    table.add_column("strategy")
    table.add_column("seconds", justify="right")
    table.add_column("over the floor", justify="right")
    floor = answer.sync.floor_seconds
    for name, seconds in sorted(answer.seconds.items(), key=lambda item: item[1]):
        mine = name == answer.sync.strategy
        shown = f"{name} (in use)" if mine else name
        times = f"{seconds / floor:.1f}x" if floor else "–"
        table.add_row(Text(shown, style="bold" if mine else ""), f"{seconds:.3f}", times)
    return table


def tensor(answer: Reshard, name: str) -> RenderableType:
    """One tensor, run by run, in the order of the targets."""
    table = Table(box=None, padding=(0, 2, 0, 0), header_style="bold")
    for column in ("engine rank", "tensor", "rows", "columns", "← trainer rank", "tensor", "rows", "columns", "is"):
        table.add_column(column, justify="right" if column not in ("tensor", "is") else "left", overflow="fold")
    for run in answer.runs(name):
        table.add_row(
            str(run.dst_rank), run.dst_tensor, *_box(run.dst_start, run), str(run.src_rank), run.src_tensor,
            *_box(run.src_start, run), run.logical,
        )  # fmt: skip
    return table


def _box(start: tuple[int, int], run: Run) -> tuple[str, str]:
    (row, col), (rows, cols) = start, run.shape
    return f"{row}:{row + rows}", f"{col}:{col + cols}"


def findings(found: Report) -> RenderableType:
    """What the detector says of two checkpoints."""
    head = f"{found.equal:,} of {found.compared:,} tensors are equal"
    if not found.findings:
        return Text(f"{head}: the conversion is right", style="bold")
    table = Table(box=None, padding=(0, 2, 0, 0), header_style="bold")
    table.add_column("tensors", overflow="fold")
    table.add_column("what happened")
    for finding in found.findings:
        table.add_row("\n".join(finding.tensors), Text(finding.mistake, style="" if finding.right else "bold red"))
    verdict = "the conversion is right up to rounding" if not found.wrong else f"{len(found.wrong)} errors"
    return Group(Text(f"{head}; {verdict}", style="bold"), Text(""), table)


def checkpoint(found: Written) -> RenderableType:
    """A DCP folder: what each file holds, and how tensors are cut."""
    files = Table(box=None, padding=(0, 2, 0, 0), header_style="bold")
    for column in ("file (__rank_number)", "MB", "pieces"):
        files.add_column(column, justify="left" if column.startswith("file") else "right")
    for name, (size, pieces) in found.files.items():
        files.add_row(name, f"{size / 1e6:.3f}", str(pieces))
    tensors = Table(box=None, padding=(0, 2, 0, 0), header_style="bold")
    for column in ("tensor", "shape", "dtype", "pieces"):
        tensors.add_column(column, overflow="fold")
    for name, (shape, dtype, pieces) in list(found.tensors.items())[:MOST]:
        tensors.add_row(name, " x ".join(map(str, shape)), dtype, str(pieces))
    if len(found.tensors) > MOST:
        tensors.add_row(f"… and {len(found.tensors) - MOST} more", "", "", "")
    head = (
        f"{len(found.tensors)} tensors in {len(found.files)} files; .metadata says which box of which tensor is where"
    )
    return Group(Text(head, style="bold"), Text(""), files, Text(""), tensors)


def heat_map(answer: Reshard) -> go.Figure:
    """Bytes from every trainer rank (rows) to every engine rank (columns), ranks added up where there are many."""
    matrix, steps = _coarse(answer.moved)
    shown = np.where(matrix > 0, matrix / 1e9, np.nan)
    figure = go.Figure(
        go.Heatmap(
            z=shown,
            x=np.arange(matrix.shape[1]) * steps[1],
            y=np.arange(matrix.shape[0]) * steps[0],
            colorscale="Viridis",
            colorbar={"title": "GB"},
            hovertemplate="trainer rank %{y} → engine rank %{x}: %{z:.4f} GB<extra></extra>",
        )
    )
    cell = "" if steps == (1, 1) else f" (cells of {steps[0]} x {steps[1]} ranks)"
    figure.update_layout(
        title=f"Bytes from trainer ranks to engine ranks{cell}",
        xaxis_title="engine rank",
        yaxis_title="trainer rank",
        template="plotly_white",
        height=640,
    )
    figure.update_yaxes(autorange="reversed")
    return figure


def _coarse(matrix: Floats) -> tuple[Floats, tuple[int, int]]:
    steps = tuple(-(-n // CELLS) for n in matrix.shape)
    for axis, step in enumerate(steps):
        if step > 1:
            starts = np.arange(0, matrix.shape[axis], step)
            matrix = np.add.reduceat(matrix, starts, axis=axis)
    return matrix, (steps[0], steps[1])


def write_html(answer: Reshard, path: Path) -> None:
    """The heat map and the table in one file that needs nothing from the network."""
    from rlsim.views.html import STYLE, plain

    drawn = heat_map(answer).to_html(full_html=False, include_plotlyjs=False, config={"displaylogo": False})
    title = escape(_headline(answer))
    path.write_text(
        f'<!doctype html><html lang="en"><head><meta charset="utf-8"><title>{title}</title>'
        f"<style>{STYLE}</style><script>{get_plotlyjs()}</script></head><body><h1>{title}</h1>"
        f'<pre>{escape(plain(report(answer)))}</pre><div class="figure">{drawn}</div></body></html>',
        encoding="utf-8",
    )
