"""Every sample ever admitted, in flat typed columns: what it is, when it ran, which policies had it."""

from __future__ import annotations

from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]
Bools = npt.NDArray[np.bool_]

FATES = (
    "in_flight",
    "trained",
    "stale",
    "zero_variance",
    "surplus",
    "aborted",
    "environment",
    "crash",
    "overflow",
)
IN_FLIGHT, TRAINED, STALE, ZERO_VARIANCE, SURPLUS, ABORTED, ENVIRONMENT, CRASH, OVERFLOW = range(len(FATES))
NONE = -1

COLUMNS: dict[str, tuple[Any, float]] = {
    "group": (np.int64, NONE),
    "prompt": (np.int64, 0),
    "response": (np.int64, 0),
    "generated": (np.int64, 0),
    "informative": (np.bool_, True),
    "reward_seconds": (np.float64, 0.0),
    "start": (np.float64, np.nan),
    "end": (np.float64, np.nan),
    "scored": (np.float64, np.nan),
    "engine": (np.int32, NONE),
    "begin_version": (np.int32, NONE),
    "train_version": (np.int32, NONE),
    "updates_late": (np.int32, NONE),
    "spans": (np.int32, NONE),
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

    response       tokens that the trainer trains on beside the prompt; `generated` of them, the rest are the answers of
                   environments
    fate           what became of it, an index into FATES: in flight, trained, or why it was dropped

    informative    the rewards of its group are not all equal: it carries a gradient
    start          first moment on an engine (after an abort: of the try that finished)
    end, scored    last token, reward there
    updates_late   optimizer updates between the weights that began the sample and the first to train on it
    spans          policy versions that generated it: 1 + weight syncs between its first and its last token
    step           the step that trained it, counted from the first of the run
    """

    def __init__(self) -> None:
        self.size = 0
        self._columns = {name: np.empty(0, kind) for name, (kind, _) in COLUMNS.items()}

    def __getitem__(self, name: str) -> npt.NDArray[Any]:
        """The column, as a view of the samples there are."""
        return self._columns[name][: self.size]

    def admit(self, batch: Batch, reward_seconds: Floats, informative: Bools, first_group: int) -> range:
        """Enter one batch, `informative` bool[groups]; returns its sample numbers, group by group."""
        groups, size = batch.response_tokens.shape
        first, count = self.size, groups * size
        self._grow(first + count)
        self.size = first + count
        rows = slice(first, self.size)
        self["group"][rows] = np.repeat(np.arange(first_group, first_group + groups), size)
        self["prompt"][rows] = np.repeat(batch.prompt_tokens, size)
        self["response"][rows] = batch.response_tokens.ravel()
        plan = getattr(batch, "plan", None)
        self["generated"][rows] = batch.response_tokens.ravel() if plan is None else plan.generated_tokens
        self["reward_seconds"][rows] = reward_seconds
        self["informative"][rows] = np.repeat(informative, size)
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
