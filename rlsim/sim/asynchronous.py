"""Asynchronous rollout with bounded staleness: engines wait for no batch, the trainer takes what is ready.

How many groups may be under way, and which ones the trainer gets, is the policy's business (`sim/policies`). A group
runs until its last sample is scored; then it is accepted, or given up and its place is free again.
"""

from __future__ import annotations

import math
from collections.abc import Generator
from heapq import heapify, heappop, heappush
from typing import Any

import numpy as np
import simpy
from simpy import Event

from rlsim.errors import UserError
from rlsim.sim.ledger import STALE, ZERO_VARIANCE, Ints
from rlsim.sim.lending import Lending
from rlsim.sim.loop import Loop
from rlsim.sim.policies import Stand, policy_of
from rlsim.sim.policies.base import Rank
from rlsim.sim.request import Completion
from rlsim.sim.trainer import Process


class Asynchronous:
    """The stream of groups from the prompts to the trainer. `stand` counts them, `policy` rules them."""

    def __init__(self, loop: Loop) -> None:
        self.loop = loop
        loop.catch_up = self.catch_up
        self.stand = Stand()
        self.policy = policy_of(loop.settings)
        lent, below = loop.costs.lent, loop.settings.elastic
        self.lending = Lending(loop, below, lent) if lent and below is not None else None
        self._most = _useful(loop)  # groups under way
        self._reacts = self.policy.reacts or self._most < math.inf or loop.settings.remedies.refill is not None
        self._open = True  # admission; closed while a sync holds the engines
        self._left: list[int] = []  # unfinished samples of each group
        self._scored: list[tuple[float, int]] = []  # heap of finished groups by the time of their last score
        self._ready: list[tuple[Rank, int]] = []  # heap of accepted groups in the trainer's order
        self._rejected = 0  # groups of equal rewards since the trainer last took some
        self._draining = False
        self._evaluation: simpy.Process | None = None  # that the trainer does not wait for
        self._news: Event = loop.clock.event()  # to the trainer: what it waits for has come
        self._watch: Event = loop.clock.event()  # to the engines' process: somebody waits

    # --- processes --------------------------------------------------

    def trainer(self, steps: int) -> Process:
        """Round after round: weight sync (after every `sync_every`), wait for groups, train; a step is its rounds."""
        loop, settings = self.loop, self.loop.settings
        self.admit()
        rounds = 0
        while loop.done < steps:
            for _ in range(settings.rounds):
                if rounds and rounds % settings.sync_every == 0:
                    yield from self.weight_sync()
                groups = yield from self.take(settings.round_prompts)
                yield from loop.trainer.train(groups)
                self.catch_up()
                rounds += 1
                if loop.trainer.lost:
                    break
            yield from loop.close_step()

    def engines(self) -> Process:
        """Play the engines from one moment that somebody reacts to, to the next; sleep while nobody does.

        Never past the next simpy event: it may change what the engines do.
        """
        clock, fleet = self.loop.clock, self.loop.pool.engines
        while True:
            if not self._watched():
                self._watch = clock.event()
                yield self._watch
            horizon = min(clock.peek(), self._scored[0][0] if self._scored else math.inf)
            self._play(horizon)
            if horizon == math.inf and not (fleet.in_flight or self._scored):
                raise RuntimeError("the trainer waits for groups, but none are in flight")
            yield clock.at(fleet.now)
            self._accept()

    def weight_sync(self) -> Process:
        """New weights into engines that have work.

        drain       admission stops, everything in flight finishes first (the trainer waits)
        abort       what runs is thrown away and starts again under the new weights
        interrupt   what runs keeps its tokens; its KV is recomputed under the new weights
        in-flight   what runs keeps its tokens and its KV

        Where caches are not flushed, an interrupted sample finds its KV, of the old weights, in the prefix cache.

        With overlap the engines generate on while the weights are on the wire and stand still for the rest.
        """
        loop, clock, pool, how = self.loop, self.loop.clock, self.loop.pool, self.loop.settings.on_sync
        yield from self._after_evaluation()
        if how == "drain":
            self._open = False
            yield from self._drain()
        start, sync = clock.now, loop.sync
        end = loop.trainer.weather.sync_end(start, sync.seconds, sync.wire_seconds)
        if loop.settings.overlap:
            yield clock.at(start + min(sync.transfer_seconds, sync.seconds) + (end - (start + sync.seconds)))
        self._open = False
        self.catch_up()
        stop = clock.now
        again = self._abort() if how == "abort" else []
        lost = loop.recorder.step.lost
        if how == "interrupt" and pool.flushes:
            lost.forgotten += pool.interrupt()
        lost.grace += sync.grace_seconds
        lost.group += sync.group_seconds
        pool.stand_still()
        if how != "in-flight":
            pool.renew()
        yield clock.at(end)
        self.catch_up()
        loop.recorder.phase("weight_sync", start, clock.now)
        loop.recorder.pool("weight_sync", stop, clock.now)
        loop.versions.publish(clock.now, loop.trainer.updates)
        self.stand.version = loop.versions.current
        self.policy.published(self.stand)
        beside = loop.settings.evaluation and loop.settings.evaluation.beside
        if beside and loop.evaluator.due(loop.done):
            self._evaluation = clock.process(self._evaluate_beside(again))
        else:
            yield from loop.evaluate()
            self._go_on(again)

    def _go_on(self, again: list[int]) -> None:
        self.loop.pool.go_on()
        self.loop.pool.submit(again, self.loop.versions.current)
        self._open = True
        self.admit()

    def _evaluate_beside(self, again: list[int]) -> Process:
        """The engines evaluate before they go on; the trainer does not wait."""
        loop, start = self.loop, self.loop.clock.now
        one = loop.evaluated()
        loop.recorder.pool("evaluation", start, start + one.seconds)
        yield loop.clock.at(start + one.seconds)
        self.catch_up()
        self._go_on(again)

    def _after_evaluation(self) -> Process:
        """New weights have to wait for an evaluation of the last ones."""
        if self._evaluation is not None and self._evaluation.is_alive:
            start = self.loop.clock.now
            yield self._evaluation
            self.loop.recorder.upkeep("evaluation", start, self.loop.clock.now, drawn=False)

    def take(self, groups: int) -> Generator[Event, Any, Ints]:
        """The first accepted groups in the policy's order that are young enough; waits until they suffice."""
        loop, stand, start = self.loop, self.stand, self.loop.clock.now
        self.catch_up()
        self._drop_stale()
        while not self.policy.enough(groups, stand):
            if self.lending and self.lending.pays(self.lending.enough(groups) - stand.ready):
                loop.recorder.phase("wait_rollout", start, loop.clock.now, None)
                yield from self._lend(self.lending, groups)
                start = loop.clock.now
            else:
                yield from self._wait_for(groups)
            self._drop_stale()
        loop.recorder.phase("wait_rollout", start, loop.clock.now, None)
        if self.lending:
            self.lending.took(stand.accepted)
        taken = [heappop(self._ready)[1] for _ in range(groups)]
        stand.ready -= groups
        self.policy.taken(taken)
        self._rejected = 0
        self.admit()
        return self._samples(taken)

    def _lend(self, lending: Lending, groups: int) -> Process:
        """The trainer's GPUs generate until enough of `groups` are ready for it to get them back."""
        yield from lending.begin()
        self.catch_up()
        start = self.loop.clock.now
        lending.serve()
        while not self.policy.enough(lending.enough(groups), self.stand):
            yield from self._wait_for(lending.enough(groups))
            self._drop_stale()
        self.catch_up()
        self.loop.recorder.phase("wait_rollout", start, self.loop.clock.now, None)
        yield from lending.end(start)
        self.catch_up()

    # --- admission --------------------------------------------------

    def admit(self) -> None:
        """Submit as many groups as the policy allows, and the engines can use."""
        stand = self.stand
        if not self._open:
            return
        room = min(self.policy.room(stand), self._most - stand.running)
        if room <= 0:
            return
        size, first = self.loop.settings.group_size, stand.submitted
        groups = range(first, first + int(room))
        stand.submitted += len(groups)
        stand.running += len(groups)
        self.policy.admitted(groups, stand)
        while self.loop.work.groups < stand.submitted:
            self.loop.work.batch()
        self._left += [size] * len(groups)
        self.loop.pool.submit(range(first * size, stand.submitted * size), stand.version)

    # --- moments --------------------------------------------------

    def catch_up(self) -> None:
        """Bring the engines and the stream up to now."""
        self._digest(self.loop.pool.advance())
        self.loop.pool.flush()
        self._accept()

    def _play(self, horizon: float) -> None:
        """Play to the horizon, or the end of a group, or (draining) of everything."""
        fleet = self.loop.pool.engines
        while True:
            done = fleet.play(horizon, True)
            if self._digest(done) or not done or fleet.now >= horizon or (self._draining and not fleet.in_flight):
                return

    def _digest(self, done: list[Completion]) -> bool:
        """Enter finished samples; true if that finished a group."""
        left, over = self._left, []
        for _, request in done:
            group = request.group
            left[group] -= 1
            if not left[group]:
                over.append(group)
        self.loop.pool.note(done)
        if not over:
            return False
        self.loop.pool.flush()
        last = self.loop.pool.scored(self._samples(over))
        for moment in zip(last.tolist(), over, strict=True):
            heappush(self._scored, moment)
        return True

    def _accept(self) -> None:
        """Accept groups whose last score is there; tell the trainer, admit more where a place became free."""
        now, before = self.loop.clock.now, len(self._scored)
        while self._scored and self._scored[0][0] <= now:
            self._judge(heappop(self._scored)[1])
        if self._reacts and len(self._scored) < before:
            self.admit()
        wanted = self.stand.wanted
        enough = wanted and self.policy.enough(wanted, self.stand)
        if (enough or (self._draining and not self.loop.pool.engines.in_flight)) and not self._news.triggered:
            self._news.succeed()

    def _judge(self, group: int) -> None:
        """A group is scored: accept it, or reject it where dynamic sampling wants none of equal rewards."""
        stand, rules = self.stand, self.loop.settings
        if rules.remedies.refill is not None and not self.loop.ledger["informative"][group * rules.group_size]:
            self.lose([group], ZERO_VARIANCE)
            self._rejected += 1
            if self._rejected > rules.remedies.max_batches * rules.prompts:
                raise self._too_many()
            return
        stand.running -= 1
        stand.accepted += 1
        stand.ready += 1
        heappush(self._ready, (self.policy.accepted(group, stand), group))

    # --- waiting --------------------------------------------------

    def _watched(self) -> bool:
        return bool(self.stand.wanted) or self._draining or self._reacts

    def _wait_for(self, groups: int) -> Process:
        self.stand.wanted = groups
        self.admit()
        yield from self._wait()
        self.stand.wanted = 0

    def _drain(self) -> Process:
        """Wait until nothing is in flight."""
        start, pool = self.loop.clock.now, self.loop.pool
        self.catch_up()
        if pool.engines.in_flight:
            busy = pool.busy()
            self._draining = True
            yield from self._wait()
            self._draining = False
            seconds, lost = self.loop.clock.now - start, self.loop.recorder.step.lost
            lost.drain += seconds
            lost.drain_idle += max(0.0, len(pool.fleet.engines) * seconds - (pool.busy() - busy))
            self.loop.recorder.phase("wait_rollout", start, self.loop.clock.now, None)

    def _wait(self) -> Process:
        self._news = self.loop.clock.event()
        if not self._watch.triggered:
            self._watch.succeed()
        yield self._news

    # --- samples that are lost --------------------------------------------------

    def lose(self, groups: list[int], fate: int, tokens: int | None = None) -> None:
        """Give up groups that run or are scored, for the reason `fate`; `tokens` generated in vain (default: all)."""
        self.loop.drop(self._samples(groups), fate, tokens)
        self.stand.running -= len(groups)
        for group in groups:
            self.policy.lost(group, False)

    def _too_many(self) -> UserError:
        return UserError(
            f"{self._rejected} groups of equal rewards were dropped for one step: too few are informative at this "
            "workload.pass_rate",
            key="workload.dynamic_sampling.max_batches",
            fix="a pass_rate nearer to 0.5, a larger group_size, or more max_batches",
        )

    def _drop_stale(self) -> None:
        """Drop accepted groups that the policy finds too old to be trained on."""
        if not self._ready or not self.policy.drops:
            return
        loop = self.loop
        self._ready.sort()
        groups = [group for _, group in self._ready]
        begun = loop.versions.at(loop.ledger["start"][self._samples(groups)].min(axis=1))
        old = self.policy.too_old(groups, begun, loop.versions.current)
        if not old.any():
            return
        lost = [group for group, gone in zip(groups, old.tolist(), strict=True) if gone]
        loop.drop(self._samples(lost), STALE)
        for group in lost:
            self.policy.lost(group, True)
        self.stand.accepted -= len(lost)
        self.stand.ready -= len(lost)
        self._ready = [one for one, gone in zip(self._ready, old.tolist(), strict=True) if not gone]
        heapify(self._ready)
        self.admit()

    def _abort(self) -> list[int]:
        """Throw away what is in flight; returns the samples, to start again."""
        lost = self.loop.pool.engines.abort(None, self.loop.clock.now)
        step = self.loop.recorder.step
        step.aborted += sum(1 for r in lost if r.generated)
        step.wasted += sum(r.generated for r in lost)
        step.lost.aborted += sum(r.generated for r in lost)
        return sorted(r.id for r in lost)

    def _samples(self, groups: list[int]) -> Ints:
        """Sample numbers int64[groups, group_size]."""
        size = self.loop.settings.group_size
        return np.array(groups)[:, None] * size + np.arange(size)


def _useful(loop: Loop) -> float:
    """Groups under way beyond which more would only queue up: twice what all slots hold, and a batch.

    A limit where the policy's own bound is out of the run's reach (`max_staleness: 1e6`): the queue stays finite.
    """
    settings = loop.settings
    if settings.settling <= settings.warmup:
        return math.inf
    slots = sum(surface.max_num_seqs * surface.ranks * count for surface, count in loop.costs.engines)
    return -(-2 * slots // settings.group_size) + settings.prompts
