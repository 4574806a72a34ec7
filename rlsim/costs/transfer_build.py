"""From a system to a `SyncCase`: slices of the layouts, dtype on the wire, links of the pools."""

from __future__ import annotations

from rlsim.costs.transfer_case import Receiver, Side, Source, SyncCase
from rlsim.costs.transfer_methods import Method, method_of
from rlsim.dtypes import BYTES
from rlsim.layout import TrainLayout, sync_bytes, train_params
from rlsim.model import ModelSpec, parameters, tensors
from rlsim.system import Pool, RolloutPart, System


def sync_case(system: System) -> SyncCase:
    """Everything that the strategies need to know of this system's weight sync."""
    method = method_of(system.scenario.framework.name)
    dtype, read = wire_dtype(system, method)
    width = BYTES[dtype]
    total = parameters(system.model)
    sync = system.scenario.weight_sync
    return SyncCase(
        model_bytes=total * width,
        read_bytes=total * BYTES[read] if read else 0.0,
        tensors=len(tensors(system.model)),
        bucket=sync.bucket if "bucket" in sync.model_fields_set else method.bucket,
        colocated=system.colocated,
        oversubscription=system.scenario.cluster.oversubscription,
        source=_source(system, width),
        receivers=tuple(_receiver(system, part, width) for part in system.rollout),
        method=method,
        profile=system.profile,
    )


def wire_dtype(system: System, method: Method) -> tuple[str, str | None]:
    """(dtype on the wire, dtype that the source quantises from or None).

    The scenario's `wire_dtype` if given. Else FP8 when every engine is FP8 and the framework quantises at the
    source; else the stored dtype (FSDP with fp32 storage: 4 bytes) where the framework sends what is stored;
    else bf16.
    """
    stored = (
        "fp32"
        if system.trainer.backend == "fsdp2" and system.scenario.trainer.param_dtype == "fp32"
        else "bf16"
    )
    asked = system.scenario.weight_sync.wire_dtype
    if asked is None:
        quantised = all(part.entry.dtype == "fp8" for part in system.rollout)
        asked = (
            "fp8" if quantised and method.quantise_at_source else stored if method.stored_dtype else "bf16"
        )
    return asked, (stored if asked == "fp8" else None)


def _side(pool: Pool, gpus: int) -> Side:
    return Side(
        gpus=gpus,
        node=max(pool.gpus_per_node, pool.nvlink_domain),
        host_gpus=pool.gpus_per_node,
        nic=pool.nic,
        nvlink=pool.gpu.nvlink_bandwidth,
        hbm=pool.gpu.hbm_bandwidth,
        host_link=pool.gpu.host_link_bandwidth,
    )


def _source(system: System, width: float) -> Source:
    """The trainer: dense parameters replicated over DP·CP, experts over EDP; or all split over the shards."""
    model, layout = system.model, system.trainer
    total = float(parameters(model))
    side = _side(system.trainer_pool, layout.gpus)
    stages = [train_params(model, layout, stage) for stage in range(layout.pp)]
    held = max(rank.dense + rank.expert for rank in stages)
    if layout.backend != "megatron":
        shard = shard_group(layout)
        held = total / shard
        node = min(1.0, side.rails / shard) * total
        return Source(side, held * width, node * width, total / layout.gpus * width, 1.0, shard, shard > 1)
    send = max(r.dense / (layout.dp * layout.cp) + r.expert / layout.edp for r in stages)
    node = max(
        r.dense * min(side.rails, layout.tp) + r.expert * min(side.rails, layout.etp * layout.ep)
        for r in stages
    )
    whole = stage_parameters(model, layout)
    return Source(
        side=side,
        held_gpu=held * width,
        held_node=min(node * max(1, side.rails // (layout.gpus // layout.pp)), total) * width,
        send_gpu=send * width,
        held_by_stage=max(whole) / sum(whole),
        owners=layout.pp * max(layout.tp, layout.etp * layout.ep),
    )


def shard_group(layout: TrainLayout) -> int:
    """Ranks that hold one copy of the parameters together: the FSDP / ZeRO-3 group, 1 below ZeRO-3."""
    if layout.backend == "zero" and layout.zero_stage < 3:
        return 1
    return layout.shard


def stage_parameters(model: ModelSpec, layout: TrainLayout) -> list[float]:
    """Parameters of every pipeline stage, all its ranks together (replicas once)."""
    ranks = [train_params(model, layout, stage) for stage in range(layout.pp)]
    return [r.dense * layout.tp + r.expert * layout.etp * layout.ep for r in ranks]


def _receiver(system: System, part: RolloutPart, width: float) -> Receiver:
    """Engines of one kind. A node needs the whole model, or its share when one engine spans several nodes."""
    layout = part.layout
    needed = sync_bytes(system.model, system.trainer, layout, width)
    side = _side(part.pool, layout.engines * layout.gpus_per_engine)
    share = min(1.0, side.node / layout.gpus_per_engine)
    experts = system.model.experts
    count = len(tensors(system.model))
    routed = 0 if experts is None else sum(t.expert >= 0 for t in tensors(system.model))
    return Receiver(
        side=side,
        engines=layout.engines,
        gpus_per_engine=layout.gpus_per_engine,
        recv_gpu=needed.per_engine_gpu_max,
        recv_node=max(needed.per_engine_gpu_max, share * needed.total_unique),
        engine_bytes=needed.per_engine_total,
        tensors_gpu=((count - routed) + routed / layout.moe_ep) / layout.pp,
    )
