"""The trainer's side: which rectangles of a logical tensor every rank holds, and where in its own tensors.

Megatron-Core (query groups interleaved in `linear_qkv`, `linear_fc1` = [gate; up], experts one by one, MLA projections,
vocabulary padded to 128·TP, tied embeddings copied to the last stage), FSDP2 (TP first, then dim 0 in chunks of
ceil(rows/N)), ZeRO-3 (flat, N equal parts of ceil(elements/N)).
"""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache

import numpy as np

from rlsim.grids import TrainLayout
from rlsim.model import ModelSpec
from rlsim.reshard.naming import megatron_slot
from rlsim.reshard.pieces import Ints, Local, Logical, Pieces, Side, pieces, together
from rlsim.shards import Box, Grid, WeightClass, train_box


def trainer_side(cls: WeightClass, layer: int, m: ModelSpec, layout: TrainLayout) -> Side:
    """One logical tensor of one layer (-1: outside the layers) on the trainer."""
    pattern = _pattern(cls, m, layout)
    per_stage = layout.gpus // layout.pp
    if layer >= 0:
        stage, chunk, local = _position(layout, layer)
        if layout.backend == "megatron":
            model = f"model{chunk}." if layout.vpp > 1 else ""
            prefix = f"{model}decoder.layers.{local}."
        else:
            prefix = f"model.layers.{layer}."
        return Side(pattern.pieces, pattern.ranks + stage * per_stage, _named(prefix, pattern.local))
    first = cls.place == "first"
    ranks = pattern.ranks + (0 if first else (layout.pp - 1) * per_stage)
    if first and m.tied and layout.pp > 1:
        ranks = np.concatenate([pattern.ranks, pattern.ranks + (layout.pp - 1) * per_stage], axis=1)
    return Side(pattern.pieces, ranks, pattern.local)


def _named(prefix: str, local: tuple[Local, ...]) -> tuple[Local, ...]:
    return tuple(tensor._replace(name=prefix + tensor.name) for tensor in local)


@lru_cache(maxsize=512)
def _position(layout: TrainLayout, layer: int) -> tuple[int, int, int]:
    """(stage, virtual chunk, index within the chunk) of a layer."""
    for stage, layers in enumerate(layout.stages):
        if layer in layers:
            index = layers.index(layer)
            runs = [0, *(i for i in range(1, len(layers)) if layers[i] != layers[i - 1] + 1)]
            if layout.vpp > 1 and len(runs) < layout.vpp:  # neighbouring chunks of one run (pp = 1)
                size = len(layers) // layout.vpp
                return stage, index // size, index % size
            chunk = sum(start <= index for start in runs) - 1
            return stage, chunk, index - runs[chunk]
    raise ValueError(f"layer {layer} stands on no stage")


@lru_cache(maxsize=1024)
def _pattern(cls: WeightClass, m: ModelSpec, layout: TrainLayout) -> Side:
    """The side on stage 0, with names relative to the layer."""
    expert = cls.part == "expert"
    grid, ranks = _expert_owners(cls, layout) if expert else _dense_owners(cls, layout)
    box = train_box(cls, layout, grid, m.attention)
    if layout.backend == "megatron":
        if cls.rule in ("q", "k", "v"):
            return _interleaved(cls, m, layout, ranks)
        return _megatron(cls, m, layout, box, ranks)
    if "[*]" in cls.name:
        return _fused_experts(cls, layout, ranks)
    if layout.backend == "zero" and layout.shards_weights:
        return _flat(cls, layout, grid, m, ranks)
    return _rows(cls, box, ranks)


def _dense_owners(cls: WeightClass, layout: TrainLayout) -> tuple[Grid, Ints]:
    """Coordinates of the holders of one copy, and all ranks of stage 0 that hold the same as each."""
    tp = 1 if cls.rule == "whole" else layout.tp
    shard = layout.shard if layout.shards_weights else 1
    replicas = layout.dense_replicas // shard
    t, s = np.arange(tp * shard) % tp, np.arange(tp * shard) // tp
    j = np.arange(replicas)
    if cls.rule == "whole":  # every TP rank has it: further replicas
        u = np.arange(layout.tp)
        inner = (u[:, None] + layout.tp * shard * j[None, :]).ravel()
        ranks = layout.tp * s[:, None] + np.sort(inner)[None, :]
    else:
        ranks = t[:, None] + layout.tp * (s[:, None] + shard * j[None, :])
    zero = np.zeros_like(t)
    return Grid(zero, zero, t, zero, zero, t, s, zero), ranks


