"""The rollout pool: the fleet of engines as the rest of the simulation sees it.

The fleet is played lazily: whoever touches the pool first brings it up to the present (`advance`). So the
engines jump from batch change to batch change on their own; simpy sees only the moments somebody reacts to.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain, islice, repeat

import numpy as np

from rlsim.sim.clock import Clock
from rlsim.sim.engines import Engines
from rlsim.sim.fleet import Counters, Fleet
from rlsim.sim.journeys import Journeys, Plan
from rlsim.sim.ledger import Ints, Ledger
from rlsim.sim.prices import Costs
from rlsim.sim.recorder import PoolCounts, Recorder
from rlsim.sim.request import Completion, Request
from rlsim.sim.reward import RewardPool, Seconds
from rlsim.sim.rules import PLAIN, RolloutRules


class RolloutPool:
    """State: the fleet, the reward workers, and since when the engines have been at work."""

    def __init__(
        self,
        clock: Clock,
        costs: Costs,
        ledger: Ledger,
        recorder: Recorder,
        rules: RolloutRules = PLAIN,
        turns: Plan | None = None,
    ) -> None:
        """`turns`: what each sample does, where samples have several turns."""
        self.clock = clock
        self.ledger = ledger
        self.recorder = recorder
        lent = costs.lent
        kinds = [*costs.engines, (lent.surface, lent.engines)] if lent else costs.engines
        roles = (*costs.engine_roles, "mixed") if lent and costs.engine_roles else costs.engine_roles
        self.fleet = Fleet(kinds, rules.routing, roles=roles, weighted=True)
        self.lent = range(len(self.fleet.engines) - (lent.engines if lent else 0), len(self.fleet.engines))
        self.fleet.take_down(self.lent, 0.0)  # until the trainer lends its GPUs
        self.engines = Engines(self.fleet)
        self.flushes = rules.flush_cache
        self._journeys: Journeys | None = None
        if turns is not None or costs.kv_transfer is not None:
            self._journeys = Journeys(
                self.engines, turns, rules.environment_workers, rules.keep_contexts, costs.kv_transfer
            )
        weights = zip(costs.engine_weights(), costs.engines, strict=True)
        self._weights = [weight for weight, (_, count) in weights for _ in range(count)]
        self._uneven = len(set(self._weights)) > 1 or lent is not None
        self._lent = lent
        self.rewards = RewardPool(costs.reward.workers)
        self.streaming = costs.reward.streaming
        self._finished: list[Completion] = []
        self._last_end = 0.0
        self._busy_since: float | None = None
        self._still = False
        self.down: set[int] = set()  # engines that crashed and are not back

    def submit(self, ids: Sequence[int], version: int, now: float | None = None) -> None:
        """Hand samples to the engines, now or at a moment that the engines have been played to."""
        if not len(ids):
            return
        now, rows = self.clock.now if now is None else now, np.asarray(ids)
        columns = (self.ledger[name][rows].tolist() for name in ("group", "prompt", "response"))
        requests = [Request(i, g, p, r, 0, now, version) for i, g, p, r in zip(ids, *columns, strict=True)]
        self._hand_over(self._journeys.begin(requests) if self._journeys else requests, now)

    def resubmit(self, requests: Sequence[Request], now: float | None = None) -> None:
        """Samples that were taken out go on with the tokens they have; their contexts are prefilled again."""
        now = self.clock.now if now is None else now
        for request in requests:
            request.arrived = now
        if requests:
            self._hand_over(self._journeys.go_on(requests, now) if self._journeys else requests, now)

    def _hand_over(self, requests: Sequence[Request], now: float) -> None:
        self.engines.submit(requests, now)
        self._wake(now)

    def _wake(self, now: float) -> None:
        """The engines have something to do from now on, if any is in service."""
        if self._busy_since is None and self.fleet.in_service and not self._still:
            self._busy_since = now

    def take_down(self, engines: Sequence[int], now: float) -> list[Request]:
        """Engines crash at a moment that the engines have been played to; their samples come back."""
        lost = self.fleet.take_down(engines, now)
        if lost and not self.fleet.in_service:
            self._rest(now)
        return lost

    def bring_up(self, engines: Sequence[int], now: float) -> None:
        """Engines are back at a moment that the engines have been played to."""
        self.fleet.bring_up(engines, now)
        if self.engines.in_flight:
            self._wake(now)

    def abort(self, now: float) -> list[Request]:
        """Take out everything in flight at a moment that the engines have been played to."""
        gone = self.engines.abort(None, now)
        self._rest(now)
        return gone

    def advance(self) -> list[Completion]:
        """Play the engines up to now; returns what finished, not yet noted."""
        return self.engines.play(self.clock.now, False)

    def drain(self) -> float:
        """Run out everything in flight, each engine alone; returns when the last sample ends (or ended)."""
        self.note(self.engines.drain(self.clock.now))
        self.flush()
        return self._last_end

    def note(self, done: list[Completion]) -> None:
        """Take finished samples, in the order of their ends; `flush` enters them into the ledger."""
        if done:
            self._finished += done
            self._last_end = done[-1].time
            if not self.engines.in_flight:
                self._rest(self._last_end)

    def flush(self) -> None:
        """Enter ends and, when rewards stream, scores of the noted samples into the ledger."""
        if not self._finished:
            return
        ledger, done = self.ledger, self._finished
        self._finished = []
        ids = np.array([c.request.id for c in done])
        ends = np.array([c.time for c in done])
        ledger["start"][ids] = [c.request.start for c in done]
        ledger["end"][ids] = ends
        if self.streaming:
            ledger["scored"][ids] = self.rewards.score(ends, ledger["reward_seconds"][ids])

    def scored(self, ids: Ints) -> Seconds:
        """When all samples of each row of `ids` have their rewards; they have all ended.

        A row is what waits for its rewards together: the batch of a step, or a group of the stream. Rewards that do not
        stream begin when the last sample of the row has ended.
        """
        if not self.streaming:
            for row in ids:
                self._score_together(row)
        last: Seconds = self.ledger["scored"][ids].max(axis=1)
        return last

    def _score_together(self, row: Ints) -> None:
        ledger = self.ledger
        ends = np.full(len(row), ledger["end"][row].max())
        ledger["scored"][row] = self.rewards.score(ends, ledger["reward_seconds"][row])

    def _rest(self, now: float) -> None:
        """The engines have nothing to do from now on."""
        if self._busy_since is not None:
            self.recorder.pool("busy", self._busy_since, now)
            self._busy_since = None

    def interrupt(self) -> int:
        """All that runs loses its KV; returns the tokens of the contexts that have to be prefilled again."""
        ranks = [rank for engine in self.fleet.engines for rank in engine.ranks]
        running = [len(rank.running) for rank in ranks]
        self.fleet.interrupt(self.clock.now, keep_kv=False)
        again = [r for rank, count in zip(ranks, running, strict=True) for r in islice(rank.waiting, count)]
        return sum(request.prompt + request.done for request in again)

    def busy(self) -> float:
        """Engine-seconds with work up to now."""
        now = self.clock.now
        return self.fleet.stats.busy_seconds + sum(engine.under_way(now)[0] for engine in self.fleet.engines)

    def stand_still(self) -> None:
        """Engines stop for a weight sync."""
        self.fleet.pause(self.clock.now)
        self._rest(self.clock.now)
        self._still = True

    def renew(self) -> None:
        """New weights: what the prefix caches keep is of old ones."""
        if self.flushes:
            self.fleet.flush_cache(self.clock.now)

    def go_on(self) -> None:
        """Engines hold the new weights and go on."""
        self.fleet.resume(self.clock.now)
        self._still = False
        if self.engines.in_flight:
            self._wake(self.clock.now)

    def counts(self) -> PoolCounts:
        """Cumulative figures up to now; cuts the running busy span here: none crosses the end of a step."""
        now = self.clock.now
        if self._busy_since is not None:
            self.recorder.pool("busy", self._busy_since, now)
            self._busy_since = now
        stats = self.fleet.stats
        busy, batch_seconds, generated = stats.busy_seconds, stats.batch_seconds, stats.generated_tokens
        occupied = lent = 0.0
        for engine, weight in zip(self.fleet.engines, chain(self._weights, repeat(0.0)), strict=False):
            seconds, batch, tokens = engine.under_way(now)
            occupied += weight * (engine.stats.busy_seconds + seconds)
            lent += (not weight) * (engine.stats.busy_seconds + seconds)
            busy, batch_seconds, generated = busy + seconds, batch_seconds + batch, generated + tokens
        return PoolCounts(
            busy=busy,
            prefill=stats.prefill_seconds - stats.reprefill_seconds,
            reprefill=stats.reprefill_seconds,
            batch_seconds=batch_seconds,
            generated=generated,
            reprefilled=stats.reprefilled_tokens,
            preemptions=stats.preemptions,
            swap=stats.swap_seconds,
            swapped=stats.swapped_tokens,
            reused=stats.reused_tokens,
            evicted=stats.evicted_tokens,
            occupied=occupied if self._uneven else busy,
            lent=lent * self._lent.gpus_per_engine if self._lent else 0.0,
        )

    def counters(self) -> Counters:
        """Running sequences and KV tokens of all engines over time."""
        return self.fleet.counters()
