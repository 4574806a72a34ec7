"""`rlsim catalog`: what scenarios can name, and where each figure comes from."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from rlsim.catalog import show
from rlsim.catalog.show import Row

Entries = list[tuple[str, list[Row]]]


def table(kind: str | None, name: str | None) -> RenderableType:
    """Both lists, one list, or every figure of one entry with its source."""
    if name is not None:
        return _entry(_one(kind, name))
    lists = [_overview(k, _all(k)) for k in ("gpus", "models") if kind in (None, k)]
    hint = Text(
        "`rlsim catalog gpus NAME` and `rlsim catalog models NAME` show every figure with its source",
        style="dim",
    )
    return Group(*lists, hint)


def as_dict(kind: str | None, name: str | None) -> dict[str, Any]:
    """The same as plain data."""
    if name is not None:
        return {name: [row._asdict() for row in _one(kind, name)]}
    kinds = ("gpus", "models") if kind is None else (kind,)
    return {k: {n: [row._asdict() for row in rows] for n, rows in _all(k)} for k in kinds}


def _all(kind: str) -> Entries:
    return show.gpu_table() if kind == "gpus" else show.model_table()


def _one(kind: str | None, name: str) -> list[Row]:
    return show.gpu_rows(name) if kind == "gpus" else show.model_rows(name)


def _entry(rows: Sequence[Row]) -> Table:
    grid = Table(box=None, padding=(0, 2, 0, 0), header_style="bold")
    grid.add_column("figure")
    grid.add_column("value", justify="right")
    grid.add_column("unit")
    grid.add_column("source", style="dim", overflow="fold")
    for row in rows:
        grid.add_row(row.figure, _value(row.value), row.unit, row.source)
    return grid


def _overview(kind: str, entries: Entries) -> Table:
    wanted = (
        "bf16 peak (dense)",
        "fp8 peak (dense)",
        "HBM",
        "HBM bandwidth",
        "NVLink, one direction",
        "NIC per GPU, one direction",
        "price",
    )
    columns = [row for row in entries[0][1] if kind == "models" or row.figure in wanted]
    grid = Table(box=None, padding=(0, 2, 0, 0), header_style="bold")
    grid.add_column(kind)
    for row in columns:
        grid.add_column(f"{row.figure}\n{row.unit}", justify="right")
    for name, rows in entries:
        by_figure = {row.figure: row for row in rows}
        cells = [_value(by_figure[c.figure].value) if c.figure in by_figure else "-" for c in columns]
        grid.add_row(name, *cells)
    return grid


def _value(value: float | str) -> str:
    if isinstance(value, str):
        return value
    return f"{value:,.0f}" if value == int(value) and abs(value) >= 10 else f"{value:,.2f}"
