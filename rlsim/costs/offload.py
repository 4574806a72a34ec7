"""The switch of a co-located system between training and rollout: bytes by role and the host link."""

from __future__ import annotations

from rlsim.costs.switch_ledger import NO_SWITCH, HostLink, StateBytes, SwitchCost, adam_bytes, ledger, switch
from rlsim.costs.switch_orders import order_of
from rlsim.dtypes import BYTES
from rlsim.layout import TrainLayout
from rlsim.slices import engine_rank_bytes, train_params
from rlsim.system import System


def switch_cost(system: System) -> SwitchCost:
    """The switch of a co-located system; nothing when the roles have their own GPUs."""
    if not system.colocated:
        return NO_SWITCH
    scenario = system.scenario
    order = order_of(scenario.framework.name, system.trainer.backend)
    if not scenario.offload.pinned:
        order = order.pageable()
    state = state_bytes(system)
    link = host_link(system)
    rows = ledger(
        state,
        order,
        link,
        optimizer=scenario.offload.optimizer and scenario.trainer.optimizer_device == "gpu",
        parameters=scenario.offload.params and not order.keeps_parameters,
        gradients=scenario.offload.grads,
    )
    return switch(rows, link, needed=offload_needed(system, state))


def state_bytes(system: System) -> StateBytes:
    """Bytes by role on the busiest GPU.

    Megatron: parameters 2·N, gradients g·N, optimizer 12·(N_dense/(DP·CP) + N_expert/EDP). FSDP, ZeRO: all of
    the model over the shard group, parameters 2 B + optimizer 12 B, or with fp32 storage 4 B (the master) + 8
    B. Engine: the weights it holds, and the KV cache that its memory budget leaves.
    """
    train, layout = system.scenario.trainer, system.trainer
    gradient = BYTES[train.grad_dtype]
    fp32 = layout.backend == "fsdp2" and train.param_dtype == "fp32"
    ranks = [train_params(system.model, layout, stage) for stage in range(layout.pp)]
    shard, expert_shard = optimizer_shards(layout)
    owned = max(r.dense / shard + r.expert / expert_shard for r in ranks)
    if layout.shards_weights:
        held = gradients = owned
    else:
        held = max(float(r.dense + r.expert) for r in ranks)
        gradients = owned if layout.zero_stage == 2 else held
    weights, cache = _engine(system)
    return StateBytes(
        optimizer=adam_bytes(owned, 8.0 if fp32 else 12.0),
        gradients=gradient * gradients,
        parameters=(4.0 if fp32 else 2.0) * held,
        engine_weights=weights,
        kv_cache=cache,
    )


def optimizer_shards(layout: TrainLayout) -> tuple[int, int]:
    """Ranks that share the optimizer states of one (dense, expert) slice.

    FSDP2, ZeRO-3: the group that shares the weights. Megatron's distributed optimizer, ZeRO-1/2: DP·CP and
    EDP.
    """
    if layout.shards_weights:
        return layout.shard, layout.expert_shard
    return layout.dense_replicas, layout.edp


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
