"""Which bytes go from which trainer rank to which engine rank: rectangles of both sides intersected, replicas chosen.

A run is one strided rectangle that one rank reads and another writes: a row-parallel weight is one run of many rows,
not a run per row. Runs are made layer by layer, so that a plan of any size needs little memory.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from rlsim.grids import EngineLayout, TrainLayout
from rlsim.model import ModelSpec
from rlsim.reshard.engines import engine_side
from rlsim.reshard.pieces import Ints, Local, Logical, Pieces, Side
from rlsim.reshard.trainers import logical, trainer_side
from rlsim.shards import WeightClass, weight_classes


class Runs(NamedTuple):
    """Runs of one layer, int64[n] each (`element` float64: bytes of one element on the wire).

    src, dst tensors count in `Block.sources` and `Block.targets`; `logical` in `Block.logical`, and `expert` tells its
    equal tensors apart. Element (i, j) of a run is src_at + i·src_row + j·src_col in the memory of the source tensor.
    `row`, `col`: where the run begins in the logical tensor.
    """

    src_rank: Ints
    src_tensor: Ints
    src_at: Ints
    src_row: Ints
    src_col: Ints
    dst_rank: Ints
    dst_tensor: Ints
    dst_at: Ints
    dst_row: Ints
    dst_col: Ints
    rows: Ints
    cols: Ints
    logical: Ints
    expert: Ints
    row: Ints
    col: Ints
    element: NDArray[np.float64]

    def take(self, index: NDArray[np.intp] | NDArray[np.bool_]) -> Runs:
        return runs_of([column[index] for column in self])

    @property
    def bytes(self) -> NDArray[np.float64]:
        return self.rows * self.cols * self.element


def runs_of(columns: Sequence[NDArray[Any]]) -> Runs:
    """The table with these columns."""
    return Runs(*columns)


@dataclass(frozen=True)
class Block:
    """One layer of the plan (or what stands outside the layers): its runs, and what their numbers mean."""

    layer: int
    runs: Runs
    sources: tuple[Local, ...]
    targets: tuple[Local, ...]
    logical: tuple[Logical, ...]


@dataclass(frozen=True)
class Cluster:
    """Which GPU a rank is: trainer ranks from 0; engine ranks from `first_engine_gpu` (co-located: 0)."""

    gpus_per_node: int
    first_engine_gpu: int


@dataclass(frozen=True)
class Plan:
    """A reshard from one trainer to `engines` equal engines.

    wire_bytes  bytes of an element on the wire (fp8: its block scales on top, what is not quantised in bf16)
    """

    model: ModelSpec
    trainer: TrainLayout
    engine: EngineLayout
    cluster: Cluster
    wire_bytes: float = 2.0
    engines: int = field(default=0)

    @property
    def targets(self) -> int:
        """Ranks of all engines."""
        return self.engines * self.engine.gpus_per_engine

    def blocks(
        self, layers: Sequence[int] | None = None, engines: Sequence[int] | None = None, merge: bool = True
    ) -> Iterator[Block]:
        """The plan layer by layer: -1 (embedding, final norm, head) first; all layers and engines by default.

        With `merge`, runs that continue each other in both tensors are one, though they be of several logical tensors.
        """
        wanted = range(-1, self.model.num_layers) if layers is None else layers
        which = np.arange(self.engines) if engines is None else np.asarray(engines)
        for layer in wanted:
            pattern = _layer_pattern(self.model, self.trainer, self.engine, layer, self.wire_bytes)
            yield self._block(pattern, layer, which, merge)

    def _block(self, pattern: Pattern, layer: int, engines: Ints, merge: bool) -> Block:
        """One engine's runs, repeated for every engine with a replica of the source chosen for each."""
        one = pattern.runs
        width = self.engine.gpus_per_engine
        count = len(engines)
        gpu = self.cluster.first_engine_gpu + np.arange(self.engines)[:, None] * width + pattern.pair_dst[None, :]
        chosen = self._choose(pattern, gpu)[engines]  # [engines, pairs]
        src = chosen[:, pattern.pair].ravel()
        dst = (one.dst_rank[None, :] + engines[:, None] * width).ravel()
        runs = runs_of([np.tile(column, count) for column in one])._replace(src_rank=src, dst_rank=dst)
        return Block(layer, _ordered(runs, merge), pattern.sources, pattern.targets, pattern.logical)

    def _choose(self, pattern: Pattern, gpu: Ints) -> Ints:
        """A source rank for every (engine, pair of owner and engine rank), int64[engines, pairs].

        The same GPU if it holds the slice; else one on the same node, else any: the requests to an owner go round its
        replicas, so that none sends more than the others by over one request.
        """
        chosen = np.empty_like(gpu)
        node = gpu // self.cluster.gpus_per_node
        for kind, ranks in enumerate(pattern.owners):
            mine = np.flatnonzero(pattern.pair_kind == kind)
            for owner in np.unique(pattern.pair_owner[mine]):
                pairs = mine[pattern.pair_owner[mine] == owner]
                chosen[:, pairs] = _deal(ranks[owner], gpu[:, pairs], node[:, pairs], self.cluster.gpus_per_node)
        return chosen

    @cached_property
    def matrix(self) -> NDArray[np.float64]:
        """Bytes from every trainer rank to every engine rank, float64[trainer ranks, engine ranks]."""
        return self._totals[0]

    @cached_property
    def messages(self) -> int:
        """Runs between different GPUs."""
        return self._totals[1]

    @cached_property
    def _totals(self) -> tuple[NDArray[np.float64], int]:
        shape = (self.trainer.gpus, self.targets)
        total = np.zeros(shape[0] * shape[1])
        messages = 0
        for layers in self.kinds:
            (block,) = self.blocks(layers[:1])
            runs = block.runs
            cell = runs.src_rank * shape[1] + runs.dst_rank
            away = runs.src_rank != runs.dst_rank + self.cluster.first_engine_gpu
            total += len(layers) * np.bincount(cell, runs.bytes, minlength=total.size)
            messages += len(layers) * int(away.sum())
        return total.reshape(shape), messages

    @cached_property
    def kinds(self) -> tuple[tuple[int, ...], ...]:
        """Layers whose runs are the same but for their names: of one kind, between the same two stages."""
        found: dict[object, list[int]] = {(-1,): [-1]}
        for layer, facts in enumerate(self.model.layers):
            stages = [next(i for i, s in enumerate(side.stages) if layer in s) for side in (self.trainer, self.engine)]
            found.setdefault((facts.moe, *stages), []).append(layer)
        return tuple(tuple(layers) for layers in found.values())

    # --- figures --------------------------------------------------------------------------------

    @cached_property
    def moved(self) -> NDArray[np.float64]:
        """`matrix` without what stays on the same GPU."""
        moved = self.matrix.copy()
        rank = np.arange(self.targets)
        same = rank + self.cluster.first_engine_gpu
        here = same < self.trainer.gpus
        moved[same[here], rank[here]] = 0.0
        return moved

    @property
    def bytes_total(self) -> float:
        """Destination bytes that do not stay on the same GPU."""
        return float(self.moved.sum())

    @property
    def bytes_max_in(self) -> float:
        return float(self.moved.sum(axis=0).max())

    @property
    def bytes_max_out(self) -> float:
        return float(self.moved.sum(axis=1).max())

    @property
    def model_bytes(self) -> float:
        """One whole model on the wire."""
        m = self.model
        return sum(cls.size * _times(cls, m) * cls.element_bytes(self.wire_bytes) for cls in weight_classes(m))


