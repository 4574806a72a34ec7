"""Exact bytes of weights per rank, and what a weight sync has to deliver, from the slices that ranks hold."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import lru_cache
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from rlsim.grids import EngineLayout, TrainLayout
from rlsim.model import ModelSpec, parameters
from rlsim.shards import (
    Box,
    Grid,
    Ints,
    WeightClass,
    common_layers,
    engine_box,
    engine_grid,
    layer_count,
    overlap,
    train_box,
    train_grid,
    weight_classes,
)


class RankParams(NamedTuple):
    """Parameters on one rank's TP·PP (dense) and ETP·EP·PP (expert) slice, counted before FSDP shards them."""

    dense: int
    expert: int


@dataclass(frozen=True)
class SyncBytes:
    """One weight sync: all in bytes as on the wire, every engine needing a whole copy.

    total_unique      the model once
    tensors           tensors of the checkpoint
    source_gpu_max    held by the busiest trainer GPU
    source_node_max   distinct bytes held by the fullest trainer node
    source_send_max   leave the busiest trainer GPU for one copy, its replicas sharing the work
    source_stage_share  share of the model on the heaviest pipeline stage
    source_owners     ranks that hold one copy together
    per_engine_gpu_max  needed by the busiest engine GPU
    per_engine_node_max distinct bytes needed by the neediest node of engines
    per_engine_total  needed by all GPUs of one engine, copies counted for each
    engine_tensors_max  tensors of which one engine GPU keeps a slice
    missing_gpu_max, missing_node_max, missing_engine_max   the same without what already lies on that GPU
                                                            (GPU and
                      engine) or node; equal to the need unless trainer and engines share the GPUs
    """

    total_unique: float
    tensors: int
    source_gpu_max: float
    source_node_max: float
    source_send_max: float
    source_stage_share: float
    source_owners: int
    per_engine_gpu_max: float
    per_engine_node_max: float
    per_engine_total: float
    engine_tensors_max: int
    missing_gpu_max: float
    missing_node_max: float
    missing_engine_max: float


# Per rank ----------


@lru_cache(maxsize=4096)
def train_params(m: ModelSpec, layout: TrainLayout, stage: int) -> RankParams:
    """Parameters of one rank of a pipeline stage, without vocabulary padding.

    Norms, routers and MLA's down-projections count whole on every TP rank. The embedding stands on stage 0,
    the LM head (or the copy of a tied embedding, when pp > 1) and the final norm on the last.
    """
    # A rank's q, k, v together are 1/TP of the fused matrix on every rank, so rank 0 stands for all.
    zero = np.zeros(1, dtype=np.int64)
    grid = Grid(zero, zero + stage, zero, zero, zero, zero, zero, zero)
    whole = unsharded(layout)
    counts = {"dense": 0, "expert": 0}
    for cls in weight_classes(m):
        volume = int(train_box(cls, whole, grid, m.attention).volume[0])
        times = int(layer_count(cls, layout.stages, m)[stage])
        counts["expert" if cls.part == "expert" else "dense"] += volume * times
    return RankParams(**counts)


def train_rank_bytes(m: ModelSpec, layout: TrainLayout, dtype_bytes: float = 2.0) -> float:
    """Bytes of weights on the fullest trainer rank, FSDP2 and ZeRO-3 shards counted as shards."""
    grid = train_grid(layout)
    held = sum(
        (
            train_box(cls, layout, grid, m.attention).volume
            * layer_count(cls, layout.stages, m)[grid.stage]
            * cls.element_bytes(dtype_bytes)
            for cls in weight_classes(m)
        ),
        np.zeros(layout.gpus),
    )
    return float(np.max(held))


def engine_rank_bytes(m: ModelSpec, layout: EngineLayout, dtype_bytes: float = 2.0) -> tuple[float, ...]:
    """Bytes of weights on the fullest rank of each pipeline stage of an engine.

    KV heads beyond nkv ranks, DP-attention copies, whole MLA down-projections, norms and routers are counted
    on each rank; fp8 with its block scales, embedding, head, norms and router in bf16. 70B in bf16 at TP 8:
    17.6 GB.
    """
    grid = engine_grid(layout, engines=1)
    held = np.zeros(layout.gpus_per_engine)
    for cls in weight_classes(m):
        volume = engine_box(cls, layout, grid, m.attention).volume
        held += volume * layer_count(cls, layout.stages, m)[grid.stage] * cls.element_bytes(dtype_bytes)
    return tuple(float(stage.max()) for stage in held.reshape(layout.pp, -1))


def absorbed_bytes(m: ModelSpec, layout: EngineLayout) -> tuple[float, ...]:
    """MLA engines keep kv_b a second time, in bf16 and absorbed form for decode: bytes per rank of each
    stage.

    2·r_kv·nh/attn_tp·(d_nope + d_v) per layer.
    """
    a = m.attention
    if a.kind != "mla":
        return (0.0,) * layout.pp
    layer = 2.0 * a.kv_lora_rank * a.heads / layout.attn_tp * (a.qk_nope_dim + a.v_head_dim)
    return tuple(layer * len(stage) for stage in layout.stages)


def unsharded(layout: TrainLayout) -> TrainLayout:
    """The layout without the shards of FSDP2 and ZeRO-3: what a rank's slice is before they cut it."""
    return replace(layout, shard=1) if layout.backend == "fsdp2" else replace(layout, zero_stage=1)


# Weight sync ----------


