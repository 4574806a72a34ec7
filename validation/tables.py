"""Tables of measurements: tidy, one row per repetition, as parquet (or CSV) files in folders.

Fixed columns say what was measured, where and with what; the other columns are the parameters of one benchmark and are
empty for the others. Warm-up is never recorded. Bytes, seconds, bytes/s.
"""

from __future__ import annotations

import os
import platform
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pandas as pd

from rlsim.calibrate import tables as reader
from rlsim.errors import UserError

BENCHMARKS = (
    "gemm", "attention", "train_step", "logprob", "decode", "prefill", "collective", "reshard", "copy", "ipc", "dcp",
    "weight_sync",
)  # fmt: skip
FIXED = (
    "benchmark", "case", "repetition", "seconds", "machine", "device", "backend", "world", "torch", "started",
)  # fmt: skip
NUMBERS = ("seconds", "repetition", "world")

Row = Mapping[str, Any]


def identity(device: str | None = None) -> dict[str, Any]:
    """Columns that are the same for all rows of this process: machine, device, torch, versions of the rest, started.

    device  name of the accelerator; None: the processor's name
    """
    import torch

    return {
        "machine": f"{platform.system()} {platform.machine()}, {os.cpu_count()} cores, {_memory():.0f} GiB",
        "device": device or processor(),
        "torch": torch.__version__,
        "versions": _versions(),
        "started": datetime.now(UTC).isoformat(timespec="seconds"),
    }


def _versions() -> str:
    """What torch stands on: python, and CUDA and NCCL where it was built with them."""
    import torch

    found = [f"python {platform.python_version()}"]
    if torch.version.cuda is not None:
        found.append(f"cuda {torch.version.cuda}")
        found.append("nccl " + ".".join(map(str, torch.cuda.nccl.version())))
    return ", ".join(found)


def processor() -> str:
    """Name of the CPU as the kernel has it."""
    file = Path("/proc/cpuinfo")
    lines = file.read_text().splitlines() if file.exists() else []
    names = [line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.processor() or platform.machine()


def _memory() -> float:
    """GiB of memory of this host."""
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30


def write(rows: Iterable[Row], folder: Path | str, name: str | None = None) -> Path:
    """Write the rows as one parquet file into the folder, which is made if absent.

    name  of the file, without ending; None: the benchmarks in it. A file of that name is replaced.
    """
    frame = checked(pd.DataFrame(list(rows)), name or str(folder))
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    file = folder / f"{name or '-'.join(sorted(frame['benchmark'].unique()))}.parquet"
    half = file.with_suffix(".half")  # who is ended while writing leaves the last whole table
    frame.to_parquet(half, index=False, compression="zstd")
    half.replace(file)
    return file


def read(folders: Path | str | Sequence[Path | str]) -> pd.DataFrame:
    """All rows of the parquet and CSV files below the folders (or of single files), parameters as columns."""
    places = [folders] if isinstance(folders, (str, Path)) else list(folders)
    return checked(reader.read([Path(place) for place in places]).drop(columns="file"), ", ".join(map(str, places)))


def checked(frame: pd.DataFrame, where: str) -> pd.DataFrame:
    """The table, fixed columns first, or `UserError` where it is not one of measurements."""
    missing = [column for column in FIXED if column not in frame.columns]
    if missing:
        raise UserError(f"no column {', '.join(missing)}", file=where, fix=", ".join(FIXED))
    strange = sorted(set(frame["benchmark"]) - set(BENCHMARKS))
    if strange:
        raise UserError(f"no benchmark {', '.join(map(str, strange))}", file=where, fix=", ".join(BENCHMARKS))
    for column in NUMBERS:
        frame[column] = pd.to_numeric(frame[column], errors="coerce")
        if frame[column].isna().any() or (frame[column] < 0).any():
            raise UserError("not a number from 0 up", file=where, key=column)
    return frame[[*FIXED, *(c for c in frame.columns if c not in FIXED)]]