def plan_between(
    model: ModelSpec,
    trainer: TrainLayout,
    engine: EngineLayout,
    *,
    colocated: bool = False,
    wire_bytes: float = 2.0,
    engines: int | None = None,
    first_engine_gpu: int | None = None,
) -> Plan:
    """The plan from a trainer to engines. Engines stand behind the trainer's GPUs, or (co-located) on them."""
    first = first_engine_gpu if first_engine_gpu is not None else (0 if colocated else trainer.gpus)
    cluster = Cluster(engine.gpus_per_node, first)
    return Plan(model, trainer, engine, cluster, wire_bytes, engine.engines if engines is None else engines)


# One engine's runs of one layer ----------


@dataclass(frozen=True)
class Pattern:
    """Runs of one layer into one engine, sources by owner instead of rank.

    owners       per kind of ownership (dense, whole, expert …) int64[owners, replicas]
    pair         int64[runs]: which pair of owner and engine rank a run belongs to; a pair takes one replica
    pair_kind, pair_owner, pair_dst   int64[pairs]
    """

    runs: Runs
    owners: tuple[Ints, ...]
    pair: Ints
    pair_kind: Ints
    pair_owner: Ints
    pair_dst: Ints
    sources: tuple[Local, ...]
    targets: tuple[Local, ...]
    logical: tuple[Logical, ...]


