"""A system priced: the cost rooms' answers put together as what the simulation asks for."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial

import numpy as np

from rlsim.catalog.profiles import Profile
from rlsim.costs.checkpoint import checkpoint_cost
from rlsim.costs.controller import ControllerCosts, controller_costs
from rlsim.costs.faults import fault_costs
from rlsim.costs.kernels import kernels_for
from rlsim.costs.kv_transfer import kv_transfer
from rlsim.costs.measured import iteration_parts, parts_of
from rlsim.costs.measured_training import Passes, measured_training
from rlsim.costs.offload import switch_cost
from rlsim.costs.offload_report import offload_report
from rlsim.costs.reward import reward_costs
from rlsim.costs.roles import critic_costs, replica_costs, scoring_passes
from rlsim.costs.rollout import engine_surface
from rlsim.costs.spreads import Typical, phase_spreads
from rlsim.costs.switch_ledger import SwitchCost
from rlsim.costs.training import TrainingCosts
from rlsim.costs.transfer import SyncCost, first_sync_cost, parts_by_cause, weight_sync_cost
from rlsim.costs.validity import extrapolations
from rlsim.grids import TrainLayout
from rlsim.lending import lent_costs
from rlsim.memory import MemoryReport
from rlsim.memory_timeline import occupancies
from rlsim.scenario.schema_workload import Workload
from rlsim.sim.prices import Costs, EngineKind, Gpus
from rlsim.sim.surface import Surface
from rlsim.system import System
from rlsim.workload import WorkloadLengths, sample_batch


def price(system: System, memory: MemoryReport, lengths: WorkloadLengths) -> Costs:
    """Seconds of everything that a step is made of. `lengths` gives the typical batch that the ranges are taken at."""
    kernels_of = partial(kernels_for, roofline_only=system.scenario.costs.kernels == "roofline")
    training = measured_training(TrainingCosts(system, kernels_of(system.trainer_pool.gpu)))
    engines = tuple(
        (engine_surface(system, part, engine.kv_tokens_per_rank), part.layout.engines)
        for part, engine in zip(system.rollout, memory.engines, strict=True)
    )
    hourly = system.hourly()
    sync = weight_sync_cost(system)
    checkpoint = checkpoint_cost(system)
    switch, critic = switch_cost(system), critic_costs(system, kernels_of)
    controller = controller_costs(system)
    surfaces = [surface for surface, _ in engines]
    typical = _typical(system, training, lengths, surfaces, Driver(sync, switch, controller))
    return Costs(
        engines=engines,
        training=training,
        sync=sync,
        switch=switch,
        controller=controller,
        reward=reward_costs(system),
        memory=memory,
        gpus=_gpus(system),
        gpu_hour=_gpu_hour(system, hourly),
        peak_flops=system.trainer_pool.gpu.peak_flops[system.scenario.trainer.precision],
        hbm_bytes=max(pool.gpu.hbm_bytes for pool in (system.trainer_pool, *(part.pool for part in system.rollout))),
        spreads=phase_spreads(system.profile, typical),
        assumptions=_assumptions(system, lengths, surfaces),
        critic=critic,
        reference=replica_costs(system, "reference", kernels_of),
        reward_model=replica_costs(system, "reward_model", kernels_of),
        scoring=scoring_passes(system, kernels_of),
        copy_gpus=copy_gpus(system.trainer),
        engine_roles=tuple(part.entry.role for part in system.rollout),
        kv_transfer=kv_transfer(system),
        kinds=_kinds(system, memory),
        first_sync=first_sync_cost(system),
        hourly=hourly,
        occupancy=occupancies(system, memory),
        offload=offload_report(system, switch, critic),
        checkpoint=checkpoint,
        faults=fault_costs(system, checkpoint),
        lent=lent_costs(system),
        measured=system.profile.measured,
        watts=system.watts(),
    )


def _gpu_hour(system: System, hourly: dict[str, float]) -> float:
    """Dollars per GPU-hour, on average over the GPUs that are paid for."""
    if len(hourly) == 1:
        return system.trainer_pool.price
    return sum(hourly.values()) / system.gpus


def _kinds(system: System, memory: MemoryReport) -> tuple[EngineKind, ...]:
    return tuple(
        EngineKind(
            pool=part.pool.name,
            gpu=part.pool.gpu.name,
            engines=part.layout.engines,
            gpus_per_engine=part.layout.gpus_per_engine,
            kv_tokens_per_engine=engine.kv_tokens_per_engine,
        )
        for part, engine in zip(system.rollout, memory.engines, strict=True)
    )


def copy_gpus(layout: TrainLayout) -> int:
    """Trainer GPUs that one forward pass needs: a stage's GPUs, for all stages; with sharded weights all shards."""
    dense = layout.tp * max(layout.cp * layout.ulysses, layout.shard if layout.shards_weights else 1)
    experts = layout.ep * layout.etp * (layout.expert_shard if layout.shards_weights else 1)
    return layout.pp * max(dense, experts)


