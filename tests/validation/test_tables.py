"""Tables of measurements: what is written is read, what is no table is refused."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from rlsim.errors import UserError
from validation import tables


def row(**more: Any) -> dict[str, Any]:
    fixed = {"benchmark": "gemm", "case": "a", "repetition": 0, "seconds": 1e-3, "backend": "none", "world": 1}
    return {**fixed, **tables.identity(), **more}


def test_rows_of_several_benchmarks_come_back_with_all_their_parameters(tmp_path: Path) -> None:
    tables.write([row(m=8, n=16), row(m=8, n=16, repetition=1)], tmp_path / "a")
    tables.write([row(benchmark="copy", bytes=1024)], tmp_path / "b", "copies")
    found = tables.read([tmp_path / "a", tmp_path / "b" / "copies.parquet"])
    assert list(found.columns[: len(tables.FIXED)]) == list(tables.FIXED)
    assert found["m"].tolist()[:2] == [8, 8]
    assert found["m"].isna().tolist() == [False, False, True]
    assert found["bytes"].tolist()[2] == 1024


def test_csv_is_read_like_parquet(tmp_path: Path) -> None:
    tables.read(tables.write([row(m=8)], tmp_path)).to_csv(tmp_path / "gemm.csv", index=False)
    (tmp_path / "gemm.parquet").unlink()
    assert tables.read(tmp_path)["m"].tolist() == [8]


@pytest.mark.parametrize(
    ("change", "message"),
    [({"seconds": "fast"}, "seconds"), ({"benchmark": "gem"}, "no benchmark gem"), ({"seconds": -1.0}, "seconds")],
)
def test_what_is_no_measurement_is_refused(tmp_path: Path, change: dict[str, Any], message: str) -> None:
    with pytest.raises(UserError, match=message):
        tables.write([row(**change)], tmp_path)


def test_missing_columns_and_empty_folders_are_named(tmp_path: Path) -> None:
    short = row()
    del short["world"]
    with pytest.raises(UserError, match="no column world"):
        tables.write([short], tmp_path)
    with pytest.raises(UserError, match="no such file or folder"):
        tables.read(tmp_path / "none")
