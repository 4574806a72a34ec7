"""Memory before anything is simulated: every role, every moment of the step, what does not fit, and what would.

The trainer's side is in `memory_trainer`, the engine's in `memory_engine`, the search for a change in `memory_fixes`.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from rlsim.lora import reference_is_base, switch_order
from rlsim.memory_checkpoint import staged_bytes
from rlsim.memory_engine import engine_memory
from rlsim.memory_fixes import nearest_change
from rlsim.memory_report import GIB, Breakdown, EngineMemory, MemoryReport, Problem
from rlsim.memory_roles import (
    critic_beside,
    host_roles,
    own_breakdowns,
    role_problems,
    shared_moments,
    staying_states,
    wider_role,
)
from rlsim.memory_trainer import (
    master_share,
    offloadable,
    reference_bytes,
    resident_states,
    state_bytes,
    trainer_moments,
)
from rlsim.sync_settings import sync_bucket

if TYPE_CHECKING:
    from rlsim.system import RolloutPart, System

__all__ = ["Breakdown", "EngineMemory", "MemoryReport", "Problem", "check_memory", "measure"]


def check_memory(system: System) -> MemoryReport:
    """The report, its problems with the nearest change that fits, found by trying."""
    report = measure(system)
    problems = tuple(
        replace(
            p, fix=wider_role(system, p.role) if p.role in report.roles else nearest_change(system, p, report, measure)
        )
        for p in report.problems
    )
    return replace(report, problems=problems)


def measure(system: System) -> MemoryReport:
    """The report, its problems without a fix."""
    resident = resident_bytes(system)
    engines = tuple(engine_memory(system, part, resident) for part in system.rollout)
    asleep = asleep_bytes(system)
    moments = {**trainer_moments(system, asleep, critic_beside(system)), **shared_moments(system, asleep)}
    trainer = max(moments.values(), key=lambda breakdown: breakdown.total)
    rollout = max((engine.breakdown for engine in engines), key=lambda breakdown: breakdown.total)
    moments["rollout"] = rollout
    if system.colocated:
        moments["weight sync"] = switch_moment(system)
        if moments["weight sync"].total > rollout.total:
            rollout = moments["weight sync"]
    host, roles = host_memory(system), own_breakdowns(system)
    problems = (
        *_trainer_problem(system, trainer),
        *_engine_problems(system, engines),
        *_switch_problem(system, moments),
        *_host_problem(system, host),
        *role_problems(system, roles),
    )
    return MemoryReport(trainer, rollout, host, problems, engines, moments, roles)


# Co-located ----------


def resident_bytes(system: System) -> float:
    """Bytes of the trainer on a GPU while the engine runs: what the offload block leaves, context and communicators."""
    if not system.colocated:
        return 0.0
    return staying_states(system) + sum(critic_beside(system).values()) + _process_bytes(system)


def asleep_bytes(system: System) -> float:
    """Bytes of a sleeping engine on a co-located GPU: context, communicators and captured graphs."""
    if not system.colocated:
        return 0.0
    eager = all(part.entry.enforce_eager for part in system.rollout)
    return _process_bytes(system) + (0.0 if eager else system.profile.value("engine_graph_bytes"))


def switch_moment(system: System) -> Breakdown:
    """Weight sync on shared GPUs: the trainer's weights, the engine's, two buckets, and what is not offloaded."""
    leaves = offloadable(system)
    weights, stay = 0.0, 0.0
    for stage in range(system.trainer.pp):
        states = resident_states(system, stage)
        weights = max(weights, states.pop("weights"))
        stay = max(stay, sum(size for role, size in states.items() if not leaves[role]))
    engine = max(breakdown.parts["weights"] for breakdown in _engine_breakdowns(system))
    parts = {
        "trainer weights": weights,
        "trainer resident": stay + sum(critic_beside(system).values()) + _process_bytes(system),
        "engine weights": engine,
        "weight sync buffer": 2 * sync_bucket(system.scenario),
        "engine asleep": asleep_bytes(system),
    }
    return Breakdown(parts, "weight sync", "the weights of both roles")


def process_parts(system: System) -> dict[str, float]:
    """Bytes of a process on the GPU whatever it does: context and communicators."""
    value = system.profile.value
    return {"context": value("cuda_context_bytes"), "communication buffers": value("nccl_buffer_bytes")}


def _process_bytes(system: System) -> float:
    return sum(process_parts(system).values())


# Host ----------


def host_memory(system: System) -> Breakdown:
    """The fullest node. Offloaded states of its GPUs (gradients where the framework moves them instead of dropping
    them), sleeping engine weights, the reference model, its processes.

    Optimizer states of 671 B parameters on 1,024 GPUs are 7.9 GB per GPU and 63 GB per node of eight.
    """
    scenario, value = system.scenario, system.profile.value
    gpus = min(system.trainer.gpus_per_node, system.trainer.gpus)
    states = max((state_bytes(system, s) for s in range(system.trainer.pp)), key=lambda parts: sum(parts.values()))
    parts: dict[str, float] = {"processes": gpus * value("host_process_bytes") * (2 if system.colocated else 1)}
    order, leaves = switch_order(scenario, system.trainer.backend), offloadable(system)
    on_cpu = scenario.trainer.optimizer_device == "cpu"
    if on_cpu or (system.colocated and leaves["optimizer states"]):
        parts["optimizer states"] = gpus * states["optimizer states"]
    gradients = 0.0
    if scenario.trainer.optimizer_device != "gpu":
        gradients = states["optimizer states"] * (1 - master_share(system)) / 2  # as large as one moment
    if system.colocated and leaves["gradients"] and order.moves_gradients:
        gradients += states["gradients"]
    if gradients:
        parts["gradients"] = gpus * gradients
    if system.colocated and leaves["weights"]:
        parts["weights"] = gpus * states["weights"]
    if system.colocated and order.sleep_level == 1:
        parts["sleeping engine weights"] = gpus * max(e.parts["weights"] for e in _engine_breakdowns(system))
    on_host = scenario.workload.reference_model and scenario.roles.reference is None
    if on_host and not reference_is_base(scenario):
        parts["reference weights"] = gpus * max(reference_bytes(system, s) for s in range(system.trainer.pp))
    parts |= host_roles(system, gpus)
    if staged := staged_bytes(system):
        parts["checkpoint on its way"] = staged
    return Breakdown(parts, "rollout" if system.colocated else "train", max(parts, key=lambda role: parts[role]))


def _engine_breakdowns(system: System) -> list[Breakdown]:
    return [engine_memory(system, part).breakdown for part in system.rollout]


# Problems ----------


def _trainer_problem(system: System, trainer: Breakdown) -> list[Problem]:
    have = system.trainer_pool.gpu.hbm_bytes
    if trainer.total <= have:
        return []
    where = f"{_over(trainer.total, have)} at the {trainer.moment} moment: {trainer.consumers()}"
    return [Problem("trainer", trainer.total, have, where, "")]


def _engine_problems(system: System, engines: tuple[EngineMemory, ...]) -> list[Problem]:
    """An engine must hold its weights and, on each attention rank, the whole KV blocks of one longest sequence."""
    found = []
    for i, (part, engine) in enumerate(zip(system.rollout, engines, strict=True)):
        if engine.kv_tokens_per_rank < engine.longest_tokens:
            have = max(0.0, engine.budget)  # what others keep may leave less than nothing
            need = engine.fixed + engine.longest_bytes + have - engine.budget
            by = f"{_over(need, have)}: {_rollout_consumers(part, engine)}"
            role = "rollout" if len(engines) == 1 else f"rollout[{i}]"
            found.append(Problem(role, need, have, by, ""))
    return found


def _rollout_consumers(part: RolloutPart, engine: EngineMemory) -> str:
    parts = {role: size for role, size in engine.breakdown.parts.items() if role != "KV cache"}
    parts["KV cache of one longest sequence"] = engine.longest_bytes
    others = Breakdown(parts, "rollout")
    share = f"{part.entry.memory_utilization:g} of {part.pool.gpu.hbm_bytes / GIB:.1f} GiB"
    return f"{others.consumers()} in a budget of {share}"


def _switch_problem(system: System, moments: dict[str, Breakdown]) -> list[Problem]:
    have = system.trainer_pool.gpu.hbm_bytes
    moment = moments.get("weight sync")
    if moment is None or moment.total <= have:
        return []
    by = f"{_over(moment.total, have)} during the weight sync: {moment.consumers()}"
    return [Problem("weight sync", moment.total, have, by, "")]


def _host_problem(system: System, host: Breakdown) -> list[Problem]:
    have = system.trainer_pool.gpu.host_memory_bytes
    if host.total <= have:
        return []
    return [Problem("host", host.total, have, f"{_over(host.total, have)}: {host.consumers()}", "")]


def _over(need: float, have: float) -> str:
    return f"{(need - have) / GIB:.1f} GiB too much"
