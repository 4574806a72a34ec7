"""What a search knows of the parts of candidates, and the bounds that follow."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from math import inf
from typing import Any

import numpy as np

from rlsim.plan.search.bounds import Parts, step_bound
from rlsim.plan.search.layouts import Options
from rlsim.plan.search.space import Block, Candidate
from rlsim.plan.search.worker import Outcome

NOT_SYNCED = ("recompute", "micro_batch_tokens", "reshard_after_forward", "max_num_seqs", "memory_utilization")
"""Options that neither move nor hold weights: candidates that differ in them have the same weight sync."""


@dataclass
class Sides:
    """A block's sides that fit, the seconds of their parts by batch, and what pairs have on top.

    train, rollout   floor by trainer or engine; `guess_…`: what the order of the search goes by
    once             weight sync and switch by what they depend on
    together         rollout by pair where the engine's memory depends on the trainer (co-located)
    """

    block: Block
    train: dict[int, tuple[float, ...]] = field(default_factory=dict)
    rollout: dict[int, tuple[float, ...]] = field(default_factory=dict)
    guess_train: dict[int, tuple[float, ...]] = field(default_factory=dict)
    guess_rollout: dict[int, tuple[float, ...]] = field(default_factory=dict)
    once: dict[Any, tuple[float, float]] = field(default_factory=dict)
    together: dict[tuple[int, int], tuple[float, ...]] = field(default_factory=dict)
    exact: set[int] = field(default_factory=set)
    quickest: float = inf

    @property
    def infeasible(self) -> int:
        """Candidates one side of which does not fit on its own."""
        return self.block.size - len(self.train) * len(self.rollout) * len(self.block.strategies)

    @cached_property
    def keys(self) -> tuple[list[Any], list[Any]]:
        """What weight sync and switch depend on, by trainer and by engine. Co-located, how full the engine is decides
        what has to move.
        """
        shared = self.block.placement == "colocated"
        engines = [tuple(o.items()) if shared else _moving(o) for o in self.block.engines]
        numbers = {key: n for n, key in enumerate(dict.fromkeys(engines))}
        trainers = [_moving(o) for o in self.block.trainers]
        places = {key: n for n, key in enumerate(dict.fromkeys(trainers))}
        return [places[key] for key in trainers], [numbers[key] for key in engines]

    def key(self, candidate: Candidate) -> Any:
        trainers, engines = self.keys
        return trainers[candidate.trainer], engines[candidate.engine], candidate.strategy

    def learn(self, found: Outcome) -> None:
        """Enter what has been priced; it holds for every candidate with the same part."""
        candidate = found.candidate
        if found.once is not None:
            self.once[self.key(candidate)] = (found.once, found.reward)
            self.quickest = min(self.quickest, found.once)
        if found.rollout is not None and self.block.placement == "colocated":
            self.together[candidate.trainer, candidate.engine] = found.rollout
        elif found.rollout is not None:
            self.rollout[candidate.engine] = found.rollout
            self.exact.add(candidate.engine)

    def played(self, candidate: Candidate) -> bool:
        """Whether its rollouts are known."""
        return candidate.engine in self.exact or (candidate.trainer, candidate.engine) in self.together

    def bound(self, candidate: Candidate, steps: int) -> float:
        """Seconds below which the candidate's step does not go, from all that is known by now."""
        pair = (candidate.trainer, candidate.engine)
        rollout = self.together.get(pair, self.rollout[candidate.engine])
        return self._step(steps, self.train[candidate.trainer], rollout, candidate)

    def order(self, candidate: Candidate, steps: int) -> float:
        """Where it stands in the search: what is to be expected of its step.

        What its sides take (its bound; in async, which has only a loose one, a guess), and its weight sync: its own
        where that is known, else the quickest so far.
        """
        pair = (candidate.trainer, candidate.engine)
        once = 0.0 if self.key(candidate) in self.once else self.quickest if self.once else 0.0
        if self.block.schedule != "async":
            return self.bound(candidate, steps) + once
        train, rollout = self.guess_train[pair[0]], self.guess_rollout[pair[1]]
        return max(self._step(steps, train, rollout, candidate) + once, sum(rollout) / len(rollout))

    def _step(self, steps: int, train: tuple[float, ...], rollout: tuple[float, ...], candidate: Candidate) -> float:
        once, reward = self.once.get(self.key(candidate), (0.0, inf))
        return step_bound(self.block.schedule, steps, Parts(np.array(train), np.array(rollout), once, reward))


def _moving(options: Options) -> tuple[tuple[str, Any], ...]:
    return tuple((name, str(value)) for name, value in options.items() if name not in NOT_SYNCED)
