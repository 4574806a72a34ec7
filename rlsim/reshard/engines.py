"""The engines' side: which rectangles of a logical tensor every rank of an engine needs, and where it keeps them.

vLLM and SGLang: `qkv_proj` = [q | k | v] with KV heads copied beyond nkv ranks, `gate_up_proj`, `w13` and `w2` over all
experts of a rank, MLA's `fused_qkv_a_proj`, vocabulary padded to 64, attention and experts in groups of their own.
"""

from __future__ import annotations

from functools import lru_cache

import numpy as np

from rlsim.grids import EngineLayout
from rlsim.model import ModelSpec
from rlsim.reshard.naming import Slot, engine_slot
from rlsim.reshard.pieces import Ints, Local, Side, pieces
from rlsim.shards import Box, Grid, WeightClass, engine_box, weight_classes


def engine_side(cls: WeightClass, layer: int, m: ModelSpec, layout: EngineLayout) -> tuple[Side, ...]:
    """One logical tensor of one layer on the ranks of one engine; every owner is one rank that needs its own copy.

    Two sides for a tied embedding in an engine with pipeline stages: the last stage has a copy as its head.
    """
    pattern = _pattern(cls, m, layout)
    width = layout.attn_tp * layout.attn_dp
    if layer >= 0:
        stage = next(i for i, layers in enumerate(layout.stages) if layer in layers)
        local = tuple(t._replace(name=f"model.layers.{layer}.{t.name}") for t in pattern.local)
        return (Side(pattern.pieces, pattern.ranks + stage * width, local),)
    last = (layout.pp - 1) * width
    if cls.place == "last":
        return (Side(pattern.pieces, pattern.ranks + last, pattern.local),)
    if m.tied and layout.pp > 1:
        return pattern, Side(pattern.pieces, pattern.ranks + last, pattern.local)
    return (pattern,)


def hf_side(cls: WeightClass, layer: int) -> Side:
    """A whole checkpoint with Hugging Face names on one rank."""
    prefix = f"model.layers.{layer}." if layer >= 0 else ""
    expert = np.arange(cls.experts)
    fused = "[*]" in cls.name
    size = cls.rows * cls.cols
    found = pieces(
        owner=0, tensor=0 if fused else expert, expert=expert, row=0, rows=cls.rows, col=0, cols=cls.cols,
        at=expert * size if fused else 0, row_step=cls.cols, col_step=1,
    )  # fmt: skip
    local: tuple[Local, ...]
    if fused:
        local = (Local(prefix + cls.name.replace("[*]", ""), cls.experts * cls.rows, cls.cols, lead=cls.experts),)
    else:
        local = tuple(Local(prefix + cls.name.replace("*", str(e)), cls.rows, cls.cols) for e in expert.tolist())
    return Side(found, np.zeros((1, 1), dtype=np.int64), local)


@lru_cache(maxsize=1024)
def _pattern(cls: WeightClass, m: ModelSpec, layout: EngineLayout) -> Side:
    """The side on the first stage, with names relative to the layer."""
    grid = _ranks(layout)
    box = engine_box(cls, layout, grid, m.attention)
    slot = engine_slot(cls, m, layout.engine)
    before, height = _stack(m, layout)[cls.name, cls.place]
    transposed = "[*]" in cls.name and cls.cols > 1
    width = (box.row_hi - box.row_lo) if transposed else (box.col_hi - box.col_lo)
    count = box.expert_hi - box.expert_lo
    owner = np.repeat(np.arange(len(count)), count)
    nth = np.arange(len(owner)) - np.repeat(np.cumsum(count) - count, count)
    step = width[owner]
    found = pieces(
        owner=owner,
        tensor=owner,
        expert=box.expert_lo[owner] + nth,
        row=box.row_lo[owner],
        rows=(box.row_hi - box.row_lo)[owner],
        col=box.col_lo[owner],
        cols=(box.col_hi - box.col_lo)[owner],
        at=(nth * height + before) * step,
        row_step=np.ones_like(step) if transposed else step,
        col_step=step if transposed else np.ones_like(step),
    )
    ranks = np.arange(len(count), dtype=np.int64)[:, None]
    return Side(found, ranks, _locals(cls, slot, box, height, width, count))


def _locals(cls: WeightClass, slot: Slot, box: Box, height: int, width: Ints, count: Ints) -> tuple[Local, ...]:
    found = []
    for rank, (n, w) in enumerate(zip(count.tolist(), width.tolist(), strict=True)):
        real = int(box.row_hi[rank] - box.row_lo[rank])
        pad = height - real if cls.rule == "vocab" else 0
        found.append(Local(slot.tensor, n * height, w, pad, n if cls.part == "expert" else 0))
    return tuple(found)


def _ranks(layout: EngineLayout) -> Grid:
    """Coordinates of the ranks of one stage of an engine."""
    within = np.arange(layout.attn_tp * layout.attn_dp, dtype=np.int64)
    zero = np.zeros_like(within)
    return Grid(
        node=zero,
        stage=zero,
        tp=within % layout.attn_tp,
        etp=within % layout.moe_tp,
        ep=within // layout.moe_tp,
        head=within % layout.head_tp,
        shard=zero,
        expert_shard=zero,
    )


@lru_cache(maxsize=64)
def _stack(m: ModelSpec, layout: EngineLayout) -> dict[tuple[str, str], tuple[int, int]]:
    """For every class: rows stacked before it in its local tensor, and rows of the whole stack (of one expert)."""
    grid = _ranks(layout)
    stacks: dict[tuple[str, str], dict[int, tuple[WeightClass, int]]] = {}
    for cls in weight_classes(m):
        box = engine_box(cls, layout, grid, m.attention)
        transposed = "[*]" in cls.name and cls.cols > 1
        rows = int(((box.col_hi - box.col_lo) if transposed else (box.row_hi - box.row_lo)).max())
        if cls.rule == "vocab":
            split = layout.head_tp if cls.part == "head" else layout.attn_tp
            rows = -(-(-(-cls.rows // 64) * 64) // split)
        slot = engine_slot(cls, m, layout.engine)
        stacks.setdefault((slot.tensor, cls.place), {})[slot.place] = (cls, rows)
    found: dict[tuple[str, str], tuple[int, int]] = {}
    for members in stacks.values():
        total, before = sum(rows for _, rows in members.values()), 0
        for place in sorted(members):
            cls, rows = members[place]
            found[cls.name, cls.place] = (before, total)
            before += rows
    return found
