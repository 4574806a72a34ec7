"""One scenario dict predicted with chosen profile values, whether or not it fits into memory.

Published runs did fit; where the memory model disagrees, the row says so and is predicted all the same.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from rlsim.memory import check_memory
from rlsim.pricing import price
from rlsim.result import Labels, Result, simulate
from rlsim.scenario import scenario_from_dict
from rlsim.sim.ledger import Batch
from rlsim.sim.prices import Costs
from rlsim.sim.settings import settings
from rlsim.system import resolve
from rlsim.workload import sample_batch, workload_lengths

Change = Callable[[Costs], Costs]
"""What a prediction does to the prices of a run before it is simulated."""


@dataclass(frozen=True)
class Prediction:
    """A step.

    floor  model FLOPs of the updates at dense peak on the trainer's GPUs, and the weight sync's floor
    work   the same FLOPs at dense peak on all GPUs
    note   what the memory model has against it
    """

    seconds: float
    p10: float
    p90: float
    phases: dict[str, float]
    floor: float
    work: float
    note: str
    result: Result


def predict(
    content: Mapping[str, Any], values: Mapping[str, float] | None = None, change: Change | None = None
) -> Prediction:
    """Simulate one scenario; `values` replace parameters of its profile, `change` its prices."""
    scenario = scenario_from_dict(content)
    system = resolve(scenario)
    if values:
        system = replace(system, profile=system.profile.with_values(**values))
    memory = check_memory(system)
    lengths = workload_lengths(scenario.workload)

    def draw(rng: np.random.Generator, step: int) -> Batch:
        return sample_batch(lengths, rng, step)

    costs = price(system, memory, lengths)
    costs = change(costs) if change else costs
    labels = Labels(scenario.name, scenario.variant, scenario.run.seed)
    result = simulate(settings(scenario), costs, draw, labels, scenario.run.steps)
    summary = result.summary()
    interval = summary["prediction_interval_s"]
    measured = result.runs[0].steps
    compute = sum(step.flops for step in measured) / len(measured) / costs.peak_flops
    return Prediction(
        seconds=float(summary["step_time_s"]["mean"]),
        p10=float(interval["p10"]),
        p90=float(interval["p90"]),
        phases={name: float(v) for name, v in summary["phases_s"].items()},
        floor=compute / result.costs.gpus.trainer + result.costs.sync.floor_seconds,
        work=compute / result.costs.gpus.total,
        note="; ".join(f"memory model: {p.role}, {p.by}" for p in memory.problems),
        result=result,
    )
