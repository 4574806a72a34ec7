"""A plan carried out by real processes over torch.distributed: gloo on CPUs, NCCL on GPUs.

The world is the trainer's ranks followed by the ranks of all engines. Every process calls `transfer` with what it
holds; engine ranks get their tensors back. What travels is bytes (uint8): gloo knows no fp8.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
import torch.distributed as dist

from rlsim.errors import UserError
from rlsim.reshard.engines import engine_side
from rlsim.reshard.execute import read, written
from rlsim.reshard.pieces import Local, Side
from rlsim.reshard.plan import Block, Plan, classes_of, plan_between
from rlsim.reshard.shared_buffer import Mapped, share
from rlsim.reshard.state import checkpoint_rectangle, rectangle_of, sides

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

    def of_engine(self, rank: int) -> int:
        """Process of an engine rank."""
        return self.plan.trainer.gpus + rank


def transfer(plan: Plan, state: Mapping[str, torch.Tensor], strategy: str, bucket: int = 1 << 30) -> State:
    """Move the weights; returns the tensors of this engine rank (trainer ranks: nothing).

    state     trainer ranks: their tensors by local names; engine ranks: empty
    strategy  p2p | broadcast | replicate | shared-memory
    bucket    bytes sent together
    Every process of the default group calls it; their number is that of trainer and engine ranks together.
    """
    if strategy not in STRATEGIES:
        raise UserError(f"no way of moving weights called {strategy}", key="strategy", fix=", ".join(STRATEGIES))
    wanted = plan.trainer.gpus + plan.targets
    if dist.get_world_size() != wanted:
        raise UserError(f"{dist.get_world_size()} processes", fix=f"{wanted}: {plan.trainer.gpus} + {plan.targets}")
    device = _device()
    held = {name: tensor.contiguous() for name, tensor in state.items()}
    dtypes: list[dict[str, torch.dtype]] = [{} for _ in range(wanted)]
    dist.all_gather_object(dtypes, {name: tensor.dtype for name, tensor in held.items()})
    known = {name: dtype for one in dtypes for name, dtype in one.items()}
    world = World(plan, dist.get_rank(), known, device)
    return STRATEGIES[strategy](world, held, bucket)


def _device() -> torch.device:
    return torch.device("cuda", torch.cuda.current_device()) if dist.get_backend() == "nccl" else torch.device("cpu")


# Point to point by plan ----------


def p2p(world: World, held: State, bucket: int) -> State:
    """Every run straight from who has it to who needs it: one message per pair of ranks and layer, sent in batches."""
    return _point_to_point(world, held, world.plan)


def _point_to_point(world: World, held: State, plan: Plan) -> State:
    found: State = {}
    for block in plan.blocks():
        pairs = _pairs(world, block)
        operations, boxes = [], []
        for (source, target), runs in pairs.items():
            if world.rank == source:
                message = torch.cat([_bytes(read(_source(held, block, k), block, k)) for k in runs])
                operations.append(dist.P2POp(dist.isend, message, target))
            elif world.rank == target:
                message = torch.empty(sum(_size(world, block, k) for k in runs), dtype=torch.uint8, device=world.device)
                operations.append(dist.P2POp(dist.irecv, message, source))
                boxes.append((message, runs))
        for work in dist.batch_isend_irecv(operations) if operations else []:
            work.wait()
        for message, runs in boxes:
            _unpack(world, block, runs, message, found)
        if not world.trainer:
            _padding(world, block, found)
    return found


def _pairs(world: World, block: Block) -> dict[tuple[int, int], list[int]]:
    """(source process, target process) -> runs of this process, in one order on both sides."""
    runs = block.runs
    target = runs.dst_rank + world.plan.trainer.gpus
    mine = np.flatnonzero((runs.src_rank == world.rank) | (target == world.rank))
    found: dict[tuple[int, int], list[int]] = {}
    for k in mine.tolist():
        found.setdefault((int(runs.src_rank[k]), int(target[k])), []).append(k)
    return dict(sorted(found.items()))


def _source(held: State, block: Block, k: int) -> torch.Tensor:
    return held[block.sources[int(block.runs.src_tensor[k])].name]


def _dtype(world: World, block: Block, k: int) -> torch.dtype:
    return world.dtypes[block.sources[int(block.runs.src_tensor[k])].name]


def _size(world: World, block: Block, k: int) -> int:
    return int(block.runs.rows[k]) * int(block.runs.cols[k]) * _dtype(world, block, k).itemsize


def _bytes(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.contiguous().reshape(-1).view(torch.uint8)


def _unpack(world: World, block: Block, runs: list[int], message: torch.Tensor, found: State) -> None:
    at = 0
    for k in runs:
        size, dtype = _size(world, block, k), _dtype(world, block, k)
        local = block.targets[int(block.runs.dst_tensor[k])]
        view = written(_made(world, local, dtype, found), block, k)
        # a view of another dtype needs an aligned start: a copy has one
        view.copy_(message[at : at + size].clone().view(dtype).reshape(view.shape))
        at += size


def _made(world: World, local: Local, dtype: torch.dtype, found: State) -> torch.Tensor:
    if local.name not in found:
        found[local.name] = torch.zeros(local.shape, dtype=dtype, device=world.device)
    return found[local.name]


def _padding(world: World, block: Block, found: State) -> None:
    """A part of a short vocabulary that is padding alone exists too."""
    plan = world.plan
    mine = world.engine_rank % plan.engine.gpus_per_engine
    for cls in classes_of(plan.model, block.layer):
        if cls.rule == "vocab":
            for side in engine_side(cls, block.layer, plan.model, plan.engine):
                for owner in np.flatnonzero(side.ranks[:, 0] == mine).tolist():
                    source = next(t for t in block.sources if t.name in world.dtypes)
                    _made(world, side.local[owner], world.dtypes[source.name], found)


# Gather, then broadcast ----------


def broadcast(world: World, held: State, bucket: int) -> State:
    """Whole tensors are gathered on trainer rank 0, which broadcasts them in buckets; everybody keeps its slices."""
    found: State = {}
    plan = world.plan
    engine = dict(_engine_slices(world))
    pending: list[tuple[str, torch.Tensor]] = []
    size = 0
    for whole, side in sides(plan.model, plan.trainer):
        for name, tensor in _gathered(world, held, whole, side):
            pending.append((name, tensor))
            size += tensor.numel() * tensor.element_size()
        if size >= bucket:
            _broadcast(world, pending, engine, found)
            pending, size = [], 0
    _broadcast(world, pending, engine, found)
    return found


def _gathered(world: World, held: State, whole: Side, side: Side) -> Iterator[tuple[str, torch.Tensor]]:
    """Tensors of the checkpoint in full on rank 0, empty of content on the others."""
    p = side.pieces
    tensors: dict[str, torch.Tensor] = {}
    operations, boxes = [], []
    for k in range(len(p.row)):
        owner = int(side.ranks[int(p.owner[k]), 0])
        local = side.local[int(p.tensor[k])]
        target = whole.local[0 if len(whole.local) == 1 else int(p.expert[k])]
        dtype = world.dtypes[local.name]
        tensor = tensors.get(target.name)
        if tensor is None:
            tensor = tensors[target.name] = torch.zeros(target.shape, dtype=dtype, device=world.device)
        if owner == 0 and world.rank == 0:
            checkpoint_rectangle(tensor, whole, p, k).copy_(rectangle_of(held[local.name], p, k))
        elif world.rank == owner:
            operations.append(dist.P2POp(dist.isend, _bytes(rectangle_of(held[local.name], p, k)), 0))
        elif world.rank == 0:
            view = checkpoint_rectangle(tensor, whole, p, k)
            message = torch.empty(view.numel() * dtype.itemsize, dtype=torch.uint8, device=world.device)
            operations.append(dist.P2POp(dist.irecv, message, owner))
            boxes.append((message, view, dtype))
    for work in dist.batch_isend_irecv(operations) if operations else []:
        work.wait()
    for message, view, dtype in boxes:
        view.copy_(message.view(dtype).reshape(view.shape))
    yield from tensors.items()


def _engine_slices(world: World) -> Iterator[tuple[str, list[tuple[Side, Side, list[int]]]]]:
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


def _broadcast(
    world: World,
    pending: list[tuple[str, torch.Tensor]],
    engine: Mapping[str, list[tuple[Side, Side, list[int]]]],
    found: State,
) -> None:
    """One bucket: the tensors one after another in one message."""
    if not pending:
        return
    sizes = [tensor.numel() * tensor.element_size() for _, tensor in pending]
    if world.rank == 0:
        message = torch.cat([_bytes(tensor) for _, tensor in pending])
    else:
        message = torch.empty(sum(sizes), dtype=torch.uint8, device=world.device)
    dist.broadcast(message, 0)
    at = 0
    for (name, like), size in zip(pending, sizes, strict=True):
        for whole, side, pieces in engine.get(name, ()):
            tensor = message[at : at + size].clone().view(like.dtype).reshape(like.shape)
            for k in pieces:
                local = side.local[-1 - k if k < 0 else int(side.pieces.tensor[k])]
                target = _made(world, local, like.dtype, found)
                if k >= 0:
                    source = checkpoint_rectangle(tensor, whole, side.pieces, k)
                    rectangle_of(target, side.pieces, k).copy_(source)
        at += size


# To one instance, then along the others ----------


def replicate(world: World, held: State, bucket: int) -> State:
    """By plan into the first engine; each rank passes its tensors on, bucket by bucket, to its like in the next one.

    A pipeline: an engine sends bucket k on while it takes bucket k + 1; two buckets are held at a time.
    """
    plan = world.plan
    first = plan_between(
        plan.model, plan.trainer, plan.engine, wire_bytes=plan.wire_bytes, engines=1,
        first_engine_gpu=plan.cluster.first_engine_gpu,
    )  # fmt: skip
    width = plan.engine.gpus_per_engine
    engine = -1 if world.trainer else world.engine_rank // width
    found = _point_to_point(world, held, first) if engine <= 0 else {}
    if world.trainer or plan.engines == 1:
        return found
    before, after = world.rank - width, world.rank + width
    if engine > 0:
        found = _shapes(world)
    under_way: tuple[dist.Work, torch.Tensor] | None = None  # with the bytes, which have to stay until they are sent
    for part in _parts(found, bucket):
        message = torch.cat([_bytes(found[name])[a:b] for name, a, b in part]) if engine == 0 else None
        if message is None:
            message = torch.empty(sum(b - a for _, a, b in part), dtype=torch.uint8, device=world.device)
            dist.recv(message, before)
            at = 0
            for name, a, b in part:
                found[name].reshape(-1).view(torch.uint8)[a:b] = message[at : at + b - a]
                at += b - a
        if engine + 1 < plan.engines:
            if under_way is not None:
                under_way[0].wait()
            work = dist.isend(message, after)
            assert work is not None  # None only outside the group
            under_way = (work, message)
    if under_way is not None:
        under_way[0].wait()
    return found


def _shapes(world: World) -> State:
    """Empty tensors of this engine rank."""
    found: State = {}
    for _, parts in _engine_slices(world):
        for _, side, pieces in parts:
            for k in pieces:
                local = side.local[-1 - k if k < 0 else int(side.pieces.tensor[k])]
                _made(world, local, _engine_dtype(world), found)
    return found


def _engine_dtype(world: World) -> torch.dtype:
    """One dtype for all, or `UserError`: the copies must know what comes."""
    dtypes = set(world.dtypes.values())
    if len(dtypes) > 1:
        raise UserError("tensors of several dtypes", key="replicate", fix="one dtype, or strategy p2p")
    return next(iter(dtypes))


def _parts(state: State, bucket: int) -> Iterator[list[tuple[str, int, int]]]:
    """(name, from byte, to byte) in buckets, in the order of the names."""
    part: list[tuple[str, int, int]] = []
    room = bucket
    for name in sorted(state):
        size, at = state[name].numel() * state[name].element_size(), 0
        while at < size:
            n = min(room, size - at)
            part.append((name, at, at + n))
            at, room = at + n, room - n
            if not room:
                yield part
                part, room = [], bucket
    if part:
        yield part


# On one host ----------


def shared_memory(world: World, held: State, bucket: int) -> State:
    """Hand-over on one host: trainer ranks lay what an engine rank needs into shared memory, which it maps.

    On GPUs the buffer stays on the device and its CUDA IPC handle is passed on.
    """
    found: State = {}
    for block in world.plan.blocks():
        pairs = _pairs(world, block)
        kept: list[Any] = []
        handles: dict[tuple[int, int], Any] = {}
        for (source, target), runs in pairs.items():
            if world.rank == source:
                message = torch.cat([_bytes(read(_source(held, block, k), block, k)) for k in runs])
                handle, owner = share(message)
                handles[source, target] = handle
                kept.append(owner)
        everybody: list[dict[tuple[int, int], Any]] = [{} for _ in range(dist.get_world_size())]
        dist.all_gather_object(everybody, handles)
        for (source, target), runs in pairs.items():
            if world.rank == target:
                with Mapped(everybody[source][source, target]) as message:
                    _unpack(world, block, runs, message, found)
        if not world.trainer:
            _padding(world, block, found)
        dist.barrier()
        for owner in kept:
            owner()
    return found


STRATEGIES: Mapping[str, Callable[[World, State, int], State]] = {
    "p2p": p2p,
    "broadcast": broadcast,
    "replicate": replicate,
    "shared-memory": shared_memory,
}
