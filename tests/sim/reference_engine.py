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
- A sample that is to keep its context leaves the full blocks of it in its rank's prefix cache. They hold what nobody
  else needs: when an iteration ends, when a sample is admitted and when contexts are left, those left longest ago are
  cut from their ends until the rest fits; a preemption clears all. A sample that comes back computes only what is
  beyond, at least its last block.
- A preempted sample that decoded goes to the host with all its blocks if there is room, and comes back with those that
  its group does not hold there. A sample that comes back from the host, or whose KV came with it, decodes at once.
  Swaps lengthen their rank's next iteration that is finished.
- Without chunked prefill decodes wait while any rank of the engine has prompts, and a prompt that exceeds what is left
  of the token budget waits unless it is the first of its iteration on its rank.
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
    cached: int = 0
    common: int = 0
    keep: bool = False
    there: bool = False  # its KV comes with it
    host: int = 0  # blocks at the host


@dataclass
class Counts:
    iterations: int = 0
    generated: int = 0
    prefilled: int = 0
    reprefilled: int = 0
    preemptions: int = 0
    busy: float = 0.0
    batch_seconds: float = 0.0
    swapped: int = 0
    swap_seconds: float = 0.0
    reused: int = 0
    evicted: int = 0


@dataclass
class ReferenceRank:
    surface: Surface
    share: bool
    counts: Counts
    queue: list[Sample] = field(default_factory=list)
    running: list[Sample] = field(default_factory=list)
    kept: list[tuple[int, int]] = field(default_factory=list)  # (sample, blocks), the one left longest ago first
    moved: int = 0

    def decodes(self) -> list[Sample]:
        return [s for s in self.running if s.decoding]

    def prefills(self) -> list[Sample]:
        return [s for s in self.running if not s.decoding]

    def blocks(self, tokens: int) -> int:
        return ceil(tokens / self.surface.block_size)

    def common(self, s: Sample) -> int:
        """Blocks of a sample that its group shares."""
        return s.common // self.surface.block_size if self.share else 0

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

    def host_blocks(self) -> int:
        return sum(s.host for s in self.queue)

    def drop(self, s: Sample) -> None:
        """A sample loses its slot and KV."""
        self.running.remove(s)
        s.kv, s.decoding = 0, False

    def evict(self, room: int) -> None:
        """Cut kept contexts, a block at a time, to what there is room for."""
        while self.kept and sum(n for _, n in self.kept) > room:
            id, n = self.kept[0]
            self.kept[:1] = [(id, n - 1)] if n > 1 else []

    def preempt(self, s: Sample) -> None:
        """Off to the front of the queue; to the host if there is room."""
        blocks, tokens = self.blocks(s.kv), s.kv
        if s.decoding and self.host_blocks() + blocks <= self.surface.swap_capacity_tokens // self.surface.block_size:
            s.host = blocks
            self.moved += blocks
            self.counts.swapped += tokens
        self.drop(s)
        self.kept = []
        self.queue.insert(0, s)
        self.counts.preemptions += 1

    def begin(self, now: float) -> None:
        """Preempt or admit."""
        before = self.counts.preemptions
        while self.growth() > self.free():
            self.preempt(self.running[-1])
        if self.counts.preemptions == before:
            while self.queue and len(self.running) < self.surface.max_num_seqs and self.admit(self.queue[0], now):
                pass

    def admit(self, s: Sample, now: float) -> bool:
        """Let the first of the queue in if there is room for it."""
        budget = self.surface.max_num_batched_tokens - sum(s.goal - s.kv for s in self.prefills())
        if self.surface.chunked_prefill:
            budget -= len(self.decodes())
        tokens, size = s.prompt + s.done, self.surface.block_size
        shared = self.common(s) if any(other.group == s.group for other in self.running) else 0
        if budget <= 0 or self.blocks(tokens) - shared > self.free() - self.growth():
            return False
        there = s.there or s.host > 0
        left = dict(self.kept).get(s.id, 0)
        found = min(left, s.cached // size) if self.share and not there else 0
        start = self.whole_blocks(shared, tokens)
        spared = self.whole_blocks(max(found, shared), tokens) - start
        first = not self.prefills()
        if not self.surface.chunked_prefill and not there and not first and tokens - start - spared > budget:
            return False
        if self.share and not there and s.cached:
            self.counts.reused += spared
            if not s.seen:
                self.counts.evicted += (s.cached // size - found) * size
        self.queue.pop(0)
        self.kept = [(id, n) for id, n in self.kept if id != s.id]
        s.goal, s.kv, s.decoding = tokens, start + spared, False
        if there:
            self.moved += max(0, s.host - shared)
            s.kv, s.decoding, s.seen, s.there, s.host = tokens - 1, True, True, False, 0
        if s.start is None:
            s.start = now
        self.running.append(s)
        self.evict(self.free() - self.growth())
        return True

    def whole_blocks(self, n: int, tokens: int) -> int:
        """Tokens in the first n blocks of so many, never the last block."""
        found = 0
        while found < n * self.surface.block_size and found + self.surface.block_size < tokens:
            found += self.surface.block_size
        return found

    def chunks(self) -> list[tuple[Sample, int]]:
        """Prompt tokens of this iteration."""
        if not self.surface.chunked_prefill:
            return [(s, s.goal - s.kv) for s in self.prefills()]
        budget = self.surface.max_num_batched_tokens - len(self.decodes())
        found = []
        for s in self.prefills():
            if budget > 0:
                n = min(budget, s.goal - s.kv)
                found.append((s, n))
                budget -= n
        return found

    def seconds(self, decodes: list[Sample]) -> float:
        """This rank's part of the iteration, without swaps."""
        chunks, b = self.chunks(), len(decodes)
        c = sum(s.kv + 1 for s in decodes) / b if b else 0.0
        pairs = sum(s.kv + i + 1 for s, n in chunks for i in range(n))
        return self.surface.mixed(b, c, sum(n for _, n in chunks), pairs)

    def finish(self, decodes: list[Sample]) -> list[Sample]:
        """The tokens of the iteration; returns the samples that are done."""
        chunks = self.chunks()
        grown = decodes[:]
        for s in grown:
            s.kv += 1
        for s, n in chunks:
            s.kv += n
            self.counts.prefilled += n
            self.counts.reprefilled += n * s.seen
            if s.kv == s.goal:
                s.decoding = s.seen = True
                grown.append(s)
        self.evict(self.free())
        for s in grown:
            s.done += 1
            self.counts.generated += 1
        done = sorted((s for s in grown if s.done == s.response), key=lambda s: s.id)
        left = [(s.id, s.kv // self.surface.block_size) for s in done if s.keep and self.share]
        for s in done:
            self.drop(s)
        for id, n in left:
            self.kept = [entry for entry in self.kept if entry[0] != id] + ([(id, n)] if n else [])
        self.evict(self.free())
        self.moved = 0
        return done


class ReferenceEngine:
    """One engine; `t` is the last boundary, `end` the end of the iteration under way (inf: none)."""

    def __init__(self, surface: Surface, share: bool = True) -> None:
        self.surface = surface
        self.counts = Counts()
        share = share and surface.prefix_caching
        self.ranks = [ReferenceRank(surface, share, self.counts) for _ in range(surface.ranks)]
        self.t = 0.0
        self.end = inf
        self.swap = 0.0

    def decodes(self, rank: ReferenceRank) -> list[Sample]:
        """Sequences of a rank that decode in this iteration."""
        waits = not self.surface.chunked_prefill and any(rank.prefills() for rank in self.ranks)
        return [] if waits else rank.decodes()

    def begin(self, now: float) -> None:
        """Start an iteration at `now` if there is work."""
        self.t = now
        for rank in self.ranks:
            rank.begin(now)
        if any(rank.running for rank in self.ranks):
            seconds = [rank.seconds(self.decodes(rank)) for rank in self.ranks]
            swaps = [rank.moved * self.surface.swap_block_seconds for rank in self.ranks]
            longest = max(map(sum, zip(seconds, swaps, strict=True)))
            self.swap = longest - max(seconds)
            batch = sum(len(self.decodes(rank)) for rank in self.ranks)
            tokens = sum(n for rank in self.ranks for _, n in rank.chunks())
            self.end = now + longest + float(self.surface.joint[batch]) + self.surface.joint_prefill(tokens, batch)

    def finish(self) -> list[tuple[float, Sample]]:
        """End the iteration under way."""
        decodes = [self.decodes(rank) for rank in self.ranks]
        self.counts.iterations += 1
        self.counts.busy += self.end - self.t
        self.counts.swap_seconds += self.swap
        self.counts.batch_seconds += sum(map(len, decodes)) * (self.end - self.t)
        done = [(self.end, s) for rank, own in zip(self.ranks, decodes, strict=True) for s in rank.finish(own)]
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
                rank.kept, rank.moved = [], 0
                for s in rank.queue:
                    s.host = 0
                for s in reversed(list(rank.running)):
                    rank.drop(s)
                    rank.queue.insert(0, s)

    def flush(self) -> None:
        """Empty the prefix caches."""
        for engine in self.engines:
            for rank in engine.ranks:
                rank.kept = []

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
                        s.host = 0
                    gone.append(s)
        return gone

    def counts(self, name: str) -> float:
        return sum(getattr(engine.counts, name) for engine in self.engines)
