"""The switch of a co-located system between training and rollout: bytes by role and the host link."""

from __future__ import annotations

from rlsim.catalog.switch_orders import SwitchOrder
from rlsim.costs import measured
from rlsim.costs.switch_ledger import (
    NO_SWITCH,
    HostLink,
    StateBytes,
    SwitchCost,
    SwitchRow,
    engine_rows,
    state_rows,
    switch,
)
from rlsim.dtypes import BYTES
from rlsim.lora import switch_order
from rlsim.memory_trainer import offloadable
from rlsim.memory_trainer import state_bytes as trainer_states
from rlsim.slices import engine_rank_bytes
from rlsim.system import System


def switch_cost(system: System) -> SwitchCost:
    """The switch of a co-located system; nothing when the roles have their own GPUs."""
    if not system.colocated:
        return NO_SWITCH
    state, link = state_bytes(system), host_link(system)
    rows = (*trainer_rows(system), *engine_rows(state, _order(system), link))
    cost = switch(rows, link, needed=offload_needed(system, state))
    return measured.switch(system.profile, cost) or cost


def trainer_rows(system: System) -> tuple[SwitchRow, ...]:
    """The trainer's part of the ledger: its states, as far as the scenario and the framework let them leave."""
    leaves = offloadable(system)
    return state_rows(
        state_bytes(system),
        _order(system),
        host_link(system),
        optimizer=leaves["optimizer states"],
        parameters=leaves["weights"],
        gradients=leaves["gradients"],
    )


def _order(system: System) -> SwitchOrder:
    """The framework's habits, with the kind of host memory that the scenario asks for."""
    order = switch_order(system.scenario, system.trainer.backend)
    return order if system.scenario.offload.pinned else order.pageable()


def state_bytes(system: System) -> StateBytes:
    """Bytes by role on the busiest GPU: the trainer's states, an engine's weights, the KV cache that its memory
    budget leaves.
    """
    stages = [trainer_states(system, stage) for stage in range(system.trainer.pp)]
    optimizer, gradients, parameters = (
        max(stage[role] for stage in stages) for role in ("optimizer states", "gradients", "weights")
    )
    weights, cache = _engine(system)
    return StateBytes(optimizer, gradients, parameters, engine_weights=weights, kv_cache=cache)


def _engine(system: System) -> tuple[float, float]:
    """(weights, KV cache) of the busiest engine GPU; both share the budget memory_utilization · HBM."""
    weights, cache = 0.0, 0.0
    for part in system.rollout:
        stages = engine_rank_bytes(system.model, part.layout, BYTES[part.entry.dtype])
        weights = max(weights, *stages)
        cache = max(cache, part.entry.memory_utilization * part.pool.gpu.hbm_bytes - min(stages))
    return weights, max(0.0, cache)


def host_link(system: System) -> HostLink:
    """The host link of the shared GPUs, from the catalog and the profile."""
    pool, value = system.trainer_pool, system.profile.value
    return HostLink(
        rate=pool.gpu.host_link_bandwidth,
        pinned=value("host_link_rate"),
        pageable=value("pageable_rate"),
        process=value("pageable_process_rate"),
        node=value("node_host_bandwidth"),
        gpus=min(pool.gpus_per_node, system.trainer.gpus),
        map_per_byte=value("map_seconds_per_byte"),
        pinned_alloc=value("pinned_alloc_rate"),
        fixed=value("switch_fixed_s"),
    )


def offload_needed(system: System, state: StateBytes) -> bool:
    """Whether the trainer's states and the engine's budget exceed the GPU together.

    optimizer + gradients + parameters + memory_utilization · HBM > HBM; activations come at another time.
    """
    budget = max(part.entry.memory_utilization for part in system.rollout) * system.trainer_pool.gpu.hbm_bytes
    on_gpu = state.gradients + state.parameters
    on_gpu += state.optimizer if system.scenario.trainer.optimizer_device == "gpu" else 0.0
    return on_gpu + budget > system.trainer_pool.gpu.hbm_bytes
