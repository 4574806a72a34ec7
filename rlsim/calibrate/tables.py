"""Tables of measurements read for a fit: tidy rows of repetitions, reduced to one median per case."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from rlsim.errors import UserError

if TYPE_CHECKING:
    import pandas as pd

NEEDED = ("benchmark", "seconds")
BOOKKEEPING = (
    "repetition",
    "seconds",
    "started",
    "torch",
    "versions",
    "case",
    "file",
    "rank",
    "busy",
    "sent",
    "received",
)
"""Columns that do not tell what was measured."""
ENDINGS = (".parquet", ".csv")


def read(places: Sequence[Path]) -> pd.DataFrame:
    """All rows of the files, and of the files below the folders; column `file` says where from."""
    import pandas as pd

    frames = [_read(file) for place in places for file in _files(place)]
    return pd.concat(frames, ignore_index=True)


def medians(rows: pd.DataFrame) -> pd.DataFrame:
    """One row per distinct setting: median seconds, `repetitions`, and all columns that say what was measured."""
    keys = [c for c in rows.columns if c not in BOOKKEEPING and rows[c].notna().any()]
    grouped = rows.groupby(keys, dropna=False, sort=False)
    points = grouped.agg(seconds=("seconds", "median"), repetitions=("seconds", "size"), file=("file", "first"))
    return points.reset_index()


def _files(place: Path) -> list[Path]:
    if not place.exists():
        raise UserError("no such file or folder", file=str(place), fix="a folder of tables, .parquet or .csv")
    if place.is_file():
        return [place]
    files = sorted(f for ending in ENDINGS for f in place.rglob(f"*{ending}"))
    if not files:
        raise UserError("no tables in this folder", file=str(place), fix="files that end in .parquet or .csv")
    return files


def _read(file: Path) -> pd.DataFrame:
    import pandas as pd

    if file.suffix not in ENDINGS:
        raise UserError("not a table", file=str(file), fix="a .parquet or .csv file")
    try:
        frame = pd.read_csv(file) if file.suffix == ".csv" else pd.read_parquet(file)
    except (ValueError, OSError) as error:
        raise UserError(f"cannot be read as a table: {str(error)[:120]}", file=str(file)) from None
    missing = [column for column in NEEDED if column not in frame.columns]
    if missing:
        fix = "one row per repetition: benchmark, seconds, and what was measured"
        raise UserError(f"no column {', '.join(missing)}", file=str(file), fix=fix)
    frame["seconds"] = pd.to_numeric(frame["seconds"], errors="coerce")
    if not (frame["seconds"] > 0).all():
        raise UserError("seconds that are not above 0", file=str(file), key="seconds", fix="measured times")
    return frame.assign(file=file.name)
