"""Evaluation passes: a set of prompts through the rollout engines under the newest weights.

An evaluation has the engines to itself, so it is played on a fleet of its own that begins empty; rollouts in flight
stand still meanwhile. Its lengths are drawn like the workload's, from a random stream of its own; nobody trains on
them.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from rlsim.sim.fleet import Fleet
from rlsim.sim.prices import Costs
from rlsim.sim.request import Request
from rlsim.sim.surface import Surface
from rlsim.sim.work import Draw

STREAM = 8  # of the random streams of a seed


@dataclass(frozen=True)
class Evaluation:
    """Rules of the evaluation passes.

    every              steps between two
    prompts, samples   of one pass, samples per prompt
    beside             the trainer goes on meanwhile (async only)
    """

    every: int
    prompts: int
    samples: int = 1
    beside: bool = False


@dataclass(frozen=True)
class Evaluated:
    """One pass: its seconds, response tokens, and engine-seconds with work."""

    seconds: float
    tokens: int
    busy: float


class Evaluator:
    """Says when an evaluation is due, and plays it."""

    def __init__(self, rules: Evaluation | None, costs: Costs, draw: Draw, seed: int) -> None:
        self.rules = rules
        self._costs = costs
        self._draw = draw
        self._seed = seed
        self._passes = 0
        self._last = 0  # multiple of `every` that has been evaluated

    def due(self, done: int) -> bool:
        """Whether the weights after so many steps are evaluated, once they are on the engines."""
        return self.rules is not None and done // self.rules.every > self._last

    def back_to(self, done: int) -> None:
        """Steps after these are lost and will be evaluated again."""
        if self.rules:
            self._last = min(self._last, done // self.rules.every)

    def play(self, done: int) -> Evaluated:
        """One pass from its first prompt to its last token."""
        if self.rules is None:
            return Evaluated(0.0, 0, 0.0)
        self._last = done // self.rules.every
        fleet = Fleet(self._kinds())
        requests = self._requests(self.rules, done)
        fleet.submit(requests, 0.0)
        seconds = fleet.drain(0.0)[-1].time
        return Evaluated(seconds, sum(r.response for r in requests), fleet.stats.busy_seconds)

    def _kinds(self) -> list[tuple[Surface, int]]:
        """The engines that generate: separate prefill engines are left out."""
        costs = self._costs
        roles = costs.engine_roles or ("mixed",) * len(costs.engines)
        return [kind for kind, role in zip(costs.engines, roles, strict=True) if role != "prefill"]

    def _requests(self, rules: Evaluation, done: int) -> list[Request]:
        random = np.random.default_rng([self._seed, STREAM, self._passes])
        self._passes += 1
        prompts, responses = [], []
        count = 0
        while count < rules.prompts:
            batch = self._draw(random, done)
            columns = [batch.response_tokens]
            while sum(c.shape[1] for c in columns) < rules.samples:
                columns.append(self._draw(random, done).response_tokens)
            prompts.append(batch.prompt_tokens)
            responses.append(np.concatenate(columns, axis=1)[:, : rules.samples])
            count += len(batch.prompt_tokens)
        prompt = np.concatenate(prompts)[: rules.prompts]
        response = np.concatenate(responses)[: rules.prompts]
        return [
            Request(group * rules.samples + i, group, int(prompt[group]), int(tokens))
            for group, row in enumerate(response)
            for i, tokens in enumerate(row)
        ]
