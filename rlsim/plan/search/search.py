"""Best-first search with bounds: what cannot beat its regime's best is never simulated.

Of one regime on one number of GPUs only the step time decides, for GPUs and staleness are the same and dollars go with
the seconds; so the front over all of them is made of these winners. A candidate gets one more of its parts priced each
time it comes to the top (memory of the pair and weight sync, then its rollout), until its bound is as near as bounds
get; then it is simulated. Rounds have a fixed size, so the answer does not depend on the speed of the machine or the
number of processes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field
from functools import cached_property
from heapq import heapify, heappop, heappush
from math import inf
from typing import Any

import numpy as np

from rlsim.plan.search import worker
from rlsim.plan.search.known import Sides
from rlsim.plan.search.space import Block, Candidate
from rlsim.plan.search.worker import Outcome

ROUND = 12
"""Candidates of a group that are taken further at a time."""
LARGE = 10_000
"""Candidates from which on at least CONFIRMED are simulated, although the bounds exclude them."""
CONFIRMED = 300
PRICING, SIMULATING = "pricing layouts", "simulating what the bounds leave"
FRESH, PAIRED, ROLLED = range(3)
Item = tuple[float, int, int, int, int, int]  # order, stage, block, trainer, engine, strategy
Mapped = Callable[[Callable[[Any], Any], list[Any], int], list[Any]]
Report = Callable[[str, int, int], None]


@dataclass(frozen=True)
class Simulated:
    """A candidate, the bound on its step before it was simulated, and the simulation's summary."""

    candidate: Candidate
    bound: float
    summary: dict[str, Any]

    @property
    def seconds(self) -> float:
        """Mean step time."""
        return float(self.summary["step_time_s"]["mean"])


@dataclass
class Group:
    """The candidates of one regime on one number of GPUs."""

    gpus: int
    regime: str
    size: int = 0
    infeasible: int = 0
    heap: list[Item] = field(default_factory=list)
    pruned: list[Item] = field(default_factory=list)
    left: list[Item] = field(default_factory=list)
    simulated: list[Simulated] = field(default_factory=list)
    work: int = 0

    @property
    def best(self) -> float:
        return min((one.seconds for one in self.simulated), default=inf)


@dataclass(frozen=True)
class Limits:
    """How far a search goes.

    steps        measured steps of a simulation
    processes    worker processes; 1: none
    simulations  of one group at most; what is then left is undecided
    pairs        of one group at most whose weight sync is priced
    least        simulations in all at least, as far as there are candidates; None: as the size of the space asks
    """

    steps: int = 2
    processes: int = 2
    simulations: int = 20
    pairs: int = 300
    least: int | None = None


