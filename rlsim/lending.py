"""Trainer GPUs lent to rollout: the engines that they become, and what changing over costs.

While lent, a trainer GPU is in the state that a co-located one is in during the rollout: its states offloaded, an
engine awake on it. So the engines, the memory check and the switch both ways are those of the co-located system with
the trainer's GPUs in both roles.
"""

from __future__ import annotations

from rlsim.costs.offload import switch_cost
from rlsim.costs.rollout import engine_surface
from rlsim.costs.transfer import weight_sync_cost
from rlsim.errors import UserError
from rlsim.memory import MemoryReport, measure
from rlsim.scenario.schema import Scenario
from rlsim.sim.prices import Lent
from rlsim.system import System, resolve

KEY = "remedies.elastic"


def lent_costs(system: System) -> Lent | None:
    """Price of lending; None where nothing is lent. Raises `UserError` where the engines do not fit.

    to_rollout   offload + weights into the lent engines (as a co-located weight sync)
    to_trainer   engines asleep + onload
    """
    if not lends(system.scenario):
        return None
    both, memory = _both(system)
    (part,) = both.rollout
    switch, sync = switch_cost(both), weight_sync_cost(both)
    return Lent(
        surface=engine_surface(both, part, memory.engines[0].kv_tokens_per_rank),
        engines=part.layout.engines,
        gpus_per_engine=part.layout.gpus_per_engine,
        to_rollout=switch.offload_seconds + sync.seconds,
        to_trainer=switch.onload_seconds,
    )


def lends(scenario: Scenario) -> bool:
    return scenario.schedule == "async" and scenario.remedies.elastic is not None


def check_lending(system: System) -> None:
    """Raise `UserError` where the trainer's GPUs cannot hold engines."""
    if lends(system.scenario):
        _both(system)


def _both(system: System) -> tuple[System, MemoryReport]:
    """The co-located system on the trainer's GPUs, and its memory."""
    scenario = system.scenario
    try:
        both = resolve(colocated_on_trainer(scenario))
    except UserError as error:
        raise scenario.error(f"{KEY}.tp", f"lent engines: {error.message}", error.fix) from None
    memory = measure(both)
    if memory.problems:
        problem = memory.problems[0]
        raise scenario.error(
            KEY,
            f"lent engines do not fit beside what stays of the trainer ({problem.role}: {problem.by})",
            "a larger remedies.elastic.tp, a smaller rollout.memory_utilization, or more offloaded",
        )
    return both, memory


def colocated_on_trainer(scenario: Scenario) -> Scenario:
    """The scenario with both roles on the trainer's GPUs; engines as the first rollout entry, but for `tp`."""
    trainer, elastic = scenario.trainer, scenario.remedies.elastic
    geometry = {}
    if elastic is not None and elastic.tp is not None:
        geometry = {"attn_tp": elastic.tp, "attn_dp": 1, "moe_tp": elastic.tp, "moe_ep": 1}
    entry = scenario.rollout[0].model_copy(update={"gpus": trainer.gpus, "pool": trainer.pool, **geometry})
    sync = scenario.weight_sync.model_copy(update={"strategy": "auto", "overlap": False})
    return scenario.model_copy(
        update={"placement": "colocated", "schedule": "sync", "rollout": (entry,), "weight_sync": sync}
    )
