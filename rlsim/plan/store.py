"""The folder of a sweep: what is swept, and the points that are done, which a killed sweep need not repeat.

`sweep.json` says what is swept. Every time points finish, a file `parts/NNNNNN.parquet` holds them: it is written
under another name, flushed to the disk and renamed, so that it is there as a whole or not at all.
"""

from __future__ import annotations

import fcntl
import json
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from rlsim.errors import UserError
from rlsim.plan.case import Outcome
from rlsim.views import files

OPTION = "--out"
MANIFEST = "sweep.json"
COMPACT = 256
"""Parts from which they are put together when a sweep is opened."""


class Store:
    """An opened folder. `done`: outcomes by the number of their case."""

    def __init__(self, folder: Path) -> None:
        self._parts = folder / "parts"
        self.done: dict[int, Outcome] = {}
        self._next = 0
        self._read()

    def _read(self) -> None:
        import pyarrow.parquet as pq

        found = sorted(self._parts.glob("*.parquet"))
        for file in found:
            table = pq.read_table(file, use_threads=False)
            for row in table.to_pylist():
                self.done[row["case"]] = Outcome(row["status"], row["message"], json.loads(row["values"]))
        self._next = max((int(file.stem) for file in found), default=-1) + 1
        for left in self._parts.glob("*.tmp"):
            left.unlink()
        if len(found) > COMPACT:
            self.add(list(self.done.items()))
            for file in found:
                file.unlink()

    def add(self, outcomes: Sequence[tuple[int, Outcome]]) -> None:
        """Keep outcomes for good: they are on the disk when this returns."""
        import pyarrow as pa
        import pyarrow.parquet as pq

        rows = [
            {"case": i, "status": o.status, "message": o.message, "values": json.dumps(dict(o.values), allow_nan=False)}
            for i, o in outcomes
        ]
        target = self._parts / f"{self._next:06d}.parquet"
        with files.writing(target, OPTION):
            temporary = target.with_suffix(".tmp")
            with temporary.open("wb") as file:
                pq.write_table(pa.Table.from_pylist(rows), file)
                file.flush()
                os.fsync(file.fileno())
            temporary.replace(target)
            _flush(self._parts)
        self._next += 1
        self.done.update(outcomes)


def _flush(folder: Path) -> None:
    """The folder's own entries to the disk."""
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


@contextmanager
def opened(folder: Path, manifest: Mapping[str, Any]) -> Iterator[Store]:
    """The store of this sweep, new or resumed. Raises `UserError` where the folder is another sweep's, or in use."""
    files.folder(folder, OPTION)
    files.folder(folder / "parts", OPTION)
    with files.writing(folder / ".lock", OPTION):
        lock = (folder / ".lock").open("w")
    with lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            message = f"{folder} is being written by another sweep that runs now"
            raise UserError(message, key=OPTION, fix="wait for it, or another folder") from None
        _same(folder, manifest)
        yield Store(folder)


def _same(folder: Path, manifest: Mapping[str, Any]) -> None:
    """Write the manifest, or compare it with the one that is there."""
    file = folder / MANIFEST
    text = json.dumps(manifest, indent=1)
    if not file.exists():
        if any((folder / "parts").glob("*.parquet")):
            raise UserError(f"{folder} has points, but no {MANIFEST}", key=OPTION, fix="another folder")
        temporary = file.with_suffix(".tmp")
        temporary.write_text(text, encoding="utf-8")
        temporary.replace(file)
        return
    try:
        there = json.loads(file.read_text(encoding="utf-8"))
        differs = [key for key in manifest if there.get(key) != json.loads(text)[key]]
    except (ValueError, AttributeError):
        raise UserError(f"{file} cannot be read", key=OPTION, fix="another folder") from None
    if differs:
        message = f"{folder} holds another sweep (not the same: {', '.join(differs)})"
        raise UserError(message, key=OPTION, fix="another folder, or the command that began it")
