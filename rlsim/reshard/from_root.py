"""Whole tensors, gathered on trainer rank 0 and brought to all engine ranks in buckets; each keeps its slices.

    broadcast     the library's broadcast, two buckets under way
    root-fanout   the root sends each bucket to every engine rank
    chain         root to first engine rank to second …: each passes a bucket on while it takes the next

The root gathers the next bucket while one is under way.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from math import prod

import torch
import torch.distributed as dist

from rlsim.reshard import relay
from rlsim.reshard.pieces import Side
from rlsim.reshard.state import checkpoint_rectangle, rectangle_of, sides
from rlsim.reshard.world import State, World, as_bytes, engine_slices, made


def broadcast(world: World, held: State, bucket: int) -> State:
    """By the library's broadcast, whose algorithm decides what the NICs carry: gloo a tree, NCCL a ring or tree."""
    keeper = Keeper(world)
    under_way: tuple[dist.Work, torch.Tensor] | None = None
    for message in _messages(world, held, bucket):
        work = dist.broadcast(message, 0, async_op=True)
        assert work is not None  # None only outside the group
        if under_way is not None:
            under_way[0].wait()
            keeper.take(under_way[1])
        under_way = work, message
    if under_way is not None:
        under_way[0].wait()
        keeper.take(under_way[1])
    return keeper.found


def root_fanout(world: World, held: State, bucket: int) -> State:
    """A copy of the whole model to every engine rank: R · P through the root's NIC."""
    return _from_root(world, held, bucket, source=0, first=list(world.engine_processes), then=[])


def chain(world: World, held: State, bucket: int) -> State:
    """Store and forward: K + R - 1 bucket hops until the last of R engine ranks has all K buckets."""
    last = world.rank == world.engine_processes[-1]
    before = 0 if world.engine_rank == 0 else world.rank - 1
    first = [world.engine_processes[0]]
    return _from_root(world, held, bucket, before, first, [] if last else [world.rank + 1])


def _from_root(world: World, held: State, bucket: int, source: int, first: list[int], then: list[int]) -> State:
    """source: whom an engine rank takes from; first: to whom the root sends; then: to whom this engine rank does."""
    keeper = Keeper(world)
    if world.trainer:
        relay.send(_messages(world, held, bucket), first if world.rank == 0 else [])
    else:
        relay.take(world, _lengths(world, bucket), source, then, keeper.take)
    return keeper.found


# What is sent ----------


@dataclass(frozen=True)
class Whole:
    """A tensor of the checkpoint in the order in which they go."""

    name: str
    shape: tuple[int, ...]
    dtype: torch.dtype

    @property
    def size(self) -> int:
        """Bytes."""
        return prod(self.shape) * self.dtype.itemsize


def _wholes(world: World) -> Iterator[Whole]:
    for whole, side in sides(world.plan.model, world.plan.trainer):
        yield from _of_side(world, whole, side)


def _of_side(world: World, whole: Side, side: Side) -> list[Whole]:
    """The tensors of the checkpoint that one logical tensor stands for."""
    found: dict[str, Whole] = {}
    p = side.pieces
    for k in range(len(p.row)):
        target = whole.local[0 if len(whole.local) == 1 else int(p.expert[k])]
        found.setdefault(target.name, Whole(target.name, target.shape, world.dtypes[side.local[int(p.tensor[k])].name]))
    return list(found.values())


def _lengths(world: World, bucket: int) -> list[int]:
    """Bytes of each message: all tensors one after another, cut into buckets."""
    left = sum(whole.size for whole in _wholes(world))
    return [min(bucket, left - at) for at in range(0, left, bucket)]


def _messages(world: World, held: State, bucket: int) -> Iterator[torch.Tensor]:
    """The buckets: full on rank 0, empty of content on the others, who send rank 0 what it needs meanwhile."""
    if not world.trainer:
        yield from map(world.message, _lengths(world, bucket))
        return
    pending: list[torch.Tensor] = []
    size = 0
    for tensor in _gathered(world, held, bucket):
        left = as_bytes(tensor)
        while left.numel():
            part, left = left[: bucket - size], left[bucket - size :]
            pending.append(part)
            size += part.numel()
            if size == bucket:
                yield torch.cat(pending)
                pending, size = [], 0
    if pending:
        yield torch.cat(pending)


