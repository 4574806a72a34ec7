"""Which rectangle of which weight tensor a rank holds, for all ranks of a trainer or of the engines at once.

Tensors of the same shape and rule in the layers of one kind are one `WeightClass`; a rank's slice of it is a
box (experts × rows × columns) with integer bounds in the Hugging Face tensor. Rules: Megatron-Core (groups of
query and KV heads interleaved, vocabulary padded to 128·TP), FSDP2 (TP first, then dim 0 in chunks of
ceil(rows/N)), ZeRO-3 (flat, here rounded to whole rows), vLLM and SGLang (q, k, v split apart, KV heads
copied beyond nkv ranks, vocabulary padded to 64, experts dealt in runs).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Literal, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from rlsim.grids import EngineLayout, Stages, TrainLayout
from rlsim.model import Attention, ModelSpec, TensorSpec, tensors

Ints: TypeAlias = NDArray[np.int64]
Rule: TypeAlias = Literal["whole", "rows", "cols", "q", "k", "v", "vocab"]
Place: TypeAlias = Literal["first", "last", "dense", "moe"]

FP8_SCALE = 4 / 16384
"""Bytes of scales per fp8 weight: one fp32 for a block of 128 × 128."""


class WeightClass(NamedTuple):
    """Equal tensors: `experts` of them (1 for all but experts) in each layer of the place.

    rule    what tensor parallelism cuts: rows (output), cols (input), heads, vocabulary rows, or nothing
    part    as in `TensorSpec`
    place   layers of that kind, or the first or last pipeline stage
    """

    name: str
    part: str
    place: Place
    rule: Rule
    experts: int
    rows: int
    cols: int

    @property
    def size(self) -> int:
        """Elements in one layer."""
        return self.experts * self.rows * self.cols

    def element_bytes(self, dtype_bytes: float) -> float:
        """Bytes per element. fp8 (1 byte) is for matrices of attention, MLP and experts, plus their block
        scales; embedding, LM head, norms, router and biases stay in bf16.
        """
        if dtype_bytes >= 2:
            return dtype_bytes
        quantised = self.part in ("attention", "mlp", "expert", "shared_expert") and self.cols > 1
        return dtype_bytes + FP8_SCALE if quantised and self.rows > 1 else 2.0


class Box(NamedTuple):
    """Bounds [lo, hi) of every rank's slice, each int64[ranks]."""

    expert_lo: Ints
    expert_hi: Ints
    row_lo: Ints
    row_hi: Ints
    col_lo: Ints
    col_hi: Ints

    @property
    def volume(self) -> Ints:
        """Elements per rank, int64[ranks]."""
        experts, rows = self.expert_hi - self.expert_lo, self.row_hi - self.row_lo
        volume: Ints = experts * rows * (self.col_hi - self.col_lo)
        return volume

    def key(self, cls: WeightClass) -> Ints:
        """Equal for ranks with the same slice, −1 for empty ones. Slices of one class are equal or disjoint."""
        key = (self.expert_lo * (cls.rows + 1) + self.row_lo) * (cls.cols + 1) + self.col_lo
        return np.where(self.volume > 0, key, -1)

    def take(self, index: NDArray[np.intp]) -> Box:
        return Box(*(bound[index] for bound in self))


def overlap(a: Box, b: Box) -> Ints:
    """Elements that two slices share, elementwise with broadcasting."""
    shared: Ints = np.ones(1, dtype=np.int64)
    for axis in (0, 2, 4):
        low, high = np.maximum(a[axis], b[axis]), np.minimum(a[axis + 1], b[axis + 1])
        shared = shared * np.maximum(high - low, 0)
    return shared


# Classes ----------


@lru_cache(maxsize=16)
def weight_classes(m: ModelSpec) -> tuple[WeightClass, ...]:
    """The classes of a model; with the layers counted (`layer_count`) their sizes sum to `parameters(m)`."""
    kinds = tuple(sorted({replace(layer, window=None) for layer in m.layers}, key=lambda layer: layer.moe))
    merged: dict[tuple[str, Place], WeightClass] = {}
    for tensor in tensors(replace(m, layers=kinds)):
        cls = _weight_class(m, tensor, moe=tensor.layer >= 0 and kinds[tensor.layer].moe)
        known = merged.get((cls.name, cls.place))
        merged[cls.name, cls.place] = cls if known is None else known._replace(experts=known.experts + 1)
    return tuple(merged.values())


def _weight_class(m: ModelSpec, tensor: TensorSpec, moe: bool) -> WeightClass:
    place: Place = "moe" if moe else "dense"
    if tensor.layer < 0:
        place = "first" if tensor.part == "embed" else "last"
    name = tensor.name.removeprefix(f"model.layers.{tensor.layer}.")
    if tensor.expert >= 0:
        name = name.replace(f".{tensor.expert}.", ".*.").replace(f"[{tensor.expert}]", "[*]")
    rows, cols = tensor.shape if len(tensor.shape) == 2 else (tensor.shape[0], 1)
    return WeightClass(name, tensor.part, place, split_rule(m, tensor), 1, rows, cols)


