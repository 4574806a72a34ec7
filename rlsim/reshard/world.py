"""What every process of a weight transfer knows, and the tensors that an engine rank keeps."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import numpy as np
import torch

from rlsim.reshard.pieces import Local, Side
from rlsim.reshard.plan import Plan
from rlsim.reshard.state import sides

State = dict[str, torch.Tensor]


@dataclass(frozen=True)
class World:
    """Who this process is. rank: among all; dtypes: of every tensor of the trainer, known to all."""

    plan: Plan
    rank: int
    dtypes: Mapping[str, torch.dtype]
    device: torch.device

    @property
    def trainer(self) -> bool:
        return self.rank < self.plan.trainer.gpus

    @property
    def engine_rank(self) -> int:
        """Among the ranks of all engines."""
        return self.rank - self.plan.trainer.gpus

    @property
    def engine_processes(self) -> range:
        """Processes of all engine ranks."""
        return range(self.plan.trainer.gpus, self.plan.trainer.gpus + self.plan.targets)

    def message(self, size: int) -> torch.Tensor:
        """Room for so many bytes."""
        return torch.empty(size, dtype=torch.uint8, device=self.device)


def as_bytes(tensor: torch.Tensor) -> torch.Tensor:
    """uint8[bytes]; the same memory where the tensor is contiguous."""
    return tensor.contiguous().reshape(-1).view(torch.uint8)


def made(world: World, local: Local, dtype: torch.dtype, found: State) -> torch.Tensor:
    """The tensor of this engine rank, zero where it is new."""
    if local.name not in found:
        found[local.name] = torch.zeros(local.shape, dtype=dtype, device=world.device)
    return found[local.name]


def engine_slices(world: World) -> Iterator[tuple[str, list[tuple[Side, Side, list[int]]]]]:
    """Checkpoint name -> the pieces that this engine rank cuts out of it."""
    if world.trainer:
        return
    plan = world.plan
    mine = world.engine_rank % plan.engine.gpus_per_engine
    found: dict[str, list[tuple[Side, Side, list[int]]]] = {}
    for whole, side in sides(plan.model, plan.engine):
        owner = np.flatnonzero(side.ranks[:, 0] == mine)
        p = side.pieces
        for k in np.flatnonzero(np.isin(p.owner, owner)).tolist():
            name = whole.local[0 if len(whole.local) == 1 else int(p.expert[k])].name
            entries = found.setdefault(name, [])
            if not entries or entries[-1][1] is not side:
                entries.append((whole, side, []))
            entries[-1][2].append(k)
        for o in owner.tolist():
            if o < len(side.local) and 0 < side.local[o].pad == side.local[o].rows:
                found.setdefault(whole.local[0].name, []).append((whole, side, [-1 - o]))
    yield from found.items()
