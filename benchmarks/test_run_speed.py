"""How long the shipped scenarios take: `python -m pytest benchmarks/test_run_speed.py`.

Whole processes, start-up included, as a user waits for them. `spin` is the same machine counting to ten million: two
machines, or a busy one, compare by it. Peak memory is that of the largest process of the run.
"""

from __future__ import annotations

import resource
import subprocess
import sys
from pathlib import Path

import pytest
from pytest_benchmark.fixture import BenchmarkFixture

SCENARIOS = Path(__file__).parents[1] / "scenarios"


def spin() -> int:
    x = 0
    for _ in range(10_000_000):
        x += 1
    return x


def test_spin(benchmark: BenchmarkFixture) -> None:
    benchmark.pedantic(spin, rounds=3)


@pytest.mark.parametrize(
    "arguments",
    [
        pytest.param(("7b_64gpu.yaml", "--variant", "colocated-sync"), id="7b, one variant"),
        pytest.param(("7b_64gpu.yaml",), id="7b, four variants"),
        pytest.param(("600b_moe.yaml",), id="600b, four variants of 20 steps"),
        pytest.param(("../benchmarks/16384_gpus.yaml",), id="16,384 GPUs, ten steps of 100,000 samples"),
    ],
)
def test_run(benchmark: BenchmarkFixture, arguments: tuple[str, ...]) -> None:
    file, *rest = arguments
    command = [sys.executable, "-m", "rlsim", "run", str(SCENARIOS / file), *rest, "--json"]
    benchmark.pedantic(subprocess.run, args=(command,), kwargs={"check": True, "capture_output": True}, rounds=2)
    benchmark.extra_info["peak_mb"] = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss / 1024
