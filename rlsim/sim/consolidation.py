"""The last samples of a rollout move onto fewer engines; co-located, the freed ones begin the log-prob pass.

When fewer samples run than `below` times the rollout's peak, a share `below` of the engines is kept (as many sequences
an engine as at the peak), more where twice the KV cache that the samples hold needs more. The others' samples go
there, and their contexts are prefilled again.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from rlsim.sim.ledger import Ints
from rlsim.sim.loop import Loop
from rlsim.sim.tail import peak_running

HEADROOM = 2.0  # KV cache of the engines kept / KV cache that the samples hold when they move


class Consolidation:
    """Watches one rollout.

    since   when the samples moved together; None while they have not
    """

    def __init__(self, loop: Loop, below: float, begun: float) -> None:
        self.loop = loop
        self.below = below
        self.begun = begun
        self.since: float | None = None
        self._freed: set[int] = set()
        self._check_at = 0.0  # samples in flight below which it is worth a look

    def started(self, samples: int) -> None:
        """More samples come: all engines serve again."""
        self.over()
        self._check_at += self.below * samples

    def watch(self, finished: Sequence[int]) -> None:
        """After a completion; `finished` are the samples of this rollout so far."""
        pool = self.loop.pool
        in_flight = pool.engines.in_flight
        if self.since is not None or not 0 < in_flight < self._check_at:
            return
        pool.flush()
        for engine in pool.fleet.engines:
            engine.settle()
        running = [r.start for e in pool.fleet.engines for k in e.ranks for r in k.running.values()]
        start = np.concatenate([self.loop.ledger["start"][list(finished)], running])
        end = np.concatenate([self.loop.ledger["end"][list(finished)], np.full(len(running), np.inf)])
        self._check_at = self.below * peak_running(np.maximum(start, self.begun), end)
        if in_flight < self._check_at:
            self._move()

    def _move(self) -> None:
        pool, now = self.loop.pool, self.loop.pool.engines.now
        keep, before = kept_engines(self.loop, self.below), pool.fleet.decoders
        if keep < len(before):
            pool.resubmit(pool.fleet.migrate(now, keep), now)
            self.since, self._freed = now, before - pool.fleet.in_service

    def over(self) -> None:
        """The freed engines serve again."""
        if self.since is not None:
            self.loop.pool.fleet.bring_up(set(self._freed) - self.loop.pool.down, self.loop.pool.engines.now)
            self.since = None

    def early_logprob(self, ids: Ints, now: float) -> float:
        """Seconds that the log-prob pass over `ids` is shorter for what the freed GPUs did of it until `now`.

        They are the trainer's GPUs. They first get its state back, then work, as so large a share of the trainer, on
        what was scored before they were freed; whole copies of the model only:

            min(share · (tail - onload), log-prob seconds of those samples)
        """
        loop, costs = self.loop, self.loop.costs
        if self.since is None or not (loop.settings.colocated and loop.settings.recompute):
            return 0.0
        gpus = costs.gpus.trainer
        freed = gpus * len(self._freed) / len(loop.pool.fleet.engines)
        share = math.floor(freed / costs.copy_gpus + 1e-9) * costs.copy_gpus / gpus
        seconds = share * max(0.0, now - self.since - costs.switch.onload_seconds)
        ready = ids[loop.ledger["scored"][ids] <= self.since]
        if not seconds or not len(ready):
            return 0.0
        lengths = loop.ledger["prompt"][ready] + loop.ledger["response"][ready]
        return min(seconds, costs.training.logprob(lengths, "actor").seconds)


def kept_engines(loop: Loop, below: float) -> int:
    """Engines that the samples in flight move onto."""
    engines = [loop.pool.fleet.engines[number] for number in sorted(loop.pool.fleet.decoders)]
    held = sum(engine.contexts + engine.batch * engine.k for engine in engines)
    held += sum(r.prompt + r.done for engine in engines for rank in engine.ranks for r in rank.waiting)
    held += sum(r.prompt + r.done for engine in engines for rank in engine.ranks for r in rank.prefilling)
    capacity = min(sum(rank.capacity * rank.block for rank in engine.ranks) for engine in engines)
    return max(math.ceil(below * len(engines) - 1e-9), math.ceil(HEADROOM * held / capacity), 1)
