"""The measured kernel tables: parquet files inside the installed package `aiconfigurator_core` (Apache-2.0).

Only the files are read, column by column and filtered; the package itself is never imported. Layout:
`systems/data/<system>/<family>/<backend>/<version>/<file>.parquet`, latencies in milliseconds (communication
kernels of DeepEP in microseconds).
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import cache
from importlib.metadata import PackageNotFoundError
from importlib.metadata import version as package_version
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

BACKENDS = ("vllm", "sglang", "trtllm")
Array = npt.NDArray[Any]
Floats = npt.NDArray[np.float64]
MILLI = 1e-3
MICRO = 1e-6


@cache
def data_root() -> Path | None:
    """Folder of the measured systems, or None where the package is not installed."""
    spec = find_spec("aiconfigurator_core")
    if spec is None or not spec.submodule_search_locations:
        return None
    root = Path(next(iter(spec.submodule_search_locations))) / "systems" / "data"
    return root if root.is_dir() else None


@cache
def tables_version() -> str:
    """Version of the table package, part of every cache key."""
    try:
        return package_version("aiconfigurator-core")
    except PackageNotFoundError:
        return "none"


def _version_key(name: str) -> tuple[int, ...]:
    return tuple(int(part) for part in re.findall(r"\d+", name))


@cache
def versions(system: str, family: str, backend: str, file: str) -> tuple[Path, ...]:
    """The table files of one back end, newest version first; a newer file may hold only some of the shapes."""
    root = data_root()
    if root is None:
        return ()
    folder = root / system / family / backend
    if not folder.is_dir():
        return ()
    found = [p / f"{file}.parquet" for p in folder.iterdir() if (p / f"{file}.parquet").exists()]
    return tuple(sorted(found, key=lambda p: _version_key(p.parent.name), reverse=True))


def backends(system: str, family: str, file: str, preferred: str | None) -> tuple[str, ...]:
    """Back ends that have this table on this system, the preferred one first."""
    order = sorted(BACKENDS, key=lambda name: (name != preferred, BACKENDS.index(name)))
    return tuple(name for name in order if versions(system, family, name, file))


@cache
def read(path: Path, columns: tuple[str, ...], where: tuple[tuple[str, Any], ...] = ()) -> dict[str, Array]:
    """Columns of a table as numpy arrays, only the rows in which every `where` column has the given value.

    Older files lack some columns (no window, one format): those read as zero and do not filter.
    """
    import pyarrow.parquet as pq

    have = pq.ParquetFile(path).schema_arrow.names
    filters = [
        (name, "in", list(value)) if isinstance(value, tuple) else (name, "==", value)
        for name, value in where
        if name in have
    ]
    wanted = [c for c in columns if c in have]
    table = pq.read_table(path, columns=wanted, filters=filters or None)
    rows = {name: table[name].to_numpy(zero_copy_only=False) for name in wanted}
    return rows | {name: np.zeros(table.num_rows) for name in columns if name not in have}


def pivot(rows: dict[str, Array], axes: Sequence[str], value: str) -> tuple[list[Floats], Floats]:
    """Rows to a dense grid over `axes` (ascending), NaN where nothing was measured, the fastest of duplicates."""
    knots: list[Floats] = []
    index: list[Array] = []
    for name in axes:
        values, inverse = np.unique(rows[name].astype(np.float64), return_inverse=True)
        knots.append(values)
        index.append(inverse)
    grid = np.full([len(k) for k in knots], np.inf)
    np.minimum.at(grid, tuple(index), rows[value].astype(np.float64))
    grid[~np.isfinite(grid)] = np.nan
    return knots, grid