def split_rule(m: ModelSpec, tensor: TensorSpec) -> Rule:
    """What tensor parallelism cuts of a tensor.

    MLA's down-projections, norms, routers and output biases are whole on every rank. gpt-oss stores its
    experts transposed, [in, out].
    """
    if tensor.part in ("norm", "router"):
        return "whole"
    if tensor.part in ("embed", "head"):
        return "vocab"
    name = tensor.name
    if "gate_up_proj" in name:
        return "rows" if name.endswith(f"bias[{tensor.expert}]") else "cols"
    if "down_proj_bias" in name or name.endswith(("o_proj.bias", "shared_expert_gate.weight")):
        return "whole"
    if m.attention.kind == "mla" and ("q_a_proj" in name or "kv_a_proj" in name):
        return "whole"
    if m.attention.kind == "gqa":
        heads: dict[str, Rule] = {"q_proj": "q", "k_proj": "k", "v_proj": "v"}
        for projection, rule in heads.items():
            if f"self_attn.{projection}." in name:
                return rule
    if ".w2." in name or "o_proj" in name or "down_proj" in name:
        return "rows" if m.architecture == "GptOssForCausalLM" and tensor.expert >= 0 else "cols"
    return "rows"


def layer_count(cls: WeightClass, stages: Stages, m: ModelSpec) -> Ints:
    """How often a class stands on each stage, int64[stages]. A tied LM head is a copy of the embedding on the last."""
    count = np.zeros(len(stages), dtype=np.int64)
    if cls.place == "first":
        count[0] = 1
        if m.tied:
            count[-1] = 1
    elif cls.place == "last":
        count[-1] = 1
    else:
        moe = cls.place == "moe"
        count[:] = [sum(m.layers[i].moe == moe for i in stage) for stage in stages]
    return count


def common_layers(cls: WeightClass, a: Stages, b: Stages, m: ModelSpec) -> Ints:
    """How often a class stands on a stage of `a` and on a stage of `b` in the same layer, int64[len(a), len(b)]."""
    if cls.place in ("first", "last"):
        return np.outer(layer_count(cls, a, m), layer_count(cls, b, m))
    moe = cls.place == "moe"
    where_b = {layer: j for j, stage in enumerate(b) for layer in stage}
    common = np.zeros((len(a), len(b)), dtype=np.int64)
    for i, stage in enumerate(a):
        for layer in stage:
            if m.layers[layer].moe == moe:
                common[i, where_b[layer]] += 1
    return common


# Grids ----------


@dataclass(frozen=True)
class Grid:
    """Coordinates of ranks, each int64[ranks]; tp and its size differ for dense weights, experts and the LM
    head.

    shard: index within the group that shares weights (FSDP2, ZeRO-3), 0 elsewhere.
    """

    node: Ints
    stage: Ints
    tp: Ints
    etp: Ints
    ep: Ints
    head: Ints
    shard: Ints
    expert_shard: Ints


def train_grid(layout: TrainLayout) -> Grid:
    """All trainer ranks. Dense: tp + TP·(rest + …·pp); experts: etp + ETP·(ep + EP·(edp + EDP·pp)), as
    Megatron numbers them; FSDP2 and ZeRO likewise with the shard group next to TP and replicas outside.
    """
    rank = np.arange(layout.gpus, dtype=np.int64)
    per_stage = layout.gpus // layout.pp
    within = rank % per_stage
    zero = np.zeros_like(rank)
    outside = within // (layout.etp * layout.ep)
    return Grid(
        node=rank // layout.gpus_per_node,
        stage=rank // per_stage,
        tp=within % layout.tp,
        etp=within % layout.etp,
        ep=within // layout.etp % layout.ep,
        head=within % layout.tp,
        shard=within // layout.tp % layout.shard if layout.shards_weights else zero,
        expert_shard=outside % layout.expert_shard if layout.shards_weights else zero,
    )


def engine_grid(layout: EngineLayout, engines: int | None = None, first_gpu: int = 0) -> Grid:
    """Ranks of `engines` instances (default all), the first on GPU `first_gpu` of the cluster.

    Within a stage attn_tp is innermost; experts: moe_tp innermost, moe_ep outside.
    """
    count = layout.engines if engines is None else engines
    rank = np.arange(count * layout.gpus_per_engine, dtype=np.int64)
    width = layout.attn_tp * layout.attn_dp
    within = rank % width
    zero = np.zeros_like(rank)
    return Grid(
        node=(rank + first_gpu) // layout.gpus_per_node,
        stage=rank % layout.gpus_per_engine // width,
        tp=within % layout.attn_tp,
        etp=within % layout.moe_tp,
        ep=within // layout.moe_tp,
        head=within % layout.head_tp,
        shard=zero,
        expert_shard=zero,
    )


