"""From a system to a `SyncCase`: slices of the layouts, dtype on the wire, links of the pools."""

from __future__ import annotations

import numpy as np

from rlsim.costs.transfer_adapter import adapter_bytes
from rlsim.costs.transfer_case import Crossing, PlanBytes, Receiver, Side, Source, SyncCase
from rlsim.costs.transfer_methods import Method, method_of
from rlsim.dtypes import BYTES
from rlsim.lora import engine_keeps_base
from rlsim.model import ModelSpec, expert_parameters, mlp_parameters, parameters
from rlsim.reshard.totals import plan_totals
from rlsim.slices import SyncBytes, sync_bytes
from rlsim.sync_settings import sync_bucket
from rlsim.system import Pool, RolloutPart, System


def sync_case(system: System, framework: str | None = None, planned: bool = True) -> SyncCase:
    """Everything that the strategies need to know of this system's weight sync, done as a framework does it.

    `framework`: another than the scenario's, whose method, dtype on the wire and bucket are taken. `planned`: with the
    point-to-point plan, which takes most of the time and only p2p looks at.
    """
    name = framework if framework is not None else system.scenario.framework.name
    method = method_of(name)
    dtype, read = wire_dtype(system, method)
    lora = system.scenario.model.lora
    plan = None
    if lora is not None and engine_keeps_base(system.scenario):
        read = None
        exact = tuple(adapter_bytes(system, part, lora, max(2.0, BYTES[dtype])) for part in system.rollout)
    else:
        exact = slices(system, BYTES[dtype])
        plan = plan_bytes(system, BYTES[dtype]) if planned else None
    return SyncCase(
        model_bytes=exact[0].total_unique,
        read_bytes=parameters(system.model) * BYTES[read] if read else 0.0,
        tensors=exact[0].tensors,
        bucket=sync_bucket(system.scenario, name),
        colocated=system.colocated,
        oversubscription=system.scenario.cluster.oversubscription,
        source=_source(system, exact[0]),
        receivers=tuple(
            _receiver(system, part, bytes_, dtype) for part, bytes_ in zip(system.rollout, exact, strict=True)
        ),
        method=method,
        profile=system.profile,
        mlp_share=mlp_share(system.model),
        plan=plan,
        width=max(1.0, BYTES[dtype]),
        changed=None if engine_keeps_base(system.scenario) else system.scenario.weight_sync.changed,
        grace=system.scenario.weight_sync.pause if system.scenario.schedule == "async" else 0.0,
        rebuild=system.scenario.weight_sync.rebuild_group,
        encoding=system.scenario.weight_sync.encoding,
    )


def plan_bytes(system: System, width: float) -> PlanBytes:
    """The plan's load on the busiest GPU's links; what several kinds of engines take from one trainer GPU adds up."""
    found, first = [], 0 if system.colocated else system.trainer.gpus
    for part in system.rollout:
        found.append(plan_totals(system.model, system.trainer, part.layout, width, first))
        first += part.layout.gpus
    slowest = min(part.pool.nic for part in system.rollout)
    into = zip(found, (slowest / part.pool.nic for part in system.rollout), strict=True)
    return PlanBytes(
        out_nic=float(np.sum([t.out_nic for t in found], axis=0).max()),
        out_nvlink=float(np.sum([t.out_nvlink for t in found], axis=0).max()),
        in_nic=max(float(t.in_nic.max()) * share for t, share in into),
        in_nvlink=max(float(t.in_nvlink.max()) for t in found),
    )


def mlp_share(m: ModelSpec) -> float:
    """Share of the parameters in gate, up and down projections of dense MLPs and routed experts."""
    experts = m.experts.count * expert_parameters(m) if m.experts is not None else 0
    dense = (m.num_layers - m.moe_layers) * mlp_parameters(m)
    return (dense + m.moe_layers * experts) / parameters(m)


def wire_dtype(system: System, method: Method) -> tuple[str, str | None]:
    """(dtype on the wire, dtype that the source quantises from or None).

    The scenario's `wire_dtype` if given. Else FP8 when every engine is FP8 and the framework quantises at the
    source; else the stored dtype (FSDP with fp32 storage: 4 bytes) where the framework sends what is stored;
    else bf16.
    """
    fp32 = system.trainer.backend == "fsdp2" and system.scenario.trainer.param_dtype == "fp32"
    stored = "fp32" if fp32 else "bf16"
    asked = system.scenario.weight_sync.wire_dtype
    if asked is not None:
        dtype: str = asked
    elif method.quantise_at_source and all(part.entry.dtype == "fp8" for part in system.rollout):
        dtype = "fp8"
    else:
        dtype = stored if method.stored_dtype else "bf16"
    return dtype, (stored if dtype == "fp8" else None)


def _source(system: System, bytes_: SyncBytes) -> Source:
    side = side_of(system.trainer_pool, system.trainer.gpus)
    nodes_joined = max(1, side.node // side.host_gpus)
    return Source(
        side=side,
        held_gpu=bytes_.source_gpu_max,
        held_node=min(bytes_.source_node_max * nodes_joined, bytes_.total_unique),
        send_gpu=bytes_.source_send_max,
        held_by_stage=bytes_.source_stage_share,
        owners=bytes_.source_owners,
        element_wise=system.trainer.shards_weights,
    )


def _receiver(system: System, part: RolloutPart, bytes_: SyncBytes, wire: str) -> Receiver:
    layout, adapters = part.layout, engine_keeps_base(system.scenario)
    return Receiver(
        side=side_of(part.pool, layout.gpus),
        engines=layout.engines,
        gpus_per_engine=layout.gpus_per_engine,
        recv_gpu=bytes_.per_engine_gpu_max,
        recv_node=bytes_.per_engine_node_max,
        engine_bytes=bytes_.per_engine_total,
        missing_gpu=bytes_.missing_gpu_max,
        missing_node=bytes_.missing_node_max,
        tensors_gpu=bytes_.engine_tensors_max,
        quantises=part.entry.dtype == "fp8" and wire != "fp8" and not adapters,
        crossing=crossing_between(system, system.trainer_pool, part.pool),
    )


def crossing_between(system: System, sender: Pool, receiver: Pool) -> Crossing | None:
    """The link between two pools, as the scenario has it."""
    for link in system.scenario.cluster.links:
        if {sender.name, receiver.name} == set(link.between):
            return Crossing(receiver.name, link.bandwidth, link.latency)
    return None


def side_of(pool: Pool, gpus: int) -> Side:
    """`gpus` GPUs of a pool as one end of the transfer."""
    return Side(
        gpus=gpus,
        node=max(pool.gpus_per_node, pool.nvlink_domain),
        host_gpus=pool.gpus_per_node,
        nic=pool.nic,
        nvlink=pool.gpu.nvlink_bandwidth,
        hbm=pool.gpu.hbm_bandwidth,
        host_link=pool.gpu.host_link_bandwidth,
    )


def slices(system: System, width: float) -> tuple[SyncBytes, ...]:
    """Exact bytes for every kind of engine; co-located kinds stand one after the other on the shared GPUs."""
    found = []
    first = 0
    for part in system.rollout:
        found.append(sync_bytes(system.model, system.trainer, part.layout, width, system.colocated, first))
        first += part.layout.gpus if system.colocated else 0
    return tuple(found)
