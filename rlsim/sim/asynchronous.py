"""Asynchronous rollout with bounded staleness: engines wait for no batch, the trainer takes what is ready.

Admission (AReaL): with policy version v, the groups that run and the groups accepted so far keep

    accepted + running <= (eta + v + 1) * B,   running <= max_concurrent

where B is what one version trains on (prompts * sync_every). A group runs until its last sample is scored; a
group dropped as too old gives its place back.
"""

from __future__ import annotations

import math
from collections.abc import Generator
from heapq import heapify, heappop, heappush
from typing import Any

import numpy as np
from simpy import Event

from rlsim.sim.ledger import STALE, Ints
from rlsim.sim.loop import Loop
from rlsim.sim.request import Completion
from rlsim.sim.trainer import Process


class Asynchronous:
    """State of the stream of groups from the prompts to the trainer.

    running     groups submitted and not yet accepted
    accepted    groups accepted so far, without those dropped
    """

    def __init__(self, loop: Loop) -> None:
        self.loop = loop
        self.running = 0
        self.accepted = 0
        self._submitted = 0
        self._open = True  # admission; closed while a sync holds the engines
        self._left: list[int] = []  # unfinished samples of each group
        self._scored: list[tuple[float, int]] = []  # heap of finished groups by the time of their last score
        self._ready: list[int] = []  # heap of accepted groups, oldest first
        self._wanted = 0  # groups that the trainer waits for
        self._draining = False
        self._news: Event = loop.clock.event()  # to the trainer: what it waits for has come
        self._watch: Event = loop.clock.event()  # to the engines' process: somebody waits

    # --- processes --------------------------------------------------

    def trainer(self, steps: int) -> Process:
        """Weight sync (after every `sync_every` steps), wait for B groups, train."""
        loop, settings = self.loop, self.loop.settings
        self.admit()
        for step in range(steps):
            if step > 0 and step % settings.sync_every == 0:
                yield from self.weight_sync()
            groups = yield from self.take(settings.prompts)
            yield from loop.trainer.train(groups)
            self.catch_up()
            loop.end_step()

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

        With overlap the engines generate on while the weights are on the wire and stand still for the rest.
        """
        loop, clock, pool, how = self.loop, self.loop.clock, self.loop.pool, self.loop.settings.on_sync
        if how == "drain":
            self._open = False
            yield from self._drain()
        start = clock.now
        if loop.settings.overlap:
            yield clock.at(start + min(loop.costs.sync.transfer_seconds, loop.costs.sync.seconds))
        self._open = False
        self.catch_up()
        stop = clock.now
        again = self._abort() if how == "abort" else []
        if how == "interrupt":
            pool.fleet.interrupt(stop, keep_kv=False)
        pool.stand_still()
        yield clock.at(start + loop.costs.sync.seconds)
        self.catch_up()
        loop.recorder.phase("weight_sync", start, clock.now)
        loop.recorder.pool("weight_sync", stop, clock.now)
        loop.versions.publish(clock.now, loop.trainer.updates)
        pool.go_on()
        pool.submit(again, loop.versions.current)
        self._open = True
        self.admit()

    def take(self, groups: int) -> Generator[Event, Any, Ints]:
        """The oldest accepted groups that are young enough, as sample numbers; waits until they suffice."""
        loop, start = self.loop, self.loop.clock.now
        self.catch_up()
        self._drop_stale()
        while len(self._ready) < groups:
            yield from self._wait_for(groups)
            self._drop_stale()
        loop.recorder.phase("wait_rollout", start, loop.clock.now, None)
        return self._samples([heappop(self._ready) for _ in range(groups)])

    # --- admission --------------------------------------------------

    def admit(self) -> None:
        """Submit as many groups as the rule allows."""
        if not self._open:
            return
        settings = self.loop.settings
        per_version = settings.prompts * settings.sync_every
        version = self.loop.versions.current
        room = (version + 1) * per_version + math.floor(settings.max_staleness * per_version + 1e-9)
        room -= self.accepted + self.running
        if settings.max_concurrent is not None:
            room = min(room, settings.max_concurrent - self.running)
        if room <= 0:
            return
        size, first = settings.group_size, self._submitted
        self._submitted += room
        while self.loop.work.groups < self._submitted:
            self.loop.work.batch()
        self._left += [size] * room
        self.running += room
        self.loop.pool.submit(range(first * size, self._submitted * size), version)

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
        now, before = self.loop.clock.now, self.accepted
        while self._scored and self._scored[0][0] <= now:
            heappush(self._ready, heappop(self._scored)[1])
            self.running -= 1
            self.accepted += 1
        if self.accepted > before and self.loop.settings.max_concurrent is not None:
            self.admit()
        enough = self._wanted and len(self._ready) >= self._wanted
        if (enough or (self._draining and not self.loop.pool.engines.in_flight)) and not self._news.triggered:
            self._news.succeed()

    # --- waiting --------------------------------------------------

    def _watched(self) -> bool:
        return bool(self._wanted) or self._draining or self.loop.settings.max_concurrent is not None

    def _wait_for(self, groups: int) -> Process:
        self._wanted = groups
        yield from self._wait()
        self._wanted = 0

    def _drain(self) -> Process:
        """Wait until nothing is in flight."""
        start = self.loop.clock.now
        self.catch_up()
        if self.loop.pool.engines.in_flight:
            self._draining = True
            yield from self._wait()
            self._draining = False
            self.loop.recorder.phase("wait_rollout", start, self.loop.clock.now, None)

    def _wait(self) -> Process:
        self._news = self.loop.clock.event()
        if not self._watch.triggered:
            self._watch.succeed()
        yield self._news

    # --- samples that are lost --------------------------------------------------

    def _drop_stale(self) -> None:
        """Drop accepted groups with a sample that would be trained more than eta versions after it began.

        Admission makes that rare: only a group that others overtook can be so old.
        """
        if not self._ready:
            return
        loop = self.loop
        ids = self._samples(self._ready)
        begun = loop.versions.at(loop.ledger["start"][ids].min(axis=1))
        old = loop.versions.current - begun > math.ceil(loop.settings.max_staleness)
        if not old.any():
            return
        lost = ids[old]
        loop.drop(lost, STALE)
        self.accepted -= len(lost)
        self._ready = [group for group, gone in zip(self._ready, old.tolist(), strict=True) if not gone]
        heapify(self._ready)
        self.admit()

    def _abort(self) -> list[int]:
        """Throw away what is in flight; returns the samples, to start again."""
        lost = self.loop.pool.fleet.abort(None, self.loop.clock.now)
        step = self.loop.recorder.step
        step.aborted += sum(1 for r in lost if r.done)
        step.wasted += sum(r.done for r in lost)
        return sorted(r.id for r in lost)

    def _samples(self, groups: list[int]) -> Ints:
        """Sample numbers int64[groups, group_size]."""
        size = self.loop.settings.group_size
        return np.array(groups)[:, None] * size + np.arange(size)