class Search:
    """One search; `groups` hold what it found."""

    def __init__(
        self, blocks: Sequence[Block], base: dict[str, Any], seed: int, limits: Limits, report: Report
    ) -> None:
        self.sides = [Sides(block) for block in blocks if block.size]
        self.base, self.seed, self.limits, self.report = base, seed, limits, report
        size = sum(block.size for block in blocks)
        self.least = limits.least if limits.least is not None else CONFIRMED * (size >= LARGE)
        self.groups: dict[tuple[int, str], Group] = {}
        for block in blocks:
            group = self.groups.setdefault((block.gpus, block.regime), Group(block.gpus, block.regime))
            group.size += block.size

    def run(self) -> None:
        """Price the sides, then take candidates in their order until none is left that could win."""
        most = max((sides.block.gpus for sides in self.sides), default=0)
        arguments = (self.base, max(most, self.base["cluster"]["gpus"]), self.limits.steps, self.seed)
        if self.limits.processes == 1:
            worker.begin(*arguments)
            self._search(lambda job, tasks, chunk: [job(task) for task in tasks])
            return
        with ProcessPoolExecutor(self.limits.processes, initializer=worker.begin, initargs=arguments) as pool:
            self._search(lambda job, tasks, chunk: list(pool.map(job, tasks, chunksize=chunk)))

    def _search(self, mapped: Mapped) -> None:
        self._price_sides(mapped)
        self._fill()
        while items := [item for group in self.groups.values() for item in self._next(group)]:
            self._advance(mapped, items)
            self.report(SIMULATING, self.simulated, max(self.least, self.simulated))
        self._confirm(mapped)

    # --- sides --------------------------------------------------------------------------------------------------
    def _price_sides(self, mapped: Mapped) -> None:
        """Every trainer once for all schedules, every engine once, each with some partner."""
        total = sum(len(s.block.trainers) + len(s.block.engines) for s in self.sides)
        done = 0
        splits: dict[tuple[str, int, int], list[Sides]] = {}
        for sides in self.sides:
            block = sides.block
            splits.setdefault((block.placement, block.gpus, block.trainer_gpus), []).append(sides)
        for alike in splits.values():
            count = len(alike[0].block.trainers)
            tasks = [tuple(Candidate(s.block, i, 0, s.block.strategies[0]) for s in alike) for i in range(count)]
            for i, found in enumerate(mapped(worker.trainer, tasks, 8)):
                for sides, side in zip(alike, found, strict=True):
                    if side.fits:
                        sides.train[i], sides.guess_train[i] = side.floor, side.estimate
            for sides in alike:
                self._price_engines(mapped, sides)
                done += len(sides.block.trainers) + len(sides.block.engines)
                self.report(PRICING, done, total)

    def _price_engines(self, mapped: Mapped, sides: Sides) -> None:
        block, partner = sides.block, next(iter(sides.train), 0)
        engines = [Candidate(block, partner, j, block.strategies[0]) for j in range(len(block.engines))]
        for j, side in enumerate(mapped(worker.engine, engines, 8)):
            if side.fits:
                sides.rollout[j], sides.guess_rollout[j] = side.floor, side.estimate

    def _fill(self) -> None:
        """All pairs whose sides fit."""
        steps = self.limits.steps
        for number, sides in enumerate(self.sides):
            block = sides.block
            group = self.groups[block.gpus, block.regime]
            group.infeasible += sides.infeasible
            for i in sides.train:
                for j in sides.rollout:
                    order = sides.order(Candidate(block, i, j, block.strategies[0]), steps)
                    group.heap += [(order, FRESH, number, i, j, k) for k in range(len(block.strategies))]
        for group in self.groups.values():
            heapify(group.heap)

    # --- candidates ---------------------------------------------------------------------------------------------
    def candidate(self, item: Item) -> Candidate:
        block = self.sides[item[2]].block
        return Candidate(block, item[3], item[4], block.strategies[item[5]])

    def bound(self, item: Item) -> float:
        """Bound on a candidate's step, from all that is known by now."""
        return self.sides[item[2]].bound(self.candidate(item), self.limits.steps)

    def _next(self, group: Group) -> Iterator[Item]:
        """The next round of a group, its order brought up to what is known; what cannot win is set aside.

        Only the first of a round is simulated: those behind it may be excluded by it.
        """
        best, left = group.best, self.limits.simulations - len(group.simulated)
        found: list[Item] = []
        parts: set[Any] = set()
        while group.heap and len(parts) < ROUND and len(found) < 16 * ROUND and left > 0:
            item = heappop(group.heap)
            if self.bound(item) >= best:
                group.pruned.append(item)
                continue
            if item[1] == FRESH and group.work >= self.limits.pairs and group.simulated:
                group.left.append(item)
                continue
            now = self._known(item)
            if now > item:
                heappush(group.heap, now)
                continue
            plays = item[1] == ROLLED
            if plays and found and self.sides[item[2]].block.schedule != "async":
                heappush(group.heap, item)
                break
            left -= plays
            group.work += item[1] == FRESH and self._part(item) not in parts
            parts.add(self._part(item))
            found.append(item)
        yield from found

    def _known(self, item: Item) -> Item:
        """An item with the order, and the stage, that follow from all that is known by now."""
        sides, candidate, stage = self.sides[item[2]], self.candidate(item), item[1]
        if stage == FRESH and sides.key(candidate) in sides.once:
            stage = PAIRED
        if stage == PAIRED and (sides.block.schedule == "async" or sides.played(candidate)):
            stage = ROLLED
        return (max(item[0], sides.order(candidate, self.limits.steps)), stage, *item[2:])

    def _advance(self, mapped: Mapped, items: list[Item]) -> None:
        """One more part of each; a part that several share is priced once."""
        jobs = {FRESH: worker.paired, PAIRED: worker.rolled, ROLLED: worker.played}
        for stage, job in jobs.items():
            first: dict[Any, Item] = {}
            for item in (item for item in items if item[1] == stage):
                if first.setdefault(self._part(item), item) is not item:
                    self._back(item)  # until the part that it shares is known
            mine = list(first.values())
            bounds = [self.bound(item) for item in mine]
            tasks = [self.candidate(item) for item in mine]
            for item, bound, found in zip(mine, bounds, mapped(job, tasks, 1), strict=True):
                self._take(item, bound, found)

    def _part(self, item: Item) -> Any:
        """The part that a candidate needs next: those with the same one wait for the first of them."""
        sides, candidate = self.sides[item[2]], self.candidate(item)
        if item[1] == FRESH:
            return item[2], sides.key(candidate)
        if item[1] == PAIRED and sides.block.placement != "colocated":
            return item[2], candidate.engine
        return item

    def _take(self, item: Item, bound: float, found: Outcome) -> None:
        group = self._group(item)
        if not found.fits:
            group.infeasible += 1
        elif found.summary is not None:
            group.simulated.append(Simulated(found.candidate, bound, found.summary))
        else:
            self.sides[item[2]].learn(found)
            self._back((item[0], item[1] + 1, *item[2:]))

    def _back(self, item: Item) -> None:
        heappush(self._group(item).heap, self._known(item))

    def _group(self, item: Item) -> Group:
        block = self.sides[item[2]].block
        return self.groups[block.gpus, block.regime]

    def _confirm(self, mapped: Mapped) -> None:
        """Simulate on until there are `least`, those first that came nearest to their best: it confirms the bounds."""
        near = []
        for group in self.groups.values():
            if group.regime == "async" or self.simulated >= self.least:
                continue
            group.pruned += [*group.heap, *group.left]
            group.heap, group.left = [], []
            near += [(self.bound(item) / group.best, item) for item in group.pruned]
        near.sort()
        while near and self.simulated < self.least:
            count = min(4 * ROUND, self.least - self.simulated)
            items, near = [item for _, item in near[:count]], near[count:]
            for item in items:
                self._group(item).pruned.remove(item)
            bounds = [self.bound(item) for item in items]
            done = mapped(worker.played, [self.candidate(item) for item in items], 1)
            for item, bound, found in zip(items, bounds, done, strict=True):
                self._take(item, bound, found)
            self.report(SIMULATING, self.simulated, self.least)

    # --- figures ------------------------------------------------------------------------------------------------
    @property
    def simulated(self) -> int:
        return sum(len(group.simulated) for group in self.groups.values())

    @property
    def candidates(self) -> int:
        """Counted after divisibility."""
        return sum(group.size for group in self.groups.values())

    @property
    def infeasible(self) -> int:
        return sum(group.infeasible for group in self.groups.values())

    @cached_property
    def undecided(self) -> int:
        """Candidates that their bound does not exclude, but which the limit left out (once the search is over)."""
        return sum(self.undecided_of(group) for group in self.groups.values())

    def undecided_of(self, group: Group) -> int:
        """Those of one group."""
        return sum(self.bound(item) < group.best for item in (*group.pruned, *group.heap, *group.left))

    @property
    def pruned(self) -> int:
        return self.candidates - self.infeasible - self.simulated - self.undecided

    def some_pruned(self, share: float, seed: int = 0) -> list[tuple[Candidate, float]]:
        """A random share of what was pruned, each with the best of its group: to be simulated all the same."""
        found = []
        for group in self.groups.values():
            left = [item for item in (*group.pruned, *group.heap, *group.left) if self.bound(item) >= group.best]
            found += [(self.candidate(item), group.best) for item in left]
        count = min(len(found), max(1, round(share * len(found))))
        if not found:
            return []
        chosen: list[int] = np.random.default_rng(seed).choice(len(found), count, replace=False).tolist()
        return [found[n] for n in sorted(chosen)]