def _expert_owners(cls: WeightClass, layout: TrainLayout) -> tuple[Grid, Ints]:
    """The same for experts; what ETP does not cut (biases of their outputs) all its ranks hold."""
    shard = layout.expert_shard if layout.shards_weights else 1
    cut, same = (1, layout.etp) if cls.rule == "whole" else (layout.etp, 1)
    i = np.arange(cut * layout.ep * shard)
    etp, ep, s = i % cut, i // cut % layout.ep, i // (cut * layout.ep)
    outside = layout.gpus // layout.pp // (layout.etp * layout.ep)
    j = np.arange(max(1, outside // shard))
    first = etp[:, None] + layout.etp * (ep[:, None] + layout.ep * (s[:, None] + shard * j[None, :]))
    ranks = (first[:, :, None] + np.arange(same)).reshape(len(i), -1)
    zero = np.zeros_like(i)
    return Grid(zero, zero, zero, etp, ep, zero, zero, s), ranks


def _megatron(cls: WeightClass, m: ModelSpec, layout: TrainLayout, box: Box, ranks: Ints) -> Side:
    """Rows or columns of stacked tensors; routed experts are tensors of their own, numbered locally."""
    slot = megatron_slot(cls, m)
    transposed = "[*]" in cls.name and cls.cols > 1
    height, width = _extent(box, transposed)
    stacked = height * (
        2 if ".linear_fc1." in slot.tensor and "gate_up" not in cls.name and "norm" not in slot.tensor else 1
    )
    if cls.rule == "vocab":
        step = -(-cls.rows // (128 * layout.tp)) * 128
        stacked = np.full_like(height, step)
    owner, expert = _members(cls, box)
    local = expert - box.expert_lo[owner]
    per_owner = int((box.expert_hi - box.expert_lo).max())
    names = [
        Local(
            slot.tensor.format(i),
            int(stacked[o]),
            int(width[o]),
            int(stacked[o] - height[o]) if cls.rule == "vocab" else 0,
        )
        for o in range(len(height))
        for i in range(per_owner)
    ]
    at = slot.place * height[owner] * width[owner]
    found = _placed(cls, box, owner, expert, owner * per_owner + local, at, transposed)
    return Side(found, ranks, tuple(names))


def _extent(box: Box, transposed: bool) -> tuple[Ints, Ints]:
    """Rows and columns of each owner's slice as it is stored."""
    rows, cols = box.row_hi - box.row_lo, box.col_hi - box.col_lo
    return (cols, rows) if transposed else (rows, cols)


def _members(cls: WeightClass, box: Box) -> tuple[Ints, Ints]:
    """(owner, expert) of every slice."""
    count = box.expert_hi - box.expert_lo
    owner = np.repeat(np.arange(len(count)), count)
    nth = np.arange(len(owner)) - np.repeat(np.cumsum(count) - count, count)
    return owner, box.expert_lo[owner] + nth


def _placed(cls: WeightClass, box: Box, owner: Ints, expert: Ints, tensor: Ints, at: Ints, transposed: bool) -> Pieces:
    """One rectangle per (owner, expert), stored by rows, or by columns where `transposed`."""
    step = _extent(box, transposed)[1][owner]
    return pieces(
        owner=owner,
        tensor=tensor,
        expert=expert,
        row=box.row_lo[owner],
        rows=(box.row_hi - box.row_lo)[owner],
        col=box.col_lo[owner],
        cols=(box.col_hi - box.col_lo)[owner],
        at=at,
        row_step=np.ones_like(step) if transposed else step,
        col_step=step if transposed else np.ones_like(step),
    )


def _interleaved(cls: WeightClass, m: ModelSpec, layout: TrainLayout, ranks: Ints) -> Side:
    """q, k or v in Megatron's fused QKV: of every group [its query heads | k | v], rank t rows [tR/T, (t+1)R/T)."""
    a, T = m.attention, layout.tp
    q = a.heads // a.kv_heads * a.head_dim
    start, size = {"q": (0, q), "k": (q, a.head_dim), "v": (q + a.head_dim, a.v_head_dim)}[cls.rule]
    block = q + a.head_dim + a.v_head_dim
    height = a.kv_heads * block // T
    t, g = np.arange(T)[:, None], np.arange(a.kv_heads)[None, :]
    begin = np.maximum(g * block + start, t * height)
    end = np.minimum(g * block + start + size, (t + 1) * height)
    found = pieces(
        owner=np.broadcast_to(t, begin.shape),
        tensor=np.broadcast_to(t, begin.shape),
        expert=0,
        row=g * size + begin - (g * block + start),
        rows=end - begin,
        col=0,
        cols=cls.cols,
        at=(begin - t * height) * cls.cols,
        row_step=cls.cols,
        col_step=1,
    )
    slot = megatron_slot(cls, m)
    return Side(found, ranks, tuple(Local(slot.tensor, height, cls.cols) for _ in range(T)))


def _rows(cls: WeightClass, box: Box, ranks: Ints) -> Side:
    """FSDP2: Hugging Face tensors, rows of them on each rank."""
    owner, expert = _members(cls, box)
    height, width = _extent(box, False)
    names = tuple(
        Local(cls.name.replace("*", str(e)), int(height[o]), int(width[o]))
        for o, e in zip(owner.tolist(), expert.tolist(), strict=True)
    )
    return Side(_placed(cls, box, owner, expert, np.arange(len(owner)), np.zeros_like(owner), False), ranks, names)


def _fused_experts(cls: WeightClass, layout: TrainLayout, ranks: Ints) -> Side:
    """Experts fused into one tensor [E, …] whose dim 0 is sharded: whole experts, ceil(E/N) to a rank."""
    n = len(ranks)
    step = -(-cls.experts // n)
    expert = np.arange(cls.experts)
    owner = expert // step
    name = cls.name.replace("[*]", "")
    held = np.bincount(owner, minlength=n)
    found = pieces(
        owner=owner, tensor=owner, expert=expert, row=0, rows=cls.rows, col=0, cols=cls.cols,
        at=(expert - owner * step) * cls.rows * cls.cols, row_step=cls.cols, col_step=1,
    )  # fmt: skip
    return Side(found, ranks, tuple(Local(name, int(h) * cls.rows, cls.cols, lead=int(h)) for h in held))


def _flat(cls: WeightClass, layout: TrainLayout, grid: Grid, m: ModelSpec, ranks: Ints) -> Side:
    """ZeRO-3: elements [r·p, (r+1)·p) of every tensor's memory, p = ceil(elements/N): up to three rectangles each."""
    whole = train_box(cls, _unsharded(layout), grid, m.attention)
    owner, expert = _members(cls, whole)
    shard = grid.expert_shard if cls.part == "expert" else grid.shard
    parts = layout.expert_shard if cls.part == "expert" else layout.shard
    rows, cols = (whole.row_hi - whole.row_lo)[owner], (whole.col_hi - whole.col_lo)[owner]
    share = -(-(rows * cols) // parts)
    low = np.minimum(shard[owner] * share, rows * cols)
    high = np.minimum(low + share, rows * cols)
    r0, c0, r1, c1 = low // cols, low % cols, high // cols, high % cols
    same = r0 == r1
    middle = r0 + (c0 > 0)
    rectangles = (
        (r0, np.where((c0 > 0) | same, 1, 0), c0, np.where(same, c1 - c0, cols - c0)),
        (middle, np.where(same, 0, r1 - middle), np.zeros_like(c0), cols),
        (r1, np.where(same, 0, 1), np.zeros_like(c0), c1),
    )
    tensor = np.arange(len(owner))
    found = [
        pieces(
            owner=owner, tensor=tensor, expert=expert, row=whole.row_lo[owner] + row, rows=n,
            col=whole.col_lo[owner] + col, cols=width, at=row * cols + col - low, row_step=cols, col_step=1,
        )
        for row, n, col, width in rectangles
    ]  # fmt: skip
    names = tuple(
        Local(cls.name.replace("*", str(e)), int(p), 1) for e, p in zip(expert.tolist(), share.tolist(), strict=True)
    )
    return Side(together(found), ranks, names)


def _unsharded(layout: TrainLayout) -> TrainLayout:
    return replace(layout, zero_stage=1)


def logical(cls: WeightClass, layer: int) -> Logical:
    """The tensor by its Hugging Face name."""
    name = f"model.layers.{layer}.{cls.name}" if layer >= 0 else cls.name
    return Logical(name, layer, cls.experts, cls.rows, cls.cols)
