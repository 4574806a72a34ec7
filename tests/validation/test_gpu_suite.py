"""The script for a GPU at hand, run on the CPU: tables and rates are there."""

from __future__ import annotations

from pathlib import Path

import pandas as pd

from validation import gpu_suite, sections, tables
from validation.gpu_suite import ORDER, results


def test_one_device_measures_all_that_needs_no_second_process(tmp_path: Path) -> None:
    assert gpu_suite.main(["--device", "cpu", "--quick", "--out", str(tmp_path / "gpu")]) == 0
    assert set(tables.read(tmp_path / "gpu")["benchmark"]) == set(ORDER)
    ((title, text),) = sections.sections(tmp_path)
    assert title == "One device at work"
    assert text.count("GB/s") == 4  # copy, ipc, save, load
    assert text.count("tokens/s") == 4


def test_what_there_is_no_time_for_is_told_and_leaves_the_rest(tmp_path: Path) -> None:
    assert gpu_suite.main(["--device", "cpu", "--quick", "--out", str(tmp_path), "--budget", "0"]) == 1


def test_rates_are_work_over_seconds() -> None:
    rows = {
        "device": ["x"] * 3,
        "benchmark": ["gemm", "attention", "copy"],
        "m": [1000, None, None], "n": [1000, None, None], "k": [500, None, None], "dtype": ["bfloat16", None, None],
        "op": [None, "forward", None], "batch": [None, 2, None], "sequence": [None, 1000, None],
        "hidden": [None, 250, None], "bytes": [None, None, 3e9], "direction": [None, None, "h2d"],
        "pinned": [None, None, True], "seconds": [1e-3, 1e-3, 0.5],
    }  # fmt: skip
    found = {row[1]: row[2] for row in results(pd.DataFrame(rows))["tables"][0]["rows"]}
    # 2·1000·1000·500 / 1 ms = 1 TFLOP/s; 2·2·1000²·250 / 1 ms = 1 TFLOP/s; 3 GB / 0.5 s
    assert found == {
        "matrix product, bfloat16": 1.0, "attention, forward, causal": 1.0, "copy h2d pinned": 6.0,
    }  # fmt: skip
