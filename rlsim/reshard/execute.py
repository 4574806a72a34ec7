"""A plan carried out on torch tensors, in one process: the reference for every transport."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from rlsim.reshard.engines import engine_side
from rlsim.reshard.pieces import rectangle
from rlsim.reshard.plan import Block, Plan, classes_of

if TYPE_CHECKING:
    import torch

    State = dict[str, torch.Tensor]


def execute(plan: Plan, sources: Sequence[Mapping[str, torch.Tensor]]) -> list[State]:
    """The tensors of every engine rank from those of every trainer rank; padding is zero.

    sources[r]: state dict of trainer rank r, by its local names. Dtypes are kept.
    """
    import torch

    found: list[State] = [{} for _ in range(plan.targets)]
    for block in plan.blocks():
        runs = block.runs
        for k in range(len(runs.rows)):
            source = sources[int(runs.src_rank[k])][block.sources[int(runs.src_tensor[k])].name].contiguous()
            local = block.targets[int(runs.dst_tensor[k])]
            state = found[int(runs.dst_rank[k])]
            if local.name not in state:
                state[local.name] = torch.zeros(local.shape, dtype=source.dtype, device=source.device)
            written(state[local.name], block, k).copy_(read(source, block, k))
        _all_padding(plan, block, found)
    return found


def _all_padding(plan: Plan, block: Block, found: list[State]) -> None:
    """Ranks whose part of a short vocabulary is padding alone have the tensor too."""
    import torch

    for cls in classes_of(plan.model, block.layer):
        if cls.rule != "vocab":
            continue
        for side in engine_side(cls, block.layer, plan.model, plan.engine):
            like = found[int(side.ranks[0, 0])][side.local[0].name]
            for engine in range(plan.engines):
                for owner, local in enumerate(side.local):
                    state = found[engine * plan.engine.gpus_per_engine + int(side.ranks[owner, 0])]
                    if local.name not in state:
                        state[local.name] = torch.zeros(local.shape, dtype=like.dtype, device=like.device)


def read(tensor: torch.Tensor, block: Block, k: int) -> torch.Tensor:
    """View [rows, cols] of run k in its source tensor."""
    r = block.runs
    steps = (int(r.src_row[k]), int(r.src_col[k]))
    return rectangle(tensor, (int(r.rows[k]), int(r.cols[k])), steps, int(r.src_at[k]))


def written(tensor: torch.Tensor, block: Block, k: int) -> torch.Tensor:
    """View [rows, cols] of run k in its destination tensor."""
    r = block.runs
    steps = (int(r.dst_row[k]), int(r.dst_col[k]))
    return rectangle(tensor, (int(r.rows[k]), int(r.cols[k])), steps, int(r.dst_at[k]))
