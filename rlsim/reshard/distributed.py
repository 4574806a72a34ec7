"""A plan carried out by real processes over torch.distributed: gloo on CPUs, NCCL on GPUs.

The world is the trainer's ranks followed by the ranks of all engines. Every process calls `transfer` with what it
holds; engine ranks get their tensors back. What travels is bytes (uint8): gloo knows no fp8.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np
import torch
import torch.distributed as dist

from rlsim.errors import UserError
from rlsim.reshard import relay
from rlsim.reshard.engines import engine_side
from rlsim.reshard.execute import read, written
from rlsim.reshard.from_root import broadcast, chain, root_fanout
from rlsim.reshard.plan import Block, Plan, classes_of, plan_between
from rlsim.reshard.shared_buffer import Mapped, share
from rlsim.reshard.world import State, World, as_bytes, engine_slices, made


def transfer(plan: Plan, state: Mapping[str, torch.Tensor], strategy: str, bucket: int = 1 << 30) -> State:
    """Move the weights; returns the tensors of this engine rank (trainer ranks: nothing).

    state     trainer ranks: their tensors by local names; engine ranks: empty
    strategy  p2p | broadcast | root-fanout | chain | replicate | shared-memory
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
    """Layer by layer; the next one is packed, asked for and sent before this one is unpacked, so two are held."""
    found: State = {}
    before: Batch | None = None
    for block in plan.blocks():
        batch = Batch(world, held, block)
        if before is not None:
            before.finish(found)
        before = batch
    if before is not None:
        before.finish(found)
    return found


class Batch:
    """All messages of one layer to and from this process, under way."""

    def __init__(self, world: World, held: State, block: Block) -> None:
        self._world, self._block = world, block
        self._boxes: list[tuple[torch.Tensor, list[int]]] = []
        self._sent: list[torch.Tensor] = []
        operations = []
        for (source, target), runs in _pairs(world, block).items():
            if world.rank == source:
                message = torch.cat([as_bytes(read(_source(held, block, k), block, k)) for k in runs])
                operations.append(dist.P2POp(dist.isend, message, target))
                self._sent.append(message)
            elif world.rank == target:
                message = world.message(sum(_size(world, block, k) for k in runs))
                operations.append(dist.P2POp(dist.irecv, message, source))
                self._boxes.append((message, runs))
        self._works = dist.batch_isend_irecv(operations) if operations else []

    def finish(self, found: State) -> None:
        """Wait, and lay what came into the tensors."""
        for work in self._works:
            work.wait()
        for message, runs in self._boxes:
            _unpack(self._world, self._block, runs, message, found)
        if not self._world.trainer:
            _padding(self._world, self._block, found)
        self._sent.clear()
        self._boxes.clear()


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


def _unpack(world: World, block: Block, runs: list[int], message: torch.Tensor, found: State) -> None:
    at = 0
    for k in runs:
        size, dtype = _size(world, block, k), _dtype(world, block, k)
        local = block.targets[int(block.runs.dst_tensor[k])]
        view = written(made(world, local, dtype, found), block, k)
        # a view of another dtype needs an aligned start: a copy has one
        view.copy_(message[at : at + size].clone().view(dtype).reshape(view.shape))
        at += size


def _padding(world: World, block: Block, found: State) -> None:
    """A part of a short vocabulary that is padding alone exists too."""
    plan = world.plan
    mine = world.engine_rank % plan.engine.gpus_per_engine
    for cls in classes_of(plan.model, block.layer):
        if cls.rule == "vocab":
            for side in engine_side(cls, block.layer, plan.model, plan.engine):
                for owner in np.flatnonzero(side.ranks[:, 0] == mine).tolist():
                    source = next(t for t in block.sources if t.name in world.dtypes)
                    made(world, side.local[owner], world.dtypes[source.name], found)


# To one instance, then along the others ----------


def replicate(world: World, held: State, bucket: int) -> State:
    """By plan into the first engine; each rank passes its tensors on, bucket by bucket, to its like in the next one.

    A pipeline: an engine sends bucket k on while it takes bucket k + 1.
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
    after = [world.rank + width] if engine + 1 < plan.engines else []
    if engine == 0:
        messages = (torch.cat([as_bytes(found[n])[a:b] for n, a, b in part]) for part in _parts(found, bucket))
        relay.send(messages, after)
        return found
    found = _shapes(world)
    parts = list(_parts(found, bucket))
    waiting = iter(parts)
    lengths = [sum(b - a for _, a, b in part) for part in parts]
    relay.take(world, lengths, world.rank - width, after, lambda message: _lay(message, next(waiting), found))
    return found


def _lay(message: torch.Tensor, part: list[tuple[str, int, int]], found: State) -> None:
    """A bucket's bytes into the tensors."""
    at = 0
    for name, a, b in part:
        found[name].reshape(-1).view(torch.uint8)[a:b] = message[at : at + b - a]
        at += b - a


def _shapes(world: World) -> State:
    """Empty tensors of this engine rank."""
    found: State = {}
    for _, parts in engine_slices(world):
        for _, side, pieces in parts:
            for k in pieces:
                local = side.local[-1 - k if k < 0 else int(side.pieces.tensor[k])]
                made(world, local, _engine_dtype(world), found)
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
                message = torch.cat([as_bytes(read(_source(held, block, k), block, k)) for k in runs])
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
    "root-fanout": root_fanout,
    "chain": chain,
    "replicate": replicate,
    "shared-memory": shared_memory,
}
