"""Random surfaces and days in the life of a fleet, played by the simulator and by the reference engine."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from math import inf

import numpy as np
from hypothesis import strategies as st
from reference_engine import ReferenceFleet, Sample

from rlsim.sim.fleet import Fleet
from rlsim.sim.request import Request
from rlsim.sim.surface import Surface

COUNTS = {
    "iterations": "iterations",
    "generated_tokens": "generated",
    "prefill_tokens": "prefilled",
    "reprefilled_tokens": "reprefilled",
    "preemptions": "preemptions",
}
SECONDS = {"busy_seconds": "busy", "batch_seconds": "batch_seconds"}


def random_surface(rng: np.random.Generator, ranks: int, slots: int, capacity: int, budget: int, block: int) -> Surface:
    """Rows that rise with the batch, bent at the knots in either direction (so that ranks' lines cross)."""
    knots = np.concatenate([[0.0], np.sort(rng.choice(np.arange(1, 400), size=4, replace=False)).astype(float)])
    batch = np.arange(slots + 1)
    slopes = rng.uniform(0.2, 2.0, size=(slots + 1, len(knots) - 1)) * 1e-5
    bends = np.concatenate([np.zeros((slots + 1, 1)), np.cumsum(slopes * np.diff(knots), axis=1)], axis=1)
    rows = (0.01 + 1e-4 * batch)[:, None] + bends * rng.uniform(0.5, 3.0, size=slots + 1)[:, None]
    rows[0] = 0.0
    joint = np.sort(rng.uniform(0, 0.01, size=ranks * slots + 1)) * (ranks > 1)
    return Surface(
        knots=knots,
        rank_rows=rows,
        joint=joint,
        prefill_knots=np.array([0.0, 16.0, 4096.0]),
        prefill_seconds=np.array([0.0, 0.004, 0.5]),
        prefill_pair_seconds=1e-7,
        prefill_base=0.008,
        provenance={"roofline": 1.0},
        kv_capacity_tokens=capacity,
        block_size=block,
        max_num_seqs=slots,
        max_num_batched_tokens=budget,
    )


@dataclass(frozen=True)
class Case:
    """Fleet, samples (group, prompt, response) and what happens when.

    actions    (seconds since the one before, what, argument): submit n, pause, resume, forget (weight update without
               KV), keep (one with KV), abort every (n+1)-th sample
    refill     samples that are handed out one per completion instead
    """

    seed: int
    ranks: int
    engines: int
    slots: int
    spare: int
    budget: int
    block: int
    share: bool
    sticky: bool
    samples: list[tuple[int, int, int]]
    actions: list[tuple[float, str, int]] = field(default_factory=list)
    refill: int = 0

    def kinds(self) -> list[tuple[Surface, int]]:
        """Engines of different speed, so that no two are ever in step."""
        rng = np.random.default_rng(self.seed)
        longest = max(prompt + response for _, prompt, response in self.samples)
        capacity = (-(-longest // self.block) + self.spare) * self.block
        size = (self.ranks, self.slots, capacity, self.budget, self.block)
        return [(random_surface(rng, *size).scaled(rng.uniform(0.5, 2.0)), 1) for _ in range(self.engines)]


@dataclass
class Day:
    """What came of it."""

    finish: dict[int, float]
    start: dict[int, float]
    counts: dict[str, float]
    aborted: dict[int, int]


def sample_lists(
    prompts: st.SearchStrategy[int], responses: st.SearchStrategy[int], most: int
) -> st.SearchStrategy[list[tuple[int, int, int]]]:
    """Groups of samples: (group, prompt, response)."""
    group = st.tuples(prompts, st.lists(responses, min_size=1, max_size=6))
    return st.lists(group, min_size=1, max_size=most).map(
        lambda groups: [(g, prompt, r) for g, (prompt, rs) in enumerate(groups) for r in rs]
    )


@st.composite
def cases(draw: st.DrawFn, eventful: bool = True, refill: bool = False, wide: bool = False) -> Case:
    samples = draw(sample_lists(st.integers(1, 120), st.integers(1, 150), 5))
    kinds = ["submit", "pause", "resume", "forget", "keep", "abort"]
    gaps = st.one_of(st.just(0.0), st.floats(0.001, 1.5))
    action = st.tuples(gaps, st.sampled_from(kinds), st.integers(0, 8))
    return Case(
        seed=draw(st.integers(0, 2**32)),
        ranks=draw(st.integers(2, 5) if wide else st.sampled_from([1, 1, 2, 3])),
        engines=draw(st.integers(1, 3)),
        slots=draw(st.integers(1, 12)),
        spare=draw(st.one_of(st.integers(0, 10), st.just(500))),
        budget=draw(st.sampled_from([16, 40, 100, 4096])),
        block=draw(st.sampled_from([1, 4, 16])),
        share=draw(st.booleans()),
        sticky=draw(st.booleans()),
        samples=samples,
        actions=draw(st.lists(action, max_size=12)) if eventful else [],
        refill=draw(st.integers(1, len(samples))) if refill else 0,
    )


def play_fleet(case: Case) -> Day:
    """The case on the simulator."""
    router = "group-sticky" if case.sticky else "least-loaded"
    fleet = Fleet(case.kinds(), router, share_prompts=case.share)
    requests = [Request(i, group, prompt, response) for i, (group, prompt, response) in enumerate(case.samples)]
    later = requests[len(requests) - case.refill :] if case.refill else []
    waiting = requests[: len(requests) - case.refill] if case.refill else requests[:]
    done: list[tuple[float, Request]] = []
    aborted: dict[int, int] = {}
    now, paused = 0.0, False
    for gap, what, n in case.actions:
        now += gap
        if gap:
            done += fleet.play(now, False)
        if what == "submit":
            fleet.submit(waiting[:n], now)
            del waiting[:n]
        elif what == "pause" and not paused:
            fleet.pause(now)
            paused = True
        elif what == "resume" and paused:
            fleet.resume(now)
            paused = False
        elif what in ("forget", "keep"):
            fleet.interrupt(now, keep_kv=what == "keep")
        elif what == "abort":
            gone = fleet.abort({r.id for r in requests[::-1][:: n + 1]}, now)
            aborted |= {r.id: r.done for r in gone}
    if paused:
        fleet.resume(now)
    fleet.submit(waiting, now)
    while later:
        got = fleet.play(inf, True)
        done += got
        if not got:
            fleet.submit(later, fleet.now)
            break
        fleet.submit(later[: len(got)], fleet.now)
        del later[: len(got)]
    done += fleet.drain(fleet.now)
    stats = fleet.stats
    return Day(
        finish={r.id: t for t, r in done},
        start={r.id: r.start for _, r in done},
        counts={name: getattr(stats, name) for name in (*COUNTS, *SECONDS)},
        aborted=aborted,
    )


def play_reference(case: Case) -> Day:
    """The case on the reference."""
    fleet = ReferenceFleet(case.kinds(), share=case.share)
    samples = [Sample(i, group, prompt, response) for i, (group, prompt, response) in enumerate(case.samples)]
    later = samples[len(samples) - case.refill :] if case.refill else []
    waiting = samples[: len(samples) - case.refill] if case.refill else samples[:]
    aborted: dict[int, int] = {}
    now, paused = 0.0, False
    for gap, what, n in case.actions:
        now += gap
        fleet.play(now)
        if what == "submit":
            fleet.submit(waiting[:n], case.sticky)
            del waiting[:n]
        elif what == "pause":
            fleet.stand_still()
            paused = True
        elif what == "resume" and paused:
            fleet.go_on()
            paused = False
        elif what == "forget":
            fleet.lose_kv()
        elif what == "abort":
            gone = fleet.abort({s.id for s in samples[::-1][:: n + 1]})
            aborted |= {s.id: s.done for s in gone}
    fleet.go_on()
    fleet.submit(waiting, case.sticky)

    def hand_out(_: float, n: int) -> None:
        fleet.submit(later[:n], case.sticky)
        del later[:n]

    refill: Callable[[float, int], None] | None = hand_out if case.refill else None
    fleet.play(inf, refill)
    if later:
        fleet.submit(later, case.sticky)
        fleet.play(inf)
    return Day(
        finish={s.id: t for t, s in fleet.done},
        start={s.id: s.start if s.start is not None else -1.0 for _, s in fleet.done},
        counts={name: fleet.counts(theirs) for name, theirs in (COUNTS | SECONDS).items()},
        aborted=aborted,
    )