@lru_cache(maxsize=256)
def sync_bytes(
    m: ModelSpec,
    train: TrainLayout,
    engine: EngineLayout,
    wire_dtype_bytes: float = 2.0,
    colocated: bool = False,
    first_gpu: int = 0,
) -> SyncBytes:
    """What one sync moves from this trainer to these engines; `first_gpu`: the engines' first GPU when co-located."""
    source, target = train_grid(train), engine_grid(engine, first_gpu=first_gpu)
    held, send = np.zeros(train.gpus), np.zeros(train.gpus)
    need, have = np.zeros(engine.gpus), np.zeros(engine.gpus)
    kept = np.zeros(engine.gpus, dtype=np.int64)
    held_node = np.zeros(int(source.node[-1]) + 1)
    need_node, have_node = np.zeros(int(target.node[-1]) + 1), np.zeros(int(target.node[-1]) + 1)
    stage_bytes = np.zeros(train.pp)
    for cls in weight_classes(m):
        element = cls.element_bytes(wire_dtype_bytes)
        src, dst = train_box(cls, train, source, m.attention), engine_box(cls, engine, target, m.attention)
        src_layers = layer_count(cls, train.stages, m)
        dst_layers = layer_count(cls, engine.stages, m)
        src_bytes = src.volume * src_layers[source.stage] * element
        dst_bytes = dst.volume * dst_layers[target.stage] * element
        held += src_bytes
        need += dst_bytes
        kept += (dst.volume > 0) * dst_layers[target.stage] * (dst.expert_hi - dst.expert_lo)
        stage_bytes += cls.size * src_layers * element
        send += src_bytes / _copies(_unit(cls, src, source))
        src_first, dst_first = _first_on_node(cls, src, source), _first_on_node(cls, dst, target)
        np.add.at(held_node, source.node[src_first], src_bytes[src_first])
        np.add.at(need_node, target.node[dst_first], dst_bytes[dst_first])
        if colocated:
            common = common_layers(cls, train.stages, engine.stages, m)
            rank = np.arange(engine.gpus) + first_gpu
            have += overlap(src.take(rank), dst) * common[source.stage[rank], target.stage] * element
            pairs = _pairs(source.node[src_first], target.node[dst_first])
            i, j = src_first[pairs[0]], dst_first[pairs[1]]
            shared = overlap(src.take(i), dst.take(j)) * common[source.stage[i], target.stage[j]] * element
            np.add.at(have_node, target.node[j], shared)
    total = _total_bytes(m, wire_dtype_bytes)
    missing = np.maximum(need - have, 0)
    return SyncBytes(
        total_unique=total,
        tensors=_tensor_count(m),
        source_gpu_max=float(held.max()),
        source_node_max=min(float(held_node.max()), total),
        source_send_max=float(send.max()),
        source_stage_share=float(stage_bytes.max() / total),
        source_owners=owners(train),
        per_engine_gpu_max=float(need.max()),
        per_engine_node_max=float(need_node.max()),
        per_engine_total=float(need[: engine.gpus_per_engine].sum()),
        engine_tensors_max=int(kept.max()),
        missing_gpu_max=float(missing.max()),
        missing_node_max=float(np.maximum(need_node - have_node, 0).max()),
        missing_engine_max=float(missing.reshape(engine.engines, -1).sum(axis=1).max()),
    )


def owners(layout: TrainLayout) -> int:
    """Ranks that hold one copy together: pp·max(tp, etp·ep), each times its shard group (FSDP2, ZeRO-3)."""
    dense = layout.tp * (layout.shard if layout.shards_weights else 1)
    expert = layout.etp * layout.ep * (layout.expert_shard if layout.shards_weights else 1)
    return layout.pp * max(dense, expert)


def _once(cls: WeightClass) -> bool:
    return cls.place in ("first", "last")


def _unit(cls: WeightClass, box: Box, grid: Grid) -> Ints:
    """Number of a rank's slice: equal where slice and layers are; −1 where a rank holds nothing of the class."""
    stage = np.zeros_like(grid.stage) if _once(cls) else grid.stage
    key = box.key(cls)
    return np.where(key < 0, -1, key * (int(grid.stage.max()) + 1) + stage)


def _copies(unit: Ints) -> Ints:
    """How many ranks hold each rank's slice."""
    _, inverse, counts = np.unique(unit, return_inverse=True, return_counts=True)
    copies: Ints = counts[inverse]
    return copies


def _first_on_node(cls: WeightClass, box: Box, grid: Grid) -> NDArray[np.intp]:
    """Ranks that are the first of their node with their slice."""
    unit = _unit(cls, box, grid)
    held = np.flatnonzero(unit >= 0)
    order = held[np.lexsort((unit[held], grid.node[held]))]
    new = np.ones(len(order), dtype=bool)
    new[1:] = (unit[order][1:] != unit[order][:-1]) | (grid.node[order][1:] != grid.node[order][:-1])
    return order[new]


def _pairs(a: Ints, b: Ints) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
    """Indices (i, j) of all pairs with a[i] = b[j], both ascending."""
    start, end = np.searchsorted(a, b, "left"), np.searchsorted(a, b, "right")
    counts = end - start
    j = np.repeat(np.arange(len(b)), counts)
    i = np.arange(len(j)) - np.repeat(np.cumsum(counts) - counts, counts) + np.repeat(start, counts)
    return i, j


def _total_bytes(m: ModelSpec, dtype_bytes: float) -> float:
    if dtype_bytes >= 2:
        return parameters(m) * dtype_bytes
    return sum(cls.size * _layers(cls, m) * cls.element_bytes(dtype_bytes) for cls in weight_classes(m))


def _layers(cls: WeightClass, m: ModelSpec) -> int:
    return 1 if _once(cls) else sum(layer.moe == (cls.place == "moe") for layer in m.layers)


def _tensor_count(m: ModelSpec) -> int:
    return sum(cls.experts * _layers(cls, m) for cls in weight_classes(m))
