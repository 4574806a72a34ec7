"""Every sample ever admitted, in flat typed columns: what it is, when it ran, which policies had it."""

from __future__ import annotations

from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]

IN_FLIGHT, TRAINED, STALE = 0, 1, 2
FATES = ("in_flight", "trained", "stale")
NONE = -1

COLUMNS: dict[str, tuple[Any, float]] = {
    "group": (np.int64, NONE),
    "prompt": (np.int64, 0),
    "response": (np.int64, 0),
    "reward_seconds": (np.float64, 0.0),
    "start": (np.float64, np.nan),
    "end": (np.float64, np.nan),
    "scored": (np.float64, np.nan),
    "engine": (np.int32, NONE),
    "begin_version": (np.int32, NONE),
    "train_version": (np.int32, NONE),
    "updates_late": (np.int32, NONE),
    "step": (np.int32, np.iinfo(np.int32).min),
    "fate": (np.int8, IN_FLIGHT),
}


class Batch(Protocol):
    """prompt_tokens int64[prompts], response_tokens int64[prompts, group_size]"""

    @property
    def prompt_tokens(self) -> Ints: ...
    @property
    def response_tokens(self) -> Ints: ...


class Ledger:
    """Columns indexed by sample number; they grow by doubling.

    start          first moment on an engine (after an abort: of the try that finished)
    end, scored    last token, reward there
    updates_late   optimizer updates between the weights that began the sample and the first to train on it
    step           the step that trained it, counted from the first of the run
    """

    def __init__(self) -> None:
        self.size = 0
        self._columns = {name: np.empty(0, kind) for name, (kind, _) in COLUMNS.items()}

    def __getitem__(self, name: str) -> npt.NDArray[Any]:
        """The column, as a view of the samples there are."""
        return self._columns[name][: self.size]

    def admit(self, batch: Batch, reward_seconds: Floats, first_group: int) -> range:
        """Enter one batch; returns its sample numbers, group by group."""
        groups, size = batch.response_tokens.shape
        first, count = self.size, groups * size
        self._grow(first + count)
        self.size = first + count
        rows = slice(first, self.size)
        self["group"][rows] = np.repeat(np.arange(first_group, first_group + groups), size)
        self["prompt"][rows] = np.repeat(batch.prompt_tokens, size)
        self["response"][rows] = batch.response_tokens.ravel()
        self["reward_seconds"][rows] = reward_seconds
        return range(first, self.size)

    def _grow(self, size: int) -> None:
        capacity = len(self._columns["group"])
        if size <= capacity:
            return
        capacity = max(size, 2 * capacity)
        for name, (kind, empty) in COLUMNS.items():
            column = np.full(capacity, empty, kind)
            column[: self.size] = self[name]
            self._columns[name] = column
