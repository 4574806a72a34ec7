"""How a sweep grows with processes, and what Ray costs a point: `python -m pytest benchmarks/test_sweep_speed.py`.

Goals on idle cores: two local processes near twice as fast as one; Ray under 10 ms a point over a process here. Both
with the workers at work already, as a long sweep has them: a first sweep starts and warms them, and is not counted.
"""

from __future__ import annotations

import time
from pathlib import Path

import pytest
from pytest_benchmark.fixture import BenchmarkFixture

from rlsim.plan.case import Case, read_study
from rlsim.plan.runner import Runner

FILE = Path(__file__).parents[1] / "scenarios" / "7b_64gpu.yaml"
POINTS = 60
WARM = 12
ROUNDS = 3
ENOUGH = 1.7
"""Speed-up of the second process from which it is called near-linear."""
RAY_SECONDS = 0.010


def seconds(jobs: int, ray: str | None = None) -> float:
    """Time of `POINTS` points of one step with different NICs."""
    with Runner(read_study(FILE, (), 1, 0), jobs=jobs, ray=ray) as runner:
        cases = {n: Case(None, (("cluster.nic", f"{25 + n / 10} GB/s"),)) for n in range(POINTS + WARM)}
        runner.run({n: cases[n] for n in range(WARM)})
        start = time.perf_counter()
        done = runner.run({n: cases[n] for n in range(WARM, POINTS + WARM)})
        assert all(outcome.status == "ok" for outcome in done.values())
        return time.perf_counter() - start


def test_two_processes(benchmark: BenchmarkFixture) -> None:
    one, two = benchmark.pedantic(least, args=([(1, None), (2, None)],), rounds=1)
    benchmark.extra_info.update({"one_s": one, "two_s": two, "speed_up": one / two})
    assert one / two >= ENOUGH


def test_ray(benchmark: BenchmarkFixture) -> None:
    pytest.importorskip("ray")
    one, ray = benchmark.pedantic(least, args=([(1, None), (1, "local")],), rounds=1)
    overhead = (ray - one) / POINTS
    benchmark.extra_info.update({"one_s": one, "ray_s": ray, "overhead_s": overhead})
    assert overhead < RAY_SECONDS


def least(ways: list[tuple[int, str | None]]) -> list[float]:
    """The least of `ROUNDS` times of each way, taken in turn: a moment's other load does not fall on one alone."""
    rounds = [[seconds(jobs, ray) for jobs, ray in ways] for _ in range(ROUNDS)]
    return [min(times) for times in zip(*rounds, strict=True)]
