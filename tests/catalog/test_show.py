"""Rows for the command line."""

from __future__ import annotations

from rlsim import catalog
from rlsim.catalog.show import gpu_rows, gpu_table, model_rows, model_table


def test_model_figures() -> None:
    rows = {row.figure: row for row in model_rows("Llama-3.1-70B")}
    assert round(float(rows["weights in bf16"].value), 1) == 141.1
    assert rows["KV cache in bf16"].value == 80 * 2 * 8 * 128 * 2 / 1e3  # 327.68 kB a token
    assert all(row.source for row in rows.values())


def test_moe_and_window_rows() -> None:
    rows = {row.figure: row for row in model_rows("gpt-oss-120b")}
    assert rows["experts"].value == "4 of 128 in 36 layers"
    assert "18 layers stop at 128 tokens" in rows["KV cache in bf16"].source
    assert rows["published weights"].value == "mxfp4"


def test_gpu_figures() -> None:
    rows = {row.figure: row for row in gpu_rows("h100")}
    assert (rows["bf16 peak (dense)"].value, rows["bf16 peak (dense)"].unit) == (989.0, "TFLOP/s")
    assert (rows["HBM bandwidth"].value, rows["NVLink, one direction"].value) == (3.35, 450.0)
    assert all(row.source for row in rows.values())


def test_tables_list_everything() -> None:
    assert len(gpu_table()) == len(catalog.gpus())
    assert all(len(rows) == 5 for _, rows in model_table())
