"""How fast the rollout engine alone plays: `python -m pytest benchmarks/test_engine_speed.py`.

Beside each time: samples per second, jumps (stretches of iterations played in one go) per sample, microseconds per
jump, how often a sample was preempted or resumed, and `spin_s`, the same machine counting to ten million, so that two
machines, or a busy one, compare. Nothing is asserted about time.
"""

from __future__ import annotations

import gc
import resource
import time
from collections.abc import Callable
from math import inf

import numpy as np
import pytest
from pytest_benchmark.fixture import BenchmarkFixture

from rlsim.sim.fleet import Fleet
from rlsim.sim.request import Request
from rlsim.sim.run import uncollected
from rlsim.sim.surface import Surface

PROMPT, GROUP, MEAN, CAP = 900, 16, 9000, 32768
AMPLE = 10**8
RESUMES = [0]  # of the latest run


def spin() -> float:
    """Seconds for counting to ten million."""
    start, x = time.perf_counter(), 0
    while x < 10_000_000:
        x += 1
    return time.perf_counter() - start


def surface(ranks: int = 1, slots: int = 256, kv_tokens: int = AMPLE) -> Surface:
    """12 ms + 20 us a sequence + KV reads, bent a little at ten knots."""
    knots = np.concatenate([[0.0], 2.0 ** np.arange(8, 17)])
    batch = np.arange(slots + 1)
    rows = (0.012 + 2e-5 * batch)[:, None] + 1e-9 * np.outer(batch, knots * (1 + 0.1 * np.sin(np.arange(len(knots)))))
    rows[0] = 0.0
    return Surface(
        knots=knots,
        rank_rows=rows,
        joint=np.linspace(0.0, 0.01, ranks * slots + 1) * (ranks > 1),
        prefill_knots=np.array([0.0, 512.0, 8192.0]),
        prefill_seconds=np.array([0.0, 0.01, 0.2]),
        prefill_pair_seconds=1e-10,
        prefill_base=0.01,
        provenance={"roofline": 1.0},
        kv_capacity_tokens=kv_tokens,
        block_size=16,
        max_num_seqs=slots,
        max_num_batched_tokens=8192,
    )


def requests(n: int, mean: float = MEAN) -> list[Request]:
    """Lognormal responses, censored at the cap, in groups of 16."""
    rng = np.random.default_rng(0)
    lengths = np.minimum(np.exp(rng.normal(np.log(mean) - 0.32, 0.8, n)).astype(int) + 1, CAP).tolist()
    return [Request(i, i // GROUP, PROMPT, length) for i, length in enumerate(lengths)]


def new_weights(fleet: Fleet, when: float) -> None:
    """Everything that runs is to be prefilled again."""
    RESUMES[0] += sum(len(rank.running) for engine in fleet.engines for rank in engine.ranks)
    fleet.interrupt(when, keep_kv=False)


def batch(fleet: Fleet, samples: list[Request]) -> None:
    """Everything at once, each engine alone to its end."""
    fleet.submit(samples, fleet.now)
    fleet.drain(fleet.now)


def refill(fleet: Fleet, samples: list[Request], places: int, interrupt_every: float = inf) -> None:
    """As many in flight as there are places, one more per completion; at times new weights, without the KV."""
    ahead = places
    fleet.submit(samples[:ahead], 0.0)
    update = interrupt_every
    while fleet.in_flight:
        done = fleet.play(update, True)
        if done:
            fleet.submit(samples[ahead : ahead + len(done)], fleet.now)
            ahead += len(done)
        else:
            new_weights(fleet, update)
            update += interrupt_every


def waves(fleet: Fleet, samples: list[Request], n: int) -> None:
    """Batch after batch; the next weights come when 95% of a batch are done, the rest goes on without its KV."""
    fleet.submit(samples[:n], 0.0)
    for first in range(n, len(samples), n):
        done = 0
        while done < n * 0.95:
            done += len(fleet.play(inf, True))
        new_weights(fleet, fleet.now)
        fleet.submit(samples[first : first + n], fleet.now)
    fleet.drain(fleet.now)


Play = Callable[[Fleet, list[Request]], None]
CASES: dict[str, tuple[tuple[int, int, int, int], int, int, Play]] = {
    # name: (ranks, engines, slots, KV tokens per rank), samples, mean response, how
    "one engine, 512": ((1, 1, 512, AMPLE), 512, MEAN, batch),
    "32 engines, private queues": ((1, 32, 256, AMPLE), 8192, MEAN, batch),
    "32 engines, half the slots": ((1, 32, 128, AMPLE), 8192, MEAN, batch),
    "32 engines, shared queue": ((1, 32, 64, AMPLE), 8192, MEAN, lambda f, s: refill(f, s, 2048)),
    "32 engines, 0.1 resumes a sample": ((1, 32, 64, AMPLE), 16384, MEAN, lambda f, s: refill(f, s, 2048, 1000.0)),
    "32 engines, 1 resume a sample": ((1, 32, 64, AMPLE), 8192, MEAN, lambda f, s: refill(f, s, 2048, 100.0)),
    "16 engines of 32 ranks": ((32, 16, 256, AMPLE), 8192, MEAN, batch),
    "16 engines of 32 ranks, shared queue": ((32, 16, 16, AMPLE), 16384, MEAN, lambda f, s: refill(f, s, 8192)),
    "one engine, KV thrash": ((1, 1, 256, 150_000), 1024, 2000, batch),
}


@pytest.mark.parametrize("name", CASES)
def test_engine(benchmark: BenchmarkFixture, name: str) -> None:
    (ranks, engines, slots, kv_tokens), n, mean, how = CASES[name]
    kind = surface(ranks, slots, kv_tokens)
    run(benchmark, lambda: Fleet([(kind, engines)]), lambda: requests(n, mean), how, rounds=5)


def test_long_run(benchmark: BenchmarkFixture) -> None:
    """512 engines, ten batches of 100,000 samples."""
    kind = surface(1, 256)
    run(
        benchmark,
        lambda: Fleet([(kind, 512)]),
        lambda: requests(1_000_000),
        lambda fleet, samples: waves(fleet, samples, 100_000),
        rounds=1,
    )
    benchmark.extra_info["peak_mb"] = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def run(
    benchmark: BenchmarkFixture,
    build: Callable[[], Fleet],
    samples: Callable[[], list[Request]],
    how: Play,
    rounds: int,
) -> None:
    fleets: list[Fleet] = []

    def fresh() -> tuple[tuple[Fleet, list[Request]], dict[str, object]]:
        fleets[:] = [build()]
        RESUMES[0] = 0
        gc.collect()
        gc.freeze()  # what has been imported is no garbage
        return (fleets[0], samples()), {}

    with uncollected():  # as in a run
        benchmark.pedantic(how, setup=fresh, rounds=rounds)
    stats, seconds, n = fleets[0].stats, benchmark.stats.stats.min, len(samples())
    figures = {
        "samples_per_s": n / seconds,
        "jumps_per_sample": stats.jumps / n,
        "us_per_jump": seconds / max(1, stats.jumps) * 1e6,
        "preemptions_per_sample": stats.preemptions / n,
        "resumes_per_sample": RESUMES[0] / n,
        "spin_s": spin(),
    }
    benchmark.extra_info.update({key: round(value, 4) for key, value in figures.items()})
