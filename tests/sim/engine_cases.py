"""Random surfaces and days in the life of a fleet, played by the simulator and by the reference engine."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
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
    "swapped_tokens": "swapped",
    "reused_tokens": "reused",
    "evicted_tokens": "evicted",
}
SECONDS = {"busy_seconds": "busy", "batch_seconds": "batch_seconds", "swap_seconds": "swap_seconds"}


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
        joint_knots=np.array([0.0, 32.0, 4096.0]),
        joint_seconds=np.array([0.0, 0.002, 0.3]) * (ranks > 1),
    )


@dataclass(frozen=True)
class Case:
    """Fleet, samples (group, prompt, response) and what happens when.

    actions    (seconds since the one before, what, argument): submit n, pause, resume, forget (weight update without
               KV), keep (one with KV), abort every (n+1)-th sample, flush the prefix caches, return: samples that are
               done come back with n more prompt tokens and as many to generate
    refill     samples that are handed out one per completion instead
    chunked    chunked prefill
    host       KV blocks that a rank can have at the host
    keep       contexts stay in the prefix caches
    ready      every so many-th sample comes with its KV and its first token (0: none)
    again      at last all samples come back once more for each of these, with so many tokens
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
    chunked: bool = True
    host: int = 0
    keep: bool = False
    ready: int = 0
    again: tuple[int, ...] = ()

    def comes_with_kv(self, number: int) -> bool:
        return self.ready > 0 and number % self.ready == 0 and self.samples[number][2] > 1

    def kinds(self) -> list[tuple[Surface, int]]:
        """Engines of different speed, so that no two are ever in step."""
        rng = np.random.default_rng(self.seed)
        longest = max(prompt + response for _, prompt, response in self.samples)
        longest += sum(2 * n + 2 for _, what, n in self.actions if what == "return") + sum(
            2 * n + 2 for n in self.again
        )
        capacity = (-(-longest // self.block) + self.spare) * self.block
        size = (self.ranks, self.slots, capacity, self.budget, self.block)
        more = {
            "chunked_prefill": self.chunked,
            "swap_capacity_tokens": self.host * self.block,
            "swap_block_seconds": 1e-3,
        }
        return [
            (replace(random_surface(rng, *size), **more).scaled(rng.uniform(0.5, 2.0)), 1) for _ in range(self.engines)
        ]


@dataclass
class Day:
    """What came of it; a sample and its prompt tokens are one turn."""

    finish: dict[tuple[int, int], float]
    start: dict[tuple[int, int], float]
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
def cases(
    draw: st.DrawFn, eventful: bool = True, refill: bool = False, wide: bool = False, pressed: bool = False
) -> Case:
    """`pressed`: contexts that are kept, swaps, KV that comes from elsewhere, prefill without chunks; little room."""
    samples = draw(sample_lists(st.integers(1, 120), st.integers(1, 150), 5))
    kinds = ["submit", "pause", "resume", "forget", "keep", "abort"]
    if pressed:
        kinds += ["return"] * 4 + ["flush", "submit"]
    gaps = st.one_of(st.just(0.0), st.floats(0.001, 1.5))
    action = st.tuples(gaps, st.sampled_from(kinds), st.integers(0, 8))
    return Case(
        seed=draw(st.integers(0, 2**32)),
        ranks=draw(st.integers(2, 5) if wide else st.sampled_from([1, 1, 2, 3])),
        engines=draw(st.integers(1, 3)),
        slots=draw(st.integers(1, 12)),
        spare=draw(st.integers(0, 20) if pressed else st.one_of(st.integers(0, 10), st.just(500))),
        budget=draw(st.sampled_from([16, 40, 100, 4096])),
        block=draw(st.sampled_from([1, 4, 16])),
        share=draw(st.booleans()),
        sticky=draw(st.booleans()),
        samples=samples,
        actions=draw(st.lists(action, max_size=12)) if eventful else [],
        refill=draw(st.integers(1, len(samples))) if refill else 0,
        chunked=not pressed or draw(st.booleans()),
        host=draw(st.integers(0, 40)) if pressed else 0,
        keep=pressed,
        ready=draw(st.integers(0, 4)) if pressed else 0,
        again=tuple(draw(st.lists(st.integers(0, 40), max_size=2))) if pressed else (),
    )


def play_fleet(case: Case) -> Day:
    """The case on the simulator."""
    router = "group-sticky" if case.sticky else "least-loaded"
    fleet = Fleet(case.kinds(), router, share_prompts=case.share)
    requests = []
    for i, (group, prompt, response) in enumerate(case.samples):
        ready = case.comes_with_kv(i)
        requests.append(Request(i, group, prompt, response, int(ready), keep=case.keep, kv_ready=ready))
    later = requests[len(requests) - case.refill :] if case.refill else []
    waiting = requests[: len(requests) - case.refill] if case.refill else requests[:]
    done: list[tuple[float, Request]] = []
    aborted: dict[int, int] = {}
    now, paused, returned = 0.0, False, 0
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
        elif what == "flush":
            fleet.flush_cache(now)
        elif what == "return":
            back = sorted((r for _, r in done[returned:]), key=lambda r: r.id)
            returned = len(done)
            fleet.submit([later_turn(r, n) for r in back], now)
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
    for n in case.again:
        back = sorted((r for _, r in done[returned:]), key=lambda r: r.id)
        returned = len(done)
        fleet.submit([later_turn(r, n) for r in back], fleet.now)
        done += fleet.drain(fleet.now)
    stats = fleet.stats
    return Day(
        finish={(r.id, r.prompt): t for t, r in done},
        start={(r.id, r.prompt): r.start for _, r in done},
        counts={name: getattr(stats, name) for name in (*COUNTS, *SECONDS)},
        aborted=aborted,
    )


def later_turn(r: Request, n: int) -> Request:
    """The sample comes back with n more prompt tokens."""
    whole = r.prompt + r.response
    return Request(r.id, r.group, whole + n, n + 1, cached=whole, common=r.common, keep=True)


def later_samples(fleet: ReferenceFleet, first: int, n: int) -> list[Sample]:
    """The same on the reference, for all that are done since."""
    back = sorted((s for _, s in fleet.done[first:]), key=lambda s: s.id)
    whole = [s.prompt + s.response for s in back]
    return [
        Sample(s.id, s.group, tokens + n, n + 1, cached=tokens, common=s.common, keep=True)
        for s, tokens in zip(back, whole, strict=True)
    ]


def play_reference(case: Case) -> Day:
    """The case on the reference."""
    fleet = ReferenceFleet(case.kinds(), share=case.share)
    samples = []
    for i, (group, prompt, response) in enumerate(case.samples):
        ready = case.comes_with_kv(i)
        samples.append(Sample(i, group, prompt, response, int(ready), common=prompt, keep=case.keep, there=ready))
    later = samples[len(samples) - case.refill :] if case.refill else []
    waiting = samples[: len(samples) - case.refill] if case.refill else samples[:]
    aborted: dict[int, int] = {}
    now, paused, returned = 0.0, False, 0
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
        elif what == "flush":
            fleet.flush()
        elif what == "return":
            fleet.submit(later_samples(fleet, returned, n), case.sticky)
            returned = len(fleet.done)
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
    for n in case.again:
        fleet.submit(later_samples(fleet, returned, n), case.sticky)
        returned = len(fleet.done)
        fleet.play(inf)
    return Day(
        finish={(s.id, s.prompt): t for t, s in fleet.done},
        start={(s.id, s.prompt): s.start if s.start is not None else -1.0 for _, s in fleet.done},
        counts={name: fleet.counts(theirs) for name, theirs in (COUNTS | SECONDS).items()},
        aborted=aborted,
    )
