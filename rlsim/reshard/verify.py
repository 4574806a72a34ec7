"""Is a plan right: every destination element written once and none missing, and from the place that holds it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from rlsim.reshard.engines import engine_side
from rlsim.reshard.pieces import Ints, Side
from rlsim.reshard.plan import Block, Plan, classes_of
from rlsim.reshard.trainers import trainer_side


@dataclass(frozen=True)
class Fault:
    """One thing wrong with a plan: `rank` and `tensor` of the destination, and what."""

    rank: int
    tensor: str
    problem: str

    def __str__(self) -> str:
        return f"engine rank {self.rank}, {self.tensor}: {self.problem}"


@dataclass(frozen=True)
class Proof:
    """What was checked: tensors, elements and runs of the destination; `faults` is empty if the plan is right."""

    tensors: int
    elements: int
    runs: int
    faults: tuple[Fault, ...]

    @property
    def right(self) -> bool:
        return not self.faults


def verify(plan: Plan, engines: range | None = None, most: int = 20) -> Proof:
    """Prove a plan: one layer of every kind, and of equal engines the first unless others are asked for.

    Checked are: every element of every destination tensor but padding is written exactly once; every run stays inside
    both tensors; and both corners of a run mean the same element of the same logical tensor on both sides, the source
    rank holding it.
    """
    tensors = elements = runs = 0
    faults: list[Fault] = []
    which = list(engines) if engines is not None else [0]
    for layers in plan.kinds:
        (block,) = plan.blocks(layers[:1], which)
        for count, fault in _coverage(block, plan):
            tensors, elements = tensors + len(layers), elements + len(layers) * count
            faults += fault
        faults += _meaning(block, plan)
        runs += len(layers) * len(block.runs.rows)
        if len(faults) >= most:
            break
    return Proof(tensors, elements, runs, tuple(faults[:most]))


def _coverage(block: Block, plan: Plan) -> Iterator[tuple[int, list[Fault]]]:
    """For every destination tensor: elements written, and what is wrong with that."""
    runs = block.runs
    width = np.array([t.cols for t in block.targets], dtype=np.int64)[runs.dst_tensor]
    by_rows = (runs.dst_col == 1) & ((runs.dst_row == width) | (runs.rows == 1))
    top, left = runs.dst_at // width, runs.dst_at % width
    height = np.where(by_rows, runs.rows, runs.cols)
    breadth = np.where(by_rows, runs.cols, runs.rows)
    cell = runs.dst_rank * len(block.targets) + runs.dst_tensor
    starts = np.flatnonzero(np.concatenate([[True], cell[1:] != cell[:-1]])) if len(cell) else np.zeros(0, np.int64)
    ends = np.append(starts[1:], len(cell))
    wanted = _wanted(block, plan)
    for start, end in zip(starts.tolist(), ends.tolist(), strict=True):
        rank, local = int(runs.dst_rank[start]), block.targets[int(runs.dst_tensor[start])]
        part = slice(start, end)
        written = int((height[part] * breadth[part]).sum())
        need = (local.rows - local.pad) * local.cols
        found = []
        if (top[part] + height[part] > local.rows - local.pad).any() or (left[part] + breadth[part] > local.cols).any():
            found.append(Fault(rank, local.name, "a run goes beyond the tensor"))
        if _overlapping(top[part], left[part], height[part], breadth[part]):
            found.append(Fault(rank, local.name, "elements are written twice"))
        elif written < need:
            found.append(Fault(rank, local.name, f"{need - written} of {need} elements are not written"))
        wanted.discard((rank % plan.engine.gpus_per_engine, local.name))
        yield written, found
    engine = plan.engine.gpus_per_engine
    first = int(runs.dst_rank[0]) // engine * engine if len(runs.dst_rank) else 0
    for rank, name in sorted(wanted):
        yield 0, [Fault(first + rank, name, "nothing is written to it")]


def _wanted(block: Block, plan: Plan) -> set[tuple[int, str]]:
    """(rank within the engine, name) of all tensors that the engine has in this layer."""
    wanted = set()
    for cls in classes_of(plan.model, block.layer):
        for side in engine_side(cls, block.layer, plan.model, plan.engine):
            p = side.pieces
            for owner, tensor in set(zip(p.owner.tolist(), p.tensor.tolist(), strict=True)):
                wanted.add((int(side.ranks[owner, 0]), side.local[tensor].name))
    return wanted


def _overlapping(top: Ints, left: Ints, height: Ints, breadth: Ints) -> bool:
    """Whether any two rectangles share an element: painted on the grid of all their edges."""
    if len(top) == 1:
        return False
    rows, cols = np.unique(np.concatenate([top, top + height])), np.unique(np.concatenate([left, left + breadth]))
    change = np.zeros((len(rows) + 1, len(cols) + 1), dtype=np.int64)
    r0, r1 = np.searchsorted(rows, top), np.searchsorted(rows, top + height)
    c0, c1 = np.searchsorted(cols, left), np.searchsorted(cols, left + breadth)
    for r, c, sign in ((r0, c0, 1), (r1, c0, -1), (r0, c1, -1), (r1, c1, 1)):
        np.add.at(change, (r, c), sign)
    return bool((change.cumsum(axis=0).cumsum(axis=1) > 1).any())


def _meaning(block: Block, plan: Plan) -> list[Fault]:
    """Runs whose first or last element means something else in the source than in the destination."""
    runs = block.runs
    sources, targets = Elements(plan.trainer.gpus), Elements(plan.engine.gpus_per_engine)
    source_names = {t.name: i for i, t in enumerate(block.sources)}
    target_names = {t.name: i for i, t in enumerate(block.targets)}
    for number, cls in enumerate(classes_of(plan.model, block.layer)):
        sources.add(trainer_side(cls, block.layer, plan.model, plan.trainer), number, source_names)
        for side in engine_side(cls, block.layer, plan.model, plan.engine):
            targets.add(side, number, target_names)
    source_id = np.array([source_names[t.name] for t in block.sources], dtype=np.int64)[runs.src_tensor]
    target_id = np.array([target_names[t.name] for t in block.targets], dtype=np.int64)[runs.dst_tensor]
    wrong = np.zeros(len(runs.rows), dtype=bool)
    for i, j in ((0, 0), (runs.rows - 1, runs.cols - 1)):
        said = sources.at(runs.src_rank, source_id, runs.src_at + i * runs.src_row + j * runs.src_col)
        rank = runs.dst_rank % plan.engine.gpus_per_engine
        meant = targets.at(rank, target_id, runs.dst_at + i * runs.dst_row + j * runs.dst_col)
        wrong |= (said != meant).any(axis=0) | (said[0] < 0)
    return [
        Fault(
            int(runs.dst_rank[k]),
            block.targets[int(runs.dst_tensor[k])].name,
            f"reads something else from trainer rank {int(runs.src_rank[k])}, "
            f"{block.sources[int(runs.src_tensor[k])].name}",
        )
        for k in np.flatnonzero(wrong).tolist()
    ]


class Elements:
    """The logical element behind an element of a local tensor, looked up among the pieces of one side."""

    def __init__(self, ranks: int) -> None:
        self.ranks = ranks
        self._columns: list[Ints] = []
        self._table: Ints | None = None

    def add(self, side: Side, number: int, names: dict[str, int]) -> None:
        """Enter a logical tensor; `names` numbers the local tensors of the whole layer."""
        p = side.pieces
        tensor = np.array([names.get(t.name, -1) for t in side.local], dtype=np.int64)[p.tensor]
        for j in range(side.ranks.shape[1]):
            rank = side.ranks[p.owner, j]
            steps = (p.row, p.col, p.rows, p.cols, p.row_step, p.col_step, p.expert, np.full_like(p.row, number))
            self._columns.append(np.stack([rank, tensor, p.at, *steps]))

    def at(self, rank: Ints, tensor: Ints, index: Ints) -> Ints:
        """int64[4, n]: number, expert, row and column of the logical element; -1 where the rank holds none there."""
        if self._table is None:
            table = np.concatenate(self._columns, axis=1)
            self._table = table[:, np.lexsort((table[2], table[1], table[0]))]
        table = self._table
        found = np.full((4, len(rank)), -1, dtype=np.int64)
        cells = table[0] * (1 << 20) + table[1]
        asked = rank * (1 << 20) + tensor
        low, high = np.searchsorted(cells, asked, "left"), np.searchsorted(cells, asked, "right")
        for step in range(int((high - low).max(initial=0))):
            live = low + step < high
            k = np.minimum(low + step, len(cells) - 1)
            gap = index - table[2][k]
            row_step, col_step = table[7][k], table[8][k]
            by_rows = row_step >= col_step
            big, small = np.where(by_rows, row_step, col_step), np.where(by_rows, col_step, row_step)
            a, b = gap // big, gap % big // small
            i, j = np.where(by_rows, a, b), np.where(by_rows, b, a)
            inside = live & (gap >= 0) & (i < table[5][k]) & (j < table[6][k])
            for column, value in enumerate((table[10][k], table[9][k], table[3][k] + i, table[4][k] + j)):
                found[column] = np.where(inside, value, found[column])
        return found