def _gathered(world: World, held: State, bucket: int) -> Iterator[torch.Tensor]:
    """Tensors of the checkpoint one after another, in full on rank 0, empty of content on the others.

    Rank 0 asks for the next ones, a bucket at least, before it uses one: a large tensor behind small ones comes early.
    """
    ahead: deque[Gather] = deque()
    for whole, side in sides(world.plan.model, world.plan.trainer):
        ahead.append(Gather(world, held, whole, side))
        while sum(gather.size for gather in ahead) - ahead[0].size >= bucket:
            yield from ahead.popleft().tensors()
    for gather in ahead:
        yield from gather.tensors()


class Gather:
    """One logical tensor on its way to rank 0. size: bytes of it all."""

    def __init__(self, world: World, held: State, whole: Side, side: Side) -> None:
        p = side.pieces
        self._tensors = {
            one.name: torch.zeros(one.shape, dtype=one.dtype, device=world.device)
            for one in _of_side(world, whole, side)
        }
        self.size = sum(tensor.numel() * tensor.element_size() for tensor in self._tensors.values())
        self._boxes: list[tuple[torch.Tensor, torch.Tensor]] = []
        self._kept: list[torch.Tensor] = []
        operations = []
        for k in range(len(p.row)):
            owner, local = int(side.ranks[int(p.owner[k]), 0]), side.local[int(p.tensor[k])]
            if world.rank not in (0, owner):
                continue
            tensor = self._tensors[whole.local[0 if len(whole.local) == 1 else int(p.expert[k])].name]
            if world.rank == owner:
                rectangle = rectangle_of(held[local.name], p, k)
                if owner == 0:
                    checkpoint_rectangle(tensor, whole, p, k).copy_(rectangle)
                else:
                    operations.append(dist.P2POp(dist.isend, self._keep(as_bytes(rectangle)), 0))
            else:
                view = checkpoint_rectangle(tensor, whole, p, k)
                message = world.message(view.numel() * tensor.element_size())
                operations.append(dist.P2POp(dist.irecv, message, owner))
                self._boxes.append((message, view))
        self._works = dist.batch_isend_irecv(operations) if operations else []

    def _keep(self, message: torch.Tensor) -> torch.Tensor:
        """Bytes have to stay until they are sent."""
        self._kept.append(message)
        return message

    def tensors(self) -> Iterator[torch.Tensor]:
        """The whole tensors, once they are there."""
        for work in self._works:
            work.wait()
        for message, view in self._boxes:
            view.copy_(message.view(view.dtype).reshape(view.shape))
        self._kept.clear()
        yield from self._tensors.values()


# What is kept ----------


class Keeper:
    """Takes the buckets in their order, puts tensors together and cuts out what this engine rank keeps."""

    def __init__(self, world: World) -> None:
        self.found: State = {}
        self._world = world
        self._slices: Mapping[str, list[tuple[Side, Side, list[int]]]] = dict(engine_slices(world))
        self._wholes = list(_wholes(world)) if self._slices else []
        self._number, self._filled = 0, 0
        self._content = self._room()

    def take(self, message: torch.Tensor) -> None:
        """The next bucket. Trainer ranks keep nothing."""
        at = 0
        while at < message.numel() and self._number < len(self._wholes):
            whole = self._wholes[self._number]
            part = min(message.numel() - at, whole.size - self._filled)
            if self._content is not None:
                self._content[self._filled : self._filled + part] = message[at : at + part]
            at, self._filled = at + part, self._filled + part
            if self._filled == whole.size:
                if self._content is not None:
                    self._cut(whole, self._content.view(whole.dtype).reshape(whole.shape))
                self._number, self._filled = self._number + 1, 0
                self._content = self._room()

    def _room(self) -> torch.Tensor | None:
        """For the next tensor, if this rank needs it."""
        if self._number >= len(self._wholes) or self._wholes[self._number].name not in self._slices:
            return None
        return self._world.message(self._wholes[self._number].size)

    def _cut(self, whole: Whole, tensor: torch.Tensor) -> None:
        for logical, side, pieces in self._slices[whole.name]:
            for k in pieces:
                local = side.local[-1 - k if k < 0 else int(side.pieces.tensor[k])]
                target = made(self._world, local, whole.dtype, self.found)
                if k >= 0:
                    source = checkpoint_rectangle(tensor, logical, side.pieces, k)
                    rectangle_of(target, side.pieces, k).copy_(source)