def classes_of(m: ModelSpec, layer: int) -> list[WeightClass]:
    """The logical tensors of a layer; -1: outside the layers."""
    if layer < 0:
        return [cls for cls in weight_classes(m) if cls.place in ("first", "last")]
    place = "moe" if m.layers[layer].moe else "dense"
    return [cls for cls in weight_classes(m) if cls.place == place]


def _times(cls: WeightClass, m: ModelSpec) -> int:
    if cls.place in ("first", "last"):
        return 1
    return sum(layer.moe == (cls.place == "moe") for layer in m.layers)


@lru_cache(maxsize=4)
def _layer_pattern(m: ModelSpec, trainer: TrainLayout, engine: EngineLayout, layer: int, wire: float) -> Pattern:
    sources: dict[Local, int] = {}
    targets: dict[Local, int] = {}
    owners: dict[object, int] = {}
    tables: list[Ints] = []
    parts: list[Runs] = []
    kinds: list[Ints] = []
    names: list[Logical] = []
    for cls in classes_of(m, layer):
        source = trainer_side(cls, layer, m, trainer)
        kind = owners.setdefault((source.ranks.shape, source.ranks.tobytes()), len(owners))
        if kind == len(tables):
            tables.append(source.ranks)
        for target in engine_side(cls, layer, m, engine):
            runs = _intersect(source, target, len(names), cls.element_bytes(wire))
            runs = runs._replace(
                src_tensor=_numbers(source.local, sources)[runs.src_tensor],
                dst_tensor=_numbers(target.local, targets)[runs.dst_tensor],
            )
            parts.append(runs)
            kinds.append(np.full(len(runs.rows), kind))
        names.append(logical(cls, layer))
    runs = runs_of([np.concatenate(columns) for columns in zip(*parts, strict=True)])
    kind_of = np.concatenate(kinds)
    pairs, pair = np.unique(np.stack([kind_of, runs.src_rank, runs.dst_rank]), axis=1, return_inverse=True)
    return Pattern(
        runs=runs,
        owners=tuple(tables),
        pair=pair.ravel(),
        pair_kind=pairs[0],
        pair_owner=pairs[1],
        pair_dst=pairs[2],
        sources=tuple(sources),
        targets=tuple(targets),
        logical=tuple(names),
    )


def _numbers(local: tuple[Local, ...], known: dict[Local, int]) -> Ints:
    return np.array([known.setdefault(tensor, len(known)) for tensor in local], dtype=np.int64)