# Boxes ----------


def train_box(cls: WeightClass, layout: TrainLayout, grid: Grid, a: Attention) -> Box:
    """Slices of the trainer's ranks."""
    if cls.part == "expert":
        box = _cut(cls, grid.etp, layout.etp, _deal(grid.ep, layout.ep, cls.experts))
        return _shard(box, grid.expert_shard, layout.expert_shard, layout) if layout.shards_weights else box
    if layout.backend == "megatron" and cls.rule in ("q", "k", "v"):
        box = _interleaved(cls, grid.tp, layout.tp, a)
    else:
        unit = 128 * layout.tp if layout.backend == "megatron" else layout.tp
        box = _cut(cls, grid.tp, layout.tp, _deal(np.zeros_like(grid.tp), 1, cls.experts), unit)
    return _shard(box, grid.shard, layout.shard, layout) if layout.shards_weights else box


def engine_box(cls: WeightClass, layout: EngineLayout, grid: Grid, a: Attention) -> Box:
    """Slices of the engines' ranks."""
    if cls.part == "expert":
        return _cut(cls, grid.etp, layout.moe_tp, _deal(grid.ep, layout.moe_ep, cls.experts))
    whole = _deal(np.zeros_like(grid.tp), 1, cls.experts)
    if cls.part == "head":
        return _cut(cls, grid.head, layout.head_tp, whole, 64)
    if cls.rule in ("k", "v") and layout.attn_tp > a.kv_heads:
        return _cut(cls, grid.tp // (layout.attn_tp // a.kv_heads), a.kv_heads, whole)
    return _cut(cls, grid.tp, layout.attn_tp, whole, 64)


def _deal(rank: Ints, ranks: int, count: int) -> tuple[Ints, Ints]:
    """Runs of experts: rank e of n holds E div n, the first E mod n ranks one more (10 over 4: 3, 3, 2, 2)."""
    base, more = divmod(count, ranks)
    low = rank * base + np.minimum(rank, more)
    return low, low + base + (rank < more)


def _cut(cls: WeightClass, t: Ints, size: int, experts: tuple[Ints, Ints], vocab_unit: int = 1) -> Box:
    """Slice t of `size` along the class's axis; the vocabulary is padded to a multiple of `vocab_unit` first."""
    zero = np.zeros_like(t)
    row_lo, row_hi, col_lo, col_hi = zero, zero + cls.rows, zero, zero + cls.cols
    if cls.rule == "cols":
        col_lo, col_hi = t * cls.cols // size, (t + 1) * cls.cols // size
    elif cls.rule == "vocab":
        padded = -(-cls.rows // vocab_unit) * vocab_unit
        step = -(-padded // size)
        row_lo, row_hi = np.minimum(t * step, cls.rows), np.minimum((t + 1) * step, cls.rows)
    elif cls.rule != "whole":
        row_lo, row_hi = t * cls.rows // size, (t + 1) * cls.rows // size
    return Box(*experts, row_lo, row_hi, col_lo, col_hi)


def _interleaved(cls: WeightClass, t: Ints, size: int, a: Attention) -> Box:
    """Rows of q, k or v in slice t of Megatron's fused QKV, whose groups are [q heads | k | v] one after
    another.

    With nkv < TP a cut goes through a group: rank t holds rows [tR/T, (t+1)R/T), R = (nq + 2·nkv)·d.
    """
    q = a.heads // a.kv_heads * a.head_dim
    start, width = {"q": (0, q), "k": (q, a.head_dim), "v": (q + a.head_dim, a.v_head_dim)}[cls.rule]
    block = q + a.head_dim + a.v_head_dim
    total = a.kv_heads * block

    def before(row: Ints) -> Ints:
        rows: Ints = row // block * width + np.clip(row % block - start, 0, width)
        return rows

    zero = np.zeros_like(t)
    low, high = before(t * total // size), before((t + 1) * total // size)
    return Box(zero, zero + 1, low, high, zero, zero + cls.cols)


def _shard(box: Box, j: Ints, n: int, layout: TrainLayout) -> Box:
    """Shard j of n of the rows: chunks of ceil(rows/n) (FSDP2), or equal shares (ZeRO-3)."""
    rows = box.row_hi - box.row_lo
    if layout.backend == "zero":
        low, high = rows * j // n, rows * (j + 1) // n
    else:
        step = -(-rows // n)
        low, high = np.minimum(j * step, rows), np.minimum((j + 1) * step, rows)
    return box._replace(row_lo=box.row_lo + low, row_hi=box.row_lo + high)
