"""A row of the report: one published quantity, measured and predicted."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

PREDICTED, FITTED, REPEAT, SKIPPED = "predicted", "fitted", "repeat", "skipped"


@dataclass(frozen=True)
class Row:
    """One scored (or listed) quantity of one record.

    group      what is held out together: the model
    mode       what the trivial rival takes its constants over: placement and schedule, or the kind of run
    status     predicted | fitted | repeat (its recipe was fitted in another version) | skipped
    without    predictions of fits that never saw the row's "model", "framework" or "source"; empty: not fitted
    p10, p90   of the prediction; None where it has no interval
    floor      physics' bound in the row's own unit: no time is below it, no rate above
    work       what a constant MFU explains: model FLOPs over all GPUs' dense peak, in the row's unit
    parts      seconds by cause, for reading
    recipe     what repeats between versions of a framework
    same       what two rows have to share to be compared: model and workload
    axes       what they may differ in: mode, gpus, staleness, layout
    """

    id: str
    source: str
    kind: str
    spec: str
    quantity: str
    unit: str
    group: str
    mode: str
    measured: float
    predicted: float | None = None
    without: Mapping[str, float] = field(default_factory=dict)
    p10: float | None = None
    p90: float | None = None
    floor: float | None = None
    work: float = 0.0
    status: str = PREDICTED
    note: str = ""
    parts: Mapping[str, float] = field(default_factory=dict)
    framework: str = ""
    gpu: str = ""
    recipe: str = ""
    same: str = ""
    axes: Mapping[str, Any] = field(default_factory=dict)

    def skipped(self, why: str) -> Row:
        """The same row, listed with its reason."""
        return replace(self, status=SKIPPED, note=why, predicted=None)

    @property
    def error(self) -> float | None:
        """predicted/measured - 1 of a time; a rate is turned round, so that + is always too slow."""
        return self._error(self.predicted)

    def error_without(self, axis: str) -> float | None:
        """The error of the fit that never saw the row's model, framework or GPU."""
        return self._error(self.without.get(axis))

    def _error(self, predicted: float | None) -> float | None:
        if predicted is None or predicted <= 0 or self.measured <= 0:
            return None
        ratio = self.measured / predicted if self.is_rate else predicted / self.measured
        return ratio - 1.0

    @property
    def is_rate(self) -> bool:
        return self.unit.endswith("/s")
