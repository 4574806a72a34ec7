"""Data parallelism: gradients and weights between the ranks that hold the same slice.

Megatron and ZeRO-1/2 reduce gradients and gather weights once per update; FSDP2 and ZeRO-3 gather every layer in every
micro-batch. Only what compute does not hide counts.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from rlsim.architecture import Layer
from rlsim.costs.network import Group
from rlsim.costs.training_case import ACTIVATION, Case, Floats
from rlsim.costs.training_layer import adapter_slices, held_parameters
from rlsim.lora import adapter_params


@dataclass(frozen=True)
class LayerTraffic:
    """Seconds of one layer's weight traffic in one micro-batch (FSDP2, ZeRO-3); zeros for other backends.

    `gather`: all-gather of its weights; `reduce`: reduce-scatter of its gradients, with HSDP's all-reduce.
    """

    gather: float
    reduce: float
    source: str = "scaled"


def layer_traffic(case: Case, layer: Layer) -> LayerTraffic:
    """All-gather in bf16, reduce-scatter in the gradient's dtype; each over the shard group with all its NICs.

    Without EP the experts are gathered like any weight; with EP over the ranks that share a slice of them. HSDP
    all-reduces each rank's shard of the gradients over the replicas of that shard.
    """
    if not case.layout.shards_weights:
        return LayerTraffic(0.0, 0.0)
    traffic = unit_traffic(case, *held_parameters(case, layer))
    if case.lora is None:
        return traffic
    r = case.lora.rank
    sizes = {"dense": 0.0, "expert": 0.0}
    for one in adapter_slices(case, layer):
        part = "expert" if one.cls.part == "expert" else "dense"
        sizes[part] += one.experts * r * (one.rows + one.cols)
    return replace(traffic, reduce=_reduce(case, sizes["dense"], sizes["expert"]))


def end_traffic(case: Case) -> tuple[LayerTraffic, LayerTraffic]:
    """Traffic of the embedding and of the head in one micro-batch.

    They are gathered before anything can be computed and stay so until the backward (FSDP2 does not reshard its root;
    DeepSpeed keeps what is used again soon): one gather a micro-batch. Their gradients are reduced after everything.
    """
    if not case.layout.shards_weights:
        return LayerTraffic(0.0, 0.0), LayerTraffic(0.0, 0.0)
    embedding, head = end_parameters(case)
    return unit_traffic(case, embedding, 0.0), unit_traffic(case, head, 0.0)


def unit_traffic(case: Case, dense: float, experts: float) -> LayerTraffic:
    """Traffic of one unit that is gathered and reduced together; its weights on one TP and EP slice."""
    gather = _seconds(case, "all_gather", dense * ACTIVATION, case.dense_group)
    gather += _seconds(case, "all_gather", experts * ACTIVATION, case.expert_group)
    if case.frozen:
        return LayerTraffic(gather, 0.0)
    return LayerTraffic(gather, _reduce(case, dense, experts))


def _reduce(case: Case, dense: float, experts: float) -> float:
    """Seconds to reduce the gradients of so many trained weights of one TP and EP slice."""
    g, layout = case.gradient_bytes, case.layout
    reduce = _seconds(case, "reduce_scatter", dense * g, case.dense_group)
    reduce += _seconds(case, "reduce_scatter", experts * g, case.expert_group)
    across = case.links.group(layout.replicas, layout.tp * layout.shard)
    reduce += _seconds(case, "all_reduce", dense * g / layout.shard, across)
    slices = layout.etp * layout.ep * layout.expert_shard
    across = case.links.group(layout.edp // layout.expert_shard, slices)
    reduce += _seconds(case, "all_reduce", experts * g / layout.expert_shard, across)
    return reduce


def once_per_update(case: Case, traffic: tuple[float, float], beside: tuple[float, float], micro_batches: int) -> float:
    """Exposed seconds of (reduce, gather) in one update, beside the (last backward, first forward).

    `dp_overlap` of what could hide does: the option that reduces while the backward runs is off by default in some
    frameworks. ZeRO-2 keeps no whole gradient and so reduces in every micro-batch.
    """
    both, cover = np.array(traffic), np.array(beside)
    overlap = case.profile.value("dp_overlap")
    cost = overlap * exposed(case, both, cover) + (1 - overlap) * both
    turns = micro_batches if case.layout.backend == "zero" and case.layout.zero_stage == 2 else 1
    return float(turns * cost[0] + cost[1])


def exposed(case: Case, traffic: Floats, beside: Floats) -> Floats:
    """What traffic beside compute costs: the excess, or what its kernels take from compute while it is hidden.

    max(traffic - beside, share·min(traffic, beside)): NCCL's channels hold some of the GPU's multiprocessors.
    """
    share = case.profile.value("overlap_sm_share")
    return np.maximum(traffic - beside, share * np.minimum(traffic, beside))


def _seconds(case: Case, op: str, size: float, group: Group) -> float:
    if size <= 0 or group.size == 1:
        return 0.0
    return float(case.links.collective(op, size, group)[0])  # type: ignore[arg-type]


def stage_parameters(case: Case, stage: int) -> tuple[float, float]:
    """(dense, expert) weights on one rank of a pipeline stage, TP and EP slices, embedding and head included."""
    dense = experts = 0.0
    kinds, counts = case.kinds()
    for kind, count in zip(kinds, counts[stage].tolist(), strict=True):
        d, e = held_parameters(case, kind)
        dense, experts = dense + count * d, experts + count * e
    embedding, head = end_parameters(case)
    return dense + embedding * (stage == 0) + head * (stage == case.layout.pp - 1), experts


def trained_parameters(case: Case, stage: int) -> tuple[float, float]:
    """Of these, what has gradients and optimizer states: all, or the adapters."""
    if case.lora is None:
        return stage_parameters(case, stage)
    held = adapter_params(case.model, case.layout, stage, case.lora)
    return float(held.dense), float(held.expert)


def end_parameters(case: Case) -> tuple[float, float]:
    """Weights of one rank's TP slice of (embedding, LM head): V·H/tp each; a tied head is a copy only on its own stage.

    FSDP2's root unit, and what ZeRO-3 gathers outside the layers.
    """
    m, tp = case.model, case.layout.tp
    table = m.vocab * m.hidden / tp
    return table, 0.0 if m.tied and case.layout.pp == 1 else m.head_width * m.hidden / tp


def update_traffic(case: Case, stage: int) -> tuple[float, float]:
    """(reduce, gather) seconds of a stage's once-per-update traffic: Megatron's distributed optimizer, ZeRO-1/2.

    Reduce-scatter of gradients in their dtype, all-gather of bf16 weights; experts over the expert-data-parallel group.
    """
    if case.layout.shards_weights:
        return 0.0, 0.0
    dense, experts = trained_parameters(case, stage)
    reduce = gather = 0.0
    for held, group in ((dense, case.dense_group), (experts, case.expert_group)):
        reduce += _seconds(case, "reduce_scatter", held * case.gradient_bytes, group)
        gather += _seconds(case, "all_gather", held * ACTIVATION, group)
    return reduce, gather
