"""What a training run's log says, whatever framework wrote it: metrics by step."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]


@dataclass(frozen=True)
class RunLog:
    """Steps of one run, ascending; `metrics` by name as the framework calls them. `notes`: what was set right."""

    framework: str
    files: tuple[str, ...]
    steps: tuple[int, ...]
    metrics: tuple[Mapping[str, float], ...]
    notes: tuple[str, ...] = ()

    def column(self, name: str) -> Floats:
        """float64[steps]; NaN where a step does not have it."""
        return np.array([m.get(name, np.nan) for m in self.metrics], dtype=np.float64)

    def has(self, name: str) -> bool:
        return any(name in m for m in self.metrics)

    def part(self, which: Sequence[int] | npt.NDArray[np.int64]) -> RunLog:
        """The same log with only the steps at these places."""
        return RunLog(
            self.framework,
            self.files,
            tuple(self.steps[i] for i in which),
            tuple(self.metrics[i] for i in which),
            self.notes,
        )
