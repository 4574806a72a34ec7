"""Rollout engines stepped one iteration at a time: slow, plain, and independent of `rlsim.sim.engine`.

It shares only the Surface's functions of time with the simulator. Nothing is kept incrementally: at every boundary
between two iterations the KV blocks, contexts and batches are counted afresh from the sequences. The rules:

- A boundary at T counts as before T (relative tolerance 1e-12). What happens at T (submit, pause, ...) comes after
  the boundary's finishes and before the next iteration begins.
- At the start of an iteration each rank first preempts its youngest sequences until the new blocks of its decodes
  fit; a preempted one loses its KV and goes to the front of the queue. If it preempted none, it admits in order while
  there are slots, KV blocks for the whole sequence beside the decodes' new blocks, and prompt tokens in the budget.
- Prompt tokens go in the order of admission within max_num_batched_tokens less the rank's decodes.
- Samples of a group share the full blocks of their prompt while one of them holds a slot on that rank; a later one
  computes only the rest, at least its last block.
- The last prompt token gives the first response token.
- Standing still throws away the iteration under way.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from math import ceil, inf

from rlsim.sim.surface import Surface

TOLERANCE = 1e-12


def not_after(time: float, moment: float) -> bool:
    return time <= moment + TOLERANCE * abs(moment)


@dataclass
class Sample:
    """A sequence; `kv` tokens of it are in the cache, of `goal` that its prefill must reach."""

    id: int
    group: int
    prompt: int
    response: int
    done: int = 0
    kv: int = 0
    goal: int = 0
    decoding: bool = False
    seen: bool = False  # prefilled before
    start: float | None = None


@dataclass
class Counts:
    iterations: int = 0
    generated: int = 0
    prefilled: int = 0
    reprefilled: int = 0
    preemptions: int = 0
    busy: float = 0.0
    batch_seconds: float = 0.0


@dataclass
class ReferenceRank:
    surface: Surface
    share: bool
    queue: list[Sample] = field(default_factory=list)
    running: list[Sample] = field(default_factory=list)

    def decodes(self) -> list[Sample]:
        return [s for s in self.running if s.decoding]

    def blocks(self, tokens: int) -> int:
        return ceil(tokens / self.surface.block_size)

    def common(self, s: Sample) -> int:
        """Blocks of a sample that its group shares."""
        return s.prompt // self.surface.block_size if self.share else 0

    def free(self) -> int:
        """Blocks that nobody holds."""
        used = 0
        groups = set()
        for s in self.running:
            used += self.blocks(s.kv if s.decoding else s.goal) - self.common(s)
            if s.group not in groups:
                groups.add(s.group)
                used += self.common(s)
        return self.surface.kv_capacity_tokens // self.surface.block_size - used

    def growth(self) -> int:
        """Blocks that this iteration's decodes take."""
        return sum(self.blocks(s.kv + 1) - self.blocks(s.kv) for s in self.decodes())

    def drop(self, s: Sample) -> None:
        """A sample loses its slot and KV."""
        self.running.remove(s)
        s.kv, s.decoding = 0, False

    def begin(self, now: float) -> int:
        """Preempt or admit; returns the preemptions."""
        preempted = 0
        while self.growth() > self.free():
            youngest = self.running[-1]
            self.drop(youngest)
            self.queue.insert(0, youngest)
            preempted += 1
        while self.queue and not preempted and len(self.running) < self.surface.max_num_seqs:
            budget = self.surface.max_num_batched_tokens - len(self.decodes())
            budget -= sum(s.goal - s.kv for s in self.running if not s.decoding)
            s = self.queue[0]
            tokens = s.prompt + s.done
            cached = self.common(s) if any(other.group == s.group for other in self.running) else 0
            if budget <= 0 or self.blocks(tokens) - cached > self.free() - self.growth():
                break
            self.queue.pop(0)
            s.goal, s.kv, s.decoding = tokens, 0, False
            size = self.surface.block_size
            while s.kv < cached * size and s.kv + size < tokens:
                s.kv += size
            if s.start is None:
                s.start = now
            self.running.append(s)
        return preempted

    def chunks(self) -> list[tuple[Sample, int]]:
        """Prompt tokens of this iteration."""
        budget = self.surface.max_num_batched_tokens - len(self.decodes())
        found = []
        for s in self.running:
            if not s.decoding and budget > 0:
                n = min(budget, s.goal - s.kv)
                found.append((s, n))
                budget -= n
        return found

    def seconds(self) -> float:
        """This rank's part of the iteration."""
        decodes, chunks = self.decodes(), self.chunks()
        b = len(decodes)
        c = sum(s.kv + 1 for s in decodes) / b if b else 0.0
        pairs = sum(s.kv + i + 1 for s, n in chunks for i in range(n))
        return self.surface.mixed(b, c, sum(n for _, n in chunks), pairs)