CALLS = 5
"""Calls of the driver to worker groups in a step, about: generate, log-probs, update, sync, metrics."""


@dataclass(frozen=True)
class Driver:
    """What is paid once a step besides the passes."""

    sync: SyncCost
    switch: SwitchCost
    controller: ControllerCosts


def _typical(
    system: System,
    training: Passes,
    lengths: WorkloadLengths,
    surfaces: list[Surface],
    once: Driver,
) -> Typical:
    """Seconds by cause at a typical mini-batch and a typical decode iteration."""
    work = system.scenario.workload
    batch = sample_batch(lengths, np.random.default_rng(0), 0)
    tokens = (batch.prompt_tokens[:, None] + batch.response_tokens).ravel()
    mini = tokens[: max(1, len(tokens) // work.updates.mini_batches)]
    fixed = sum(seconds for name, seconds in once.switch.parts.items() if name.endswith(":fixed"))
    moved = once.switch.offload_seconds + once.switch.onload_seconds - fixed
    measured_switch = "offload" in system.profile.measured
    return Typical(
        update=training.update(mini).parts,
        logprob=training.logprob(tokens).parts,
        weight_sync=parts_by_cause(system, once.sync),
        iteration=[_iteration(system.profile, surface, float(tokens.mean())) for surface in surfaces],
        switch=once.switch.parts if measured_switch else {"moved": moved, "fixed": fixed},
        controller=_controller(system, once.controller, float(tokens.sum()), len(tokens)),
        reward={_reward_source(work, lengths): 1.0},
        fsdp=system.trainer.backend != "megatron",
    )


def _reward_source(work: Workload, lengths: WorkloadLengths) -> str:
    """Where reward times come from: the profile's rule, or what the scenario, its trace or its environment give."""
    given = work.reward.seconds is not None or lengths.reward_seconds or work.reward.kind in ("environment", "model")
    return "given" if given else "rule"


def _controller(system: System, costs: ControllerCosts, tokens: float, samples: int) -> dict[str, float]:
    """Seconds of the driver in a step by cause: fixed, bytes of the batch, bookkeeping of its samples."""
    asynchronous = system.scenario.schedule == "async"
    if "controller" in system.profile.measured:
        return parts_of(system.profile, "controller", {"step_s": 1.0, "sample_s": samples, "token_s": tokens})
    collected = samples * system.profile.value("async_sample_overhead_s") if asynchronous else 0.0
    return {
        "fixed" if system.scenario.schedule == "sync" else "async_fixed": costs.step_fixed_seconds,
        "batch": costs.batch_seconds(tokens, 0),
        "samples": costs.batch_seconds(0, samples) - collected,
        "async_samples": collected,
        "calls": CALLS * costs.dispatch_seconds,
    }


def _iteration(profile: Profile, surface: Surface, context: float) -> dict[str, float]:
    """Seconds of a decode iteration by cause at a quarter of the engine's slots."""
    b = max(1, surface.max_num_seqs // 4)
    if "decode" in profile.measured:
        return iteration_parts(profile, b, context)
    whole = float(np.interp(context, surface.knots, surface.rank_rows[b]) + surface.joint[b * surface.ranks])
    base, per_sequence = profile.value("engine_step_base_s"), profile.value("engine_step_per_seq_s") * b
    kernels = max(0.0, whole - base - per_sequence)
    return {"kernels": kernels, "host_base": base, "host_per_sequence": per_sequence}


def _gpus(system: System) -> Gpus:
    rollout = sum(part.layout.engines * part.layout.gpus_per_engine for part in system.rollout)
    return Gpus(trainer=system.trainer.gpus, rollout=rollout, total=system.gpus)


def _of_remedies(system: System) -> Iterator[str]:
    """What the remedies of the long tail take for granted."""
    scenario = system.scenario
    over, together = scenario.remedies.over_sampling, scenario.remedies.consolidate
    if scenario.workload.dynamic_sampling is not None:
        yield "whether the rewards of a group differ does not depend on the lengths of its answers"
    if scenario.schedule == "async":
        return
    if over is not None and over.unfinished == "tail-batch":
        yield "an answer that begins again gets as long as it would have been"
    if together is not None:
        yield "consolidation: contexts that move are prefilled again, their KV is not moved"
        if together.early_logprob and scenario.placement == "colocated" and scenario.workload.logprob != "rollout":
            gpus = copy_gpus(system.trainer)
            yield (
                "early log-probs: after one whole onload the freed GPUs do their share of the trainer's pass, in "
                f"copies of the model on {gpus} of {system.trainer.gpus} GPUs"
            )


def _assumptions(system: System, lengths: WorkloadLengths, surfaces: list[Surface]) -> tuple[str, ...]:
    notes = [*system.assumptions, *lengths.assumptions, *_of_remedies(system), *extrapolations(system)]
    for surface in surfaces:
        notes += surface.notes
    return tuple(dict.fromkeys(notes))
