"""Where the elements of logical tensors lie on ranks: the common language of all layouts.

A logical tensor is a matrix [rows, cols] of the model in the orientation [out, in] (vectors: [n, 1]). A rank keeps
rectangles of it inside tensors of its own (fused, split, padded, transposed or flat). Element (row + i, col + j) of a
piece is element `at + i·row_step + j·col_step` of the rank's tensor, counted in the order of its memory.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    import torch

Ints: TypeAlias = NDArray[np.int64]


class Local(NamedTuple):
    """A tensor as a rank names and shapes it, leading dimensions flattened into rows; a vector is [n, 1].

    `cols` is 1 for flat storage too. `pad`: rows at its end that are padding. `lead`: size of a leading dimension
    (experts) of the real tensor, 0 if it has none.
    """

    name: str
    rows: int
    cols: int
    pad: int = 0
    lead: int = 0

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of the real tensor."""
        last = () if self.cols == 1 else (self.cols,)
        if self.lead:
            return (self.lead, self.rows // self.lead, *last)
        return (self.rows, *last)


class Pieces(NamedTuple):
    """Rectangles of one logical tensor, int64[n] each.

    owner    holder: index of a slice of the model that one or several ranks hold (`Side.ranks`)
    tensor   index into the layout's local tensors
    expert   which of the equal tensors (0 unless routed experts)
    """

    owner: Ints
    tensor: Ints
    expert: Ints
    row: Ints
    rows: Ints
    col: Ints
    cols: Ints
    at: Ints
    row_step: Ints
    col_step: Ints

    def where(self, mask: NDArray[np.bool_]) -> Pieces:
        return Pieces(*(column[mask] for column in self))


def pieces(**columns: Ints | int) -> Pieces:
    """Columns of one length from arrays and numbers; empty rectangles are left out."""
    arrays = np.broadcast_arrays(*(np.asarray(columns[name], dtype=np.int64) for name in Pieces._fields))
    found = Pieces(*(np.ascontiguousarray(array).ravel() for array in arrays))
    return found.where((found.rows > 0) & (found.cols > 0))


def together(parts: Sequence[Pieces]) -> Pieces:
    """All pieces of several tables."""
    return Pieces(*(np.concatenate(columns) for columns in zip(*parts, strict=True)))


@dataclass(frozen=True)
class Side:
    """One logical tensor (or its `experts`, all equal) of one layer on one side.

    ranks    int64[owners, replicas]: ranks that hold the same slice
    local    names and shapes of the local tensors that `pieces.tensor` counts
    """

    pieces: Pieces
    ranks: Ints
    local: tuple[Local, ...]


class Logical(NamedTuple):
    """A logical tensor of one layer.

    name     Hugging Face name (an expert's number is `*`)
    layer    global layer, -1 outside the layers
    experts  equal tensors behind the name, 1 unless routed experts
    """

    name: str
    layer: int
    experts: int
    rows: int
    cols: int

    def of(self, expert: int) -> str:
        """Hugging Face name of one of the tensors."""
        return self.name.replace("*", str(expert))


def rectangle(tensor: torch.Tensor, shape: tuple[int, int], steps: tuple[int, int], at: int) -> torch.Tensor:
    """View [rows, cols] of a contiguous tensor's memory from element `at` on, `steps` between rows and columns."""
    return tensor.as_strided(shape, steps, tensor.storage_offset() + at)