class ReferenceEngine:
    """One engine; `t` is the last boundary, `end` the end of the iteration under way (inf: none)."""

    def __init__(self, surface: Surface, share: bool = True) -> None:
        self.surface = surface
        self.ranks = [ReferenceRank(surface, share) for _ in range(surface.ranks)]
        self.counts = Counts()
        self.t = 0.0
        self.end = inf

    def begin(self, now: float) -> None:
        """Start an iteration at `now` if there is work."""
        self.t = now
        self.counts.preemptions += sum(rank.begin(now) for rank in self.ranks)
        if any(rank.running for rank in self.ranks):
            slowest = max(rank.seconds() for rank in self.ranks)
            self.end = now + slowest + float(self.surface.joint[sum(len(rank.decodes()) for rank in self.ranks)])

    def finish(self) -> list[tuple[float, Sample]]:
        """End the iteration under way."""
        done = []
        decoding = sum(len(rank.decodes()) for rank in self.ranks)
        self.counts.iterations += 1
        self.counts.busy += self.end - self.t
        self.counts.batch_seconds += decoding * (self.end - self.t)
        for rank in self.ranks:
            chunks = rank.chunks()
            grown = rank.decodes()
            for s in grown:
                s.kv += 1
            for s, n in chunks:
                s.kv += n
                self.counts.prefilled += n
                self.counts.reprefilled += n * s.seen
                if s.kv == s.goal:
                    s.decoding = s.seen = True
                    grown.append(s)
            for s in grown:
                s.done += 1
                self.counts.generated += 1
                if s.done == s.response:
                    rank.drop(s)
                    done.append((self.end, s))
        self.t, self.end = self.end, inf
        return sorted(done, key=lambda item: item[1].id)


class ReferenceFleet:
    """Engines side by side, the next boundary first."""

    def __init__(self, kinds: Sequence[tuple[Surface, int]], share: bool = True) -> None:
        self.engines = [ReferenceEngine(surface, share) for surface, count in kinds for _ in range(count)]
        self.now = 0.0
        self.still = False
        self.done: list[tuple[float, Sample]] = []

    def begin(self) -> None:
        """Engines between two iterations go on."""
        for engine in self.engines:
            if engine.end == inf and not self.still:
                engine.begin(self.now)

    def play(self, until: float, react: Callable[[float, int], None] | None = None) -> None:
        """Play the boundaries up to `until`; `react(time, completions)` may submit at the time of completions."""
        while not not_after(until, self.now):  # what comes at `until` comes before the next iteration
            self.begin()
            moment = min(engine.end for engine in self.engines)
            if moment == inf or not not_after(moment, until):
                break
            self.now = moment
            before = len(self.done)
            for engine in self.engines:
                if engine.end == moment:
                    self.done += engine.finish()
            if react and len(self.done) > before:
                react(moment, len(self.done) - before)
        if until < inf:
            self.now = max(self.now, until)

    def submit(self, samples: Sequence[Sample], sticky: bool = False) -> None:
        """Each to the place with the fewest samples; of equals engines in turn, then ranks.

        Sticky: a sample goes where the one before it went, if that was of its group and came with it.
        """
        index = number = 0
        for before, s in zip([None, *samples], samples, strict=False):
            if not sticky or before is None or before.group != s.group:
                places = [
                    (len(rank.queue) + len(rank.running), index, number)
                    for number, engine in enumerate(self.engines)
                    for index, rank in enumerate(engine.ranks)
                ]
                _, index, number = min(places)
            self.engines[number].ranks[index].queue.append(s)

    def stand_still(self) -> None:
        self.still = True
        for engine in self.engines:
            engine.end = inf

    def go_on(self) -> None:
        self.still = False

    def lose_kv(self) -> None:
        """All that runs goes back to the front of its queue."""
        still = self.still
        self.stand_still()
        self.still = still
        for engine in self.engines:
            for rank in engine.ranks:
                for s in reversed(list(rank.running)):
                    rank.drop(s)
                    rank.queue.insert(0, s)

    def abort(self, ids: set[int]) -> list[Sample]:
        """Take samples out; an engine that holds one begins its iteration again."""
        gone = []
        for engine in self.engines:
            if any(s.id in ids for rank in engine.ranks for s in rank.running + rank.queue):
                engine.end = inf
            for rank in engine.ranks:
                for s in [s for s in rank.running + rank.queue if s.id in ids]:
                    if s in rank.running:
                        rank.drop(s)
                    else:
                        rank.queue.remove(s)
                    gone.append(s)
        return gone

    def counts(self, name: str) -> float:
        return sum(getattr(engine.counts, name) for engine in self.engines)
