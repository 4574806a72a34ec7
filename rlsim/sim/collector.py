"""A rollout that somebody watches: played from completion to completion until the step has its groups.

A group is done when its last sample is scored. Done groups count, unless dynamic sampling rejects them (all samples
have the same reward); rejected ones are replaced by the refill rule. Once enough groups count, over-sampling (and
refill `fetch`) stops everything else at once; otherwise what runs is drained and the surplus is cut.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from heapq import heappop, heappush
from math import inf

import numpy as np

from rlsim.errors import UserError
from rlsim.sim.batches import Collected
from rlsim.sim.consolidation import Consolidation
from rlsim.sim.ledger import ABORTED, SURPLUS, ZERO_VARIANCE, Ints
from rlsim.sim.loop import Loop
from rlsim.sim.remedies import BATCH, DOUBLE, FETCH, KEEP, REPLACE, TAIL_BATCH, Remedies
from rlsim.sim.request import Completion, Request
from rlsim.sim.supply import Carried, Supply
from rlsim.sim.tail import tail_seconds


class WatchedBatches:
    """Rollout after rollout under remedies, with what one leaves to the next."""

    _rollout: Rollout

    def __init__(self, loop: Loop) -> None:
        self.loop = loop
        self.supply = Supply(loop.work)
        self._begun = 0

    def begin(self) -> None:
        self._rollout = Rollout(self.loop, self.supply, self._begun)
        self._begun += 1

    def catch_up(self) -> None:
        self._rollout.play(self.loop.clock.now)

    def take(self) -> Collected:
        return self._rollout.finish()


class Rollout:
    """One rollout, of step number `step`.

    left     groups under way: how many of their samples have not finished
    kept     groups that count, in the order in which they were done
    long     whether it runs only groups that earlier rollouts gave up
    stops    whether it ends as soon as enough groups count
    """

    def __init__(self, loop: Loop, supply: Supply, step: int) -> None:
        self.loop = loop
        self.supply = supply
        self.step = step
        self.rules = loop.settings.remedies
        self.needed = loop.settings.prompts
        self.left: dict[int, int] = {}
        self.kept: list[int] = []
        self.collected: Collected | None = None
        self.long = len(supply.collected) >= self.needed
        self.stops = self.rules.refill == FETCH or (self.rules.ratio > 1 and not self.long)
        self._scored: list[tuple[float, int]] = []  # heap of groups without unfinished samples by their last score
        self._finished: list[int] = []
        self._started = 0
        self._together = Consolidation(loop, self.rules.consolidate or 0.0, loop.clock.now)
        loop.pool.note(loop.pool.advance())
        self.begun = loop.clock.now
        self._start(self.needed if self.long else self.rules.started(self.needed))

    def play(self, until: float) -> None:
        """Play to `until`, or to the end of the rollout."""
        engines = self.loop.pool.engines
        while self.collected is None:
            moment = self._scored[0][0] if self._scored else inf
            if moment <= engines.now:
                self._accept(engines.now)
            elif engines.now >= until:
                return
            else:
                before = engines.now
                done = engines.play(min(until, moment), True)
                if not done and engines.now == before:
                    raise RuntimeError("the step waits for groups, but none are in flight")
                self._digest(done)

    def finish(self) -> Collected:
        """Play to the end."""
        self.play(inf)
        if self.collected is None:
            raise RuntimeError("the rollout has no end")
        return self.collected

    # --- groups come and go -----------------------------------------------------------------------

    def _start(self, groups: int) -> None:
        """Hand so many groups to the engines: unfinished ones of earlier rollouts before fresh prompts."""
        if not groups:
            return
        self._started += groups
        if self._started > self.rules.max_batches * self.rules.started(self.needed):
            raise self._too_many()
        pool, size = self.loop.pool, self.loop.settings.group_size
        now, version = max(self.begun, pool.engines.now), self.loop.versions.current
        carried = self.supply.carry_on(groups)
        again = self.supply.begin_again(groups) if self.long else []
        fresh = self.supply.fresh(groups - len(carried) - len(again), self.step)
        for one in carried:
            self.left[one.group] = len(one.requests)
            if not one.requests:  # it had ended, only not in time
                heappush(self._scored, (float(self.loop.ledger["scored"][self._samples([one.group])].max()), one.group))
        whole = [*again, *fresh]
        self._together.started(sum(len(one.requests) for one in carried) + size * len(whole))
        self.left.update(dict.fromkeys(whole, size))
        pool.resubmit([request for one in carried for request in one.requests], now)
        pool.submit(self._samples(whole).ravel().tolist(), version, now)

    def _digest(self, done: Sequence[Completion]) -> None:
        """Enter finished samples; groups without unfinished ones wait for their last score."""
        if not done:
            return
        over = []
        for _, request in done:
            self._finished.append(request.id)
            self.left[request.group] -= 1
            if not self.left[request.group]:
                over.append(request.group)
        self.loop.pool.note(list(done))
        if over:
            self.loop.pool.flush()
            for moment in zip(self.loop.pool.scored(self._samples(over)).tolist(), over, strict=True):
                heappush(self._scored, moment)
        self._together.watch(self._finished)

    def _accept(self, now: float) -> None:
        """Take the groups that are done: they count or are rejected; refill, or end the rollout."""
        rejected: list[int] = []
        while self._scored and self._scored[0][0] <= now and not (self.stops and len(self.kept) == self.needed):
            group = heappop(self._scored)[1]
            del self.left[group]
            informative = self.loop.ledger["informative"][group * self.loop.settings.group_size]
            (self.kept if informative or self.rules.refill is None else rejected).append(group)
        self._drop(rejected, ZERO_VARIANCE)
        if len(self.kept) < self.needed:
            self._start(refill(self.rules, len(rejected), len(self.left), len(self.kept), self.needed))
        elif self.stops or not self.left:
            self._end(now)

    # --- the end ----------------------------------------------------------------------------------

    def _end(self, now: float) -> None:
        """Enough groups count at `now`: settle what becomes of all others."""
        pool, ledger = self.loop.pool, self.loop.ledger
        stopped = pool.abort(now) if pool.engines.in_flight else []
        pool.flush()
        if self.rules.refill == BATCH:
            self.kept.sort()  # a generated batch is cut in the order of its prompts
        self._drop(self.kept[self.needed :], SURPLUS)
        ids = self._samples(sorted(self.kept[: self.needed]))
        early = self._together.early_logprob(ids, now) if self.rules.early_logprob else 0.0
        self._together.over()
        last = ledger["end"][ids if self.stops else self._finished].max()
        tail = self._tail(stopped, now)
        self._settle(stopped)
        self.collected = Collected(ids, min(max(float(last), self.begun), now), now, now, tail, early)

    def _settle(self, stopped: list[Request]) -> None:
        """Groups that are not done are given up, or wait for a later rollout."""
        if len(stopped) != sum(self.left.values()):
            raise RuntimeError("a stopped rollout has samples that are nowhere")
        requests: dict[int, list[Request]] = {group: [] for group in sorted(self.left)}
        for request in stopped:
            requests[request.group].append(request)
        if self.rules.unfinished == KEEP:
            self.supply.carried += [Carried(group, tuple(rest)) for group, rest in requests.items()]
            self.supply.carried.sort(key=lambda one: one.group)
            return
        ledger, step = self.loop.ledger, self.loop.recorder.step
        groups = list(requests)
        rows = self._samples(groups).ravel()
        complete = rows[~np.isnan(ledger["end"][rows])]
        step.wasted += sum(request.generated for request in stopped)
        step.aborted += sum(1 for request in stopped if request.generated)
        if self.rules.unfinished == TAIL_BATCH:
            step.wasted += int(ledger["generated"][complete].sum())
            step.aborted += len(complete)
            for column in ("start", "end", "scored"):
                ledger[column][complete] = np.nan
            self.supply.collected += groups
        else:
            self._drop(groups, ABORTED, int(ledger["generated"][complete].sum()))

    def _drop(self, groups: list[int], fate: int, tokens: int | None = None) -> None:
        """Groups are trained on by nobody; `tokens` were generated for them, all of theirs if None."""
        if groups:
            self.loop.drop(self._samples(groups), fate, tokens)

    # --- inside -----------------------------------------------------------------------------------

    def _tail(self, stopped: Iterable[Request], now: float) -> float:
        """Tail of this rollout over all that ran in it, what was stopped included."""
        ledger = self.loop.ledger
        cut = [request.start for request in stopped if request.start == request.start]
        start = np.concatenate([ledger["start"][self._finished], cut])
        end = np.concatenate([ledger["end"][self._finished], np.full(len(cut), now)])
        return tail_seconds(np.maximum(start, self.begun), end) if len(start) else 0.0

    def _samples(self, groups: Sequence[int]) -> Ints:
        """Sample numbers int64[groups, group_size]."""
        size = self.loop.settings.group_size
        return np.array(groups, np.int64)[:, None] * size + np.arange(size)

    def _too_many(self) -> UserError:
        batches, prompts = self.rules.max_batches, self.needed
        return UserError(
            f"{batches} batches of {self.rules.started(prompts)} groups gave {len(self.kept)} of {prompts} groups with "
            "unequal rewards: too few groups are informative at this workload.pass_rate",
            key="workload.dynamic_sampling.max_batches",
            fix="a pass_rate nearer to 0.5, a larger group_size, or more max_batches",
        )


def refill(rules: Remedies, rejected: int, running: int, kept: int, needed: int) -> int:
    """Groups to start after `rejected` ones, while `running` are under way and `kept` of `needed` count.

    batch    another whole batch once nothing runs (NeMo-RL; DAPO's reference recipe)
    replace  one for one, at once (OpenRLHF)
    double   two for one, as long as no more than a batch is under way (verl)
    fetch    whole fetches until those that run and those that count are enough (slime)
    """
    batch = rules.started(needed)
    if rules.refill == BATCH:
        return 0 if running else batch
    if rules.refill == REPLACE:
        return rejected
    if rules.refill == DOUBLE:
        return min(2 * rejected, max(batch - running, 0))
    fetch = rules.fetch or needed
    return -(-max(needed - kept - running, 0) // fetch) * fetch if rules.refill == FETCH else 0
