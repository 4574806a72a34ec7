"""Policy versions: the version counts completed weight syncs."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt


class Versions:
    """When each version was published, and how many optimizer updates it holds. Version 0 needs no sync."""

    def __init__(self) -> None:
        self._times: list[float] = []
        self._updates: list[int] = [0]

    @property
    def current(self) -> int:
        return len(self._times)

    def publish(self, now: float, updates: int) -> None:
        """A weight sync is complete: engines hold weights after so many optimizer updates."""
        self._times.append(now)
        self._updates.append(updates)

    def at(self, times: npt.NDArray[np.float64]) -> npt.NDArray[np.int64]:
        """Version in force at each time; at the very moment of a publication it is the new one."""
        return np.searchsorted(np.array(self._times), times, side="right")

    def updates(self, versions: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
        """Optimizer updates that each version holds."""
        return np.array(self._updates)[versions]
