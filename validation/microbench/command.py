"""What `rlsim calibrate run` does: checks what is asked, runs it with a progress bar, tells how it went."""

from __future__ import annotations

import importlib.util
import json
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from rlsim.errors import UserError
from rlsim.views import progress, text
from validation.microbench import suite
from validation.microbench.group import Asked
from validation.microbench.suite import MODULES, TABLE, TOGETHER, Outcome


def command(names: Sequence[str], out: Path, asked: Asked, worlds: Sequence[int], as_json: bool) -> bool:
    """Run benchmarks (none named: all) and print how they went. Returns whether all ended."""
    unknown = [n for n in names if n not in MODULES]
    if unknown:
        raise UserError(f"no benchmark {unknown[0]!r}", key="calibrate run", fix="one of " + ", ".join(MODULES))
    if importlib.util.find_spec("torch") is None:
        raise UserError("benchmarks run in torch, which is not installed", fix="pip install 'rlsim[torch]'")
    chosen = list(names or MODULES)
    worlds = list(worlds) or _worlds(asked.device, bool(set(chosen) & set(TOGETHER)))
    _check(chosen, worlds, asked.device, bool(names))
    try:
        out.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UserError(f"cannot be written to: {error.strerror}", file=str(out), key="--out") from None
    total = sum(len(there) for _, there in suite.jobs(chosen, worlds))
    with progress.bar("benchmarks") as shown:
        task = shown.add_task("measuring", total=total)

        def tell(one: Outcome) -> None:
            shown.console.print(_line(one)) if shown.console.is_terminal else None
            shown.advance(task)

        outcomes = suite.run(chosen, worlds, asked, out, tell)
    if as_json:
        sys.stdout.write(json.dumps(as_dict(outcomes, out), indent=1) + "\n")
    else:
        text.show(report(outcomes, out))
    return all(one.error is None for one in outcomes)


def _worlds(device: str, together: bool) -> list[int]:
    """One process and one per GPU; on CPUs one and two."""
    import torch

    gpus = torch.cuda.device_count()
    if device == "cpu" or (device == "auto" and gpus == 0):
        return [2] if together else [1, 2]
    return [1] if gpus < 2 else [1, gpus]


def _check(names: Sequence[str], worlds: Sequence[int], device: str, named: bool) -> None:
    import torch

    gpus = torch.cuda.device_count()
    if min(worlds) < 1:
        raise UserError(f"{min(worlds)} processes", key="--world", fix="1 or more")
    if device == "cuda" and gpus < max(worlds):
        fix = "--device cpu" if gpus == 0 else f"--world {gpus}, or --device cpu"
        raise UserError(f"{max(worlds)} processes need a GPU each: {gpus} here", key="--device", fix=fix)
    short = [n for n in names if n in TOGETHER]
    if named and short and max(worlds) < 2:
        raise UserError(f"{short[0]} needs two processes", key="--world", fix="--world 2")


def report(outcomes: Sequence[Outcome], out: Path) -> RenderableType:
    """A line per benchmark and where the rows are."""
    grid = Table(box=None, padding=(0, 2, 0, 0), header_style="bold")
    grid.add_column("benchmark")
    for name in ("processes", "rows", "seconds"):
        grid.add_column(name, justify="right")
    grid.add_column("", overflow="fold")
    for one in outcomes:
        grid.add_row(one.name, str(one.world), str(one.rows), f"{one.seconds:.1f}", _state(one))
    rows = sum(one.rows for one in outcomes)
    cores = os.cpu_count() or 1
    parts: list[RenderableType] = [grid, Text(f"wrote {rows} rows to {out / TABLE}.parquet")]
    if max((one.world for one in outcomes), default=1) > cores:
        parts.append(Text(f"more processes than the {cores} cores: they take turns, which is in the seconds"))
    parts.append(Text(f"fit them: rlsim calibrate fit {out} --out profile.yaml"))
    return Group(*parts)


def as_dict(outcomes: Sequence[Outcome], out: Path) -> dict[str, Any]:
    """The same as plain data."""
    rows = [
        {"benchmark": o.name, "world": o.world, "rows": o.rows, "seconds": o.seconds, "error": o.error}
        for o in outcomes
    ]
    return {"table": str(out / f"{TABLE}.parquet"), "benchmarks": rows}


def _state(one: Outcome) -> str:
    return "" if one.error is None else f"FAILED: {one.error}"


def _line(one: Outcome) -> str:
    return f"{one.name} ({one.world}): {one.rows} rows, {one.seconds:.1f} s {_state(one)}"
