"""What a run is played from, and the seam at which one of its costs can be altered before it is played."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TypeVar

import numpy as np

from rlsim.memory import MemoryReport
from rlsim.pricing import price
from rlsim.sim.prices import Costs
from rlsim.sim.settings import Settings, settings
from rlsim.system import System
from rlsim.workload import Batch, sample_batch, workload_lengths

T = TypeVar("T")


@dataclass(frozen=True)
class Inputs:
    """A priced run: who waits for whom, what everything costs, and where its samples come from."""

    settings: Settings
    costs: Costs
    draw: Callable[[np.random.Generator, int], Batch]


def same(what: T) -> T:
    """Nothing is changed."""
    return what


@dataclass(frozen=True)
class Change:
    """A counterfactual: `system` is applied before pricing, `inputs` after it. Memory stays what the scenario has."""

    system: Callable[[System], System] = same
    inputs: Callable[[Inputs], Inputs] = same

    def then(self, other: Change) -> Change:
        """Both, one after the other."""
        return Change(
            lambda system: other.system(self.system(system)), lambda inputs: other.inputs(self.inputs(inputs))
        )


AS_IT_IS = Change()


def inputs_of(system: System, memory: MemoryReport, change: Change = AS_IT_IS) -> Inputs:
    """Price a system that fits into memory, with `change` made."""
    system = change.system(system)
    scenario = system.scenario
    lengths = workload_lengths(scenario.workload)
    rules = settings(scenario)
    costs = price(system, memory, lengths)

    def draw(rng: np.random.Generator, step: int) -> Batch:
        batch = sample_batch(lengths, rng, step - rules.warmup)
        if costs.reward_model is None:
            return batch
        return replace(
            batch, reward_seconds=costs.reward_model.seconds(batch.prompt_tokens[:, None] + batch.response_tokens)
        )

    return change.inputs(Inputs(rules, costs, draw))
