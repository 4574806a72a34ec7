"""State dicts of a layout: from a Hugging Face checkpoint to what a rank holds, and back."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np

from rlsim.errors import UserError
from rlsim.grids import EngineLayout, TrainLayout
from rlsim.model import ModelSpec
from rlsim.reshard.engines import engine_side, hf_side
from rlsim.reshard.pieces import Pieces, Side, rectangle
from rlsim.reshard.plan import classes_of
from rlsim.reshard.trainers import trainer_side

if TYPE_CHECKING:
    import torch

    State = dict[str, torch.Tensor]

Layout = TrainLayout | EngineLayout


def sides(m: ModelSpec, layout: Layout | None) -> Iterator[tuple[Side, Side]]:
    """(checkpoint, layout) of every logical tensor; a layout of None is the checkpoint itself."""
    for layer in range(-1, m.num_layers):
        for cls in classes_of(m, layer):
            whole = hf_side(cls, layer)
            if layout is None:
                yield whole, whole
            elif isinstance(layout, TrainLayout):
                yield whole, trainer_side(cls, layer, m, layout)
            else:
                for side in engine_side(cls, layer, m, layout):
                    yield whole, side


def shard(hf: Mapping[str, torch.Tensor], m: ModelSpec, layout: Layout, rank: int) -> State:
    """The tensors that one rank holds (an engine's ranks count from 0 in it), padding zero.

    hf: a whole checkpoint by Hugging Face names. Raises `UserError` for tensors that are missing or shaped otherwise.
    """
    import torch

    state: State = {}
    for whole, side in sides(m, layout):
        owner = np.flatnonzero((side.ranks == rank).any(axis=1))
        p = side.pieces
        mine = p.where(np.isin(p.owner, owner))
        for k in range(len(mine.row)):
            local = side.local[int(mine.tensor[k])]
            source = whole.local[0 if len(whole.local) == 1 else int(mine.expert[k])]
            values = _checked(hf, source.name, source.shape)
            if local.name not in state:
                state[local.name] = torch.zeros(local.shape, dtype=values.dtype, device=values.device)
            rectangle_of(state[local.name], mine, k).copy_(checkpoint_rectangle(values, whole, mine, k))
        for o in owner.tolist():  # a part of a short vocabulary may be padding alone
            if o < len(side.local) and 0 < side.local[o].pad == side.local[o].rows:
                dtype = _checked(hf, whole.local[0].name, whole.local[0].shape).dtype
                state[side.local[o].name] = torch.zeros(side.local[o].shape, dtype=dtype)
    return state


def unshard(states: Sequence[Mapping[str, torch.Tensor]], m: ModelSpec, layout: Layout) -> State:
    """The Hugging Face checkpoint from the tensors of all ranks (one engine's ranks), first replicas taken."""
    import torch

    hf: State = {}
    for whole, side in sides(m, layout):
        p = side.pieces
        for k in range(len(p.row)):
            local = side.local[int(p.tensor[k])]
            rank = int(side.ranks[int(p.owner[k]), 0])
            values = _checked(states[rank], local.name, local.shape)
            target = whole.local[0 if len(whole.local) == 1 else int(p.expert[k])]
            if target.name not in hf:
                hf[target.name] = torch.zeros(target.shape, dtype=values.dtype, device=values.device)
            checkpoint_rectangle(hf[target.name], whole, p, k).copy_(rectangle_of(values, p, k))
    return hf


def checkpoint_shapes(m: ModelSpec) -> dict[str, tuple[int, ...]]:
    """Shapes of a Hugging Face checkpoint's tensors by their names."""
    found: dict[str, tuple[int, ...]] = {}
    for whole, _ in sides(m, None):
        found |= {local.name: local.shape for local in whole.local}
    return found


def rectangle_of(tensor: torch.Tensor, p: Pieces, k: int) -> torch.Tensor:
    """View [rows, cols] of piece k in the memory of a local tensor."""
    steps = (int(p.row_step[k]), int(p.col_step[k]))
    return rectangle(tensor, (int(p.rows[k]), int(p.cols[k])), steps, int(p.at[k]))


def checkpoint_rectangle(tensor: torch.Tensor, whole: Side, p: Pieces, k: int) -> torch.Tensor:
    """View [rows, cols] of the same rectangle in the checkpoint's tensor."""
    cols = int(whole.pieces.cols[0])
    base = int(whole.pieces.at[int(p.expert[k])]) if len(whole.pieces.at) > 1 else 0
    at = base + int(p.row[k]) * cols + int(p.col[k])
    return rectangle(tensor, (int(p.rows[k]), int(p.cols[k])), (cols, 1), at)


def _checked(state: Mapping[str, torch.Tensor], name: str, shape: tuple[int, ...]) -> torch.Tensor:
    tensor = state.get(name)
    if tensor is None:
        raise UserError("the tensor is missing", key=name, fix=f"shape {list(shape)}")
    if tuple(tensor.shape) != shape:
        raise UserError(f"the tensor has shape {list(tensor.shape)}", key=name, fix=f"shape {list(shape)}")
    return tensor.contiguous()