def _intersect(source: Side, target: Side, number: int, element: float) -> Runs:
    """Every rectangle of the source with every one of the target that it overlaps; `src_rank` is the owner's number."""
    s, d = source.pieces, target.pieces
    i, j = _same_expert(s, d)
    row, col = np.maximum(s.row[i], d.row[j]), np.maximum(s.col[i], d.col[j])
    rows = np.minimum(s.row[i] + s.rows[i], d.row[j] + d.rows[j]) - row
    cols = np.minimum(s.col[i] + s.cols[i], d.col[j] + d.cols[j]) - col
    hit = (rows > 0) & (cols > 0)
    i, j, row, col, rows, cols = i[hit], j[hit], row[hit], col[hit], rows[hit], cols[hit]
    return Runs(
        src_rank=s.owner[i],
        src_tensor=s.tensor[i],
        src_at=s.at[i] + (row - s.row[i]) * s.row_step[i] + (col - s.col[i]) * s.col_step[i],
        src_row=s.row_step[i],
        src_col=s.col_step[i],
        dst_rank=target.ranks[d.owner[j], 0],
        dst_tensor=d.tensor[j],
        dst_at=d.at[j] + (row - d.row[j]) * d.row_step[j] + (col - d.col[j]) * d.col_step[j],
        dst_row=d.row_step[j],
        dst_col=d.col_step[j],
        rows=rows,
        cols=cols,
        logical=np.full_like(rows, number),
        expert=s.expert[i],
        row=row,
        col=col,
        element=np.full(len(rows), element),
    )


def _same_expert(s: Pieces, d: Pieces) -> tuple[Ints, Ints]:
    """All pairs (i, j) of pieces that belong to the same tensor."""
    order = np.argsort(s.expert, kind="stable")
    experts = s.expert[order]
    start, end = np.searchsorted(experts, d.expert, "left"), np.searchsorted(experts, d.expert, "right")
    count = end - start
    j = np.repeat(np.arange(len(count)), count)
    i = order[np.arange(len(j)) - np.repeat(np.cumsum(count) - count, count) + np.repeat(start, count)]
    return i, j


def _deal(ranks: Ints, gpu: Ints, node: Ints, per_node: int) -> Ints:
    """One of `ranks` for each request (any shape): its own GPU, else its node's in turn, else all in turn."""
    flat = gpu.ravel()
    turn = np.arange(len(flat))
    chosen = ranks[turn % len(ranks)]
    nodes = ranks // per_node
    order = np.argsort(nodes, kind="stable")
    first = np.searchsorted(nodes[order], node.ravel(), "left")
    last = np.searchsorted(nodes[order], node.ravel(), "right")
    near = last - first
    neighbour = order[np.minimum(first + turn % np.maximum(near, 1), len(ranks) - 1)]
    chosen = np.where(near > 0, ranks[neighbour], chosen)
    chosen = np.where(np.isin(flat, ranks), flat, chosen)
    return chosen.reshape(gpu.shape)


def _ordered(runs: Runs, merge: bool) -> Runs:
    """Runs in the order of the targets; with `merge` those that continue each other in both tensors become one."""
    order = np.lexsort((runs.dst_at, runs.dst_tensor, runs.dst_rank))
    runs = runs.take(order)
    if not merge or len(runs.rows) < 2:
        return runs
    a, b = runs.take(np.arange(len(order) - 1)), runs.take(np.arange(1, len(order)))
    # one below the other: same columns, rows go on in both memories
    joined = (
        (a.dst_rank == b.dst_rank)
        & (a.dst_tensor == b.dst_tensor)
        & (a.src_rank == b.src_rank)
        & (a.src_tensor == b.src_tensor)
        & (a.cols == b.cols)
        & (a.src_row == b.src_row)
        & (a.src_col == b.src_col)
        & (a.dst_row == b.dst_row)
        & (a.dst_col == b.dst_col)
        & (a.element == b.element)
        & (b.src_at == a.src_at + a.rows * a.src_row)
        & (b.dst_at == a.dst_at + a.rows * a.dst_row)
    )
    head = np.concatenate([[True], ~joined])
    start = np.flatnonzero(head)
    return runs.take(start)._replace(rows=np.add.reduceat(runs.rows, start))
