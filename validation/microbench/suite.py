"""Which benchmarks there are and how they run: in groups of processes, one that fails or hangs is survived.

The rows of all go into one table, `measurements.parquet`; those of a benchmark that is measured again are replaced.
"""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import pandas as pd

from validation import tables
from validation.microbench.group import Asked, run_group

MODULES = {
    "gemm": ("gemm", "run"),
    "attention": ("attention", "run"),
    "logprob": ("models", "logprob"),
    "prefill": ("models", "prefill"),
    "decode": ("models", "decode"),
    "copy": ("copies", "run"),
    "ipc": ("ipc", "run"),
    "train_step": ("models", "train_step"),
    "collective": ("collective", "run"),
    "reshard": ("reshard", "run"),
    "dcp": ("dcp", "run"),
}
ALONE = ("gemm", "attention", "logprob", "prefill", "decode", "copy", "ipc")
"""Measured in one process; the others in as many as the world has."""
TOGETHER = ("collective", "reshard")
"""Need two processes at least."""
TABLE = "measurements"


@dataclass(frozen=True)
class Outcome:
    """How one benchmark went. rows that it left; error: why it did not end, None where it did."""

    name: str
    world: int
    rows: int
    seconds: float
    error: str | None


def jobs(names: Sequence[str], worlds: Sequence[int]) -> list[tuple[int, list[str]]]:
    """(processes, benchmarks) of each group."""
    found = []
    for world in sorted({1, *worlds}):
        many = [n for n in names if n not in ALONE and world in worlds and (world > 1 or n not in TOGETHER)]
        there = [n for n in names if n in ALONE] + many if world == 1 else many
        found += [(world, there)] if there else []
    return found


def run(
    names: Sequence[str],
    worlds: Sequence[int],
    asked: Asked,
    out: Path,
    tell: Callable[[Outcome], object] = lambda outcome: None,
    budget: float = float("inf"),
) -> list[Outcome]:
    """Run benchmarks and leave their rows in `out`.

    worlds  numbers of processes for the benchmarks of several
    tell    called with each outcome as soon as it is known
    budget  seconds for all; what has not ended by then has failed
    """
    until = time.monotonic() + budget
    outcomes: list[Outcome] = []
    for world, names_there in jobs(names, worlds):
        left = names_there
        while left and time.monotonic() < until:
            found = _group(left, world, asked, out, tell, until)
            outcomes += found
            left = left[len(found) :]
        outcomes += [Outcome(name, world, 0, 0.0, "not begun: the time for all benchmarks was up") for name in left]
    return outcomes


def _group(
    names: Sequence[str], world: int, asked: Asked, out: Path, tell: Callable[[Outcome], object], until: float
) -> list[Outcome]:
    """One torchrun, up to the first benchmark that does not end."""
    parts = out / "parts"
    parts.mkdir(parents=True, exist_ok=True)
    found: list[Outcome] = []
    last = time.monotonic()

    def ended(name: str, rows: int, error: str | None = None) -> None:
        nonlocal last
        found.append(Outcome(name, world, rows, time.monotonic() - last, error))
        last = time.monotonic()
        tell(found[-1])

    try:
        reason = run_group(names, world, asked, parts, ended, until)
        if len(found) < len(names):
            part = parts / f"{names[len(found)]}-w{world}.parquet"
            rows = len(pd.read_parquet(part)) if part.exists() else 0
            ended(names[len(found)], rows, reason or "ended without a word")
    finally:
        _merge(parts, out)
    return found


def _merge(parts: Path, out: Path) -> None:
    """The parts' rows go into the table. Only between groups: while one runs, the cores are its own."""
    new = [tables.read(file) for file in sorted(parts.glob("*.parquet"))]
    table = out / f"{TABLE}.parquet"
    if new:
        fresh = pd.concat(new, ignore_index=True)
        if table.exists():
            old = tables.read(table)
            again = pd.MultiIndex.from_frame(fresh[["benchmark", "world", "device"]])
            kept = old[~pd.MultiIndex.from_frame(old[["benchmark", "world", "device"]]).isin(again)]
            fresh = pd.concat([kept, fresh], ignore_index=True)
        tables.write(fresh.to_dict("records"), out, TABLE)
    shutil.rmtree(parts)
