"""Storage of surfaces: keys, cache, no table package on a hit."""

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from rlsim import catalog
from rlsim.costs import surface_table
from rlsim.costs.engine_step import EngineShape
from rlsim.costs.kernels import kernels_for


def small(dtype: str = "bf16") -> EngineShape:
    return EngineShape(catalog.model("Qwen/Qwen2.5-0.5B"), 1, 1, 1, 1, 1, dtype, "bf16", 8)


def key(shape: EngineShape, gpu: str = "h100-sxm", seqs: int = 16) -> str:
    return surface_table.key(catalog.gpu(gpu), "vllm", shape, seqs, 8192, "auto")


def test_key_depends_on_what_the_surface_depends_on() -> None:
    keys = [key(small()), key(small("fp8")), key(small(), "h200"), key(small(), seqs=32)]
    assert len(set(keys)) == len(keys)
    assert key(small()) == keys[0]


def test_round_trip(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(surface_table, "cache_folder", lambda: tmp_path)
    name = key(small())
    assert surface_table.find(name) is None
    built = surface_table.build(kernels_for(catalog.gpu("h100-sxm"), "vllm"), small(), 16, 8192)
    surface_table.save(built, name, tmp_path / f"{name}.npz")
    found = surface_table.find(name)
    assert found is not None
    for field in surface_table.ARRAYS:
        np.testing.assert_array_equal(getattr(found, field), getattr(built, field))
    assert (found.base, found.pair, found.notes) == (built.base, built.pair, built.notes)


def test_a_broken_file_counts_as_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(surface_table, "cache_folder", lambda: tmp_path)
    name = key(small())
    (tmp_path / f"{name}.npz").write_bytes(b"half a file")
    assert surface_table.find(name) is None


def test_a_folder_that_cannot_be_written_is_no_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    built = surface_table.build(kernels_for(catalog.gpu("h100-sxm"), "vllm"), small(), 16, 8192)
    surface_table.save(built, "x", tmp_path / "file" / "x.npz")


def test_a_hit_reads_nothing_of_the_table_package(tmp_path: Path) -> None:
    script = f"""
import sys
from pathlib import Path
from rlsim import catalog
from rlsim.costs import surface_table
from rlsim.costs.engine_step import EngineShape
surface_table.cache_folder = lambda: Path({str(tmp_path)!r})
shape = EngineShape(catalog.model("Qwen/Qwen2.5-0.5B"), 1, 1, 1, 1, 1, "bf16", "bf16", 8)
name = surface_table.key(catalog.gpu("h100-sxm"), "vllm", shape, 16, 8192, "auto")
assert surface_table.find(name) is not None
assert not [m for m in sys.modules if m.startswith(("aiconfigurator", "pyarrow"))], sorted(sys.modules)
"""
    name = key(small())
    built = surface_table.build(kernels_for(catalog.gpu("h100-sxm"), "vllm"), small(), 16, 8192)
    surface_table.save(built, name, tmp_path / f"{name}.npz")
    subprocess.run([sys.executable, "-c", script], check=True, timeout=60)


def test_grids_end_at_the_limit() -> None:
    for limit in (1, 2, 7, 64, 100, 256, 1000, 4096):
        grid = surface_table.grid_to(surface_table.BATCHES, limit)
        assert grid[-1] == limit
        assert (np.diff(grid) > 0).all()
