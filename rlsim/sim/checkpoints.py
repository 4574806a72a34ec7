"""Which steps are safe: saves every n steps, each safe from the moment its last byte is in the storage."""

from __future__ import annotations

from rlsim.sim.prices import Checkpoint


class Checkpoints:
    """The saves of a run. Before the first one a crash goes back to the beginning: that of the measured steps.

    The steps of the warm-up, which only bring the run to where it is measured, are safe at once.

    An asynchronous save stops the trainer for the copy to the host only; the next one waits for its last byte.
    """

    def __init__(self, every: int | None, cost: Checkpoint | None, warmup: int = 0) -> None:
        self._warmup = warmup
        self._every = every if cost else None
        self._cost = cost
        self._free = 0.0  # the background writer is, from then on
        self._safe = [(0, 0.0)]  # (steps done, safe from)

    def due(self, done: int) -> bool:
        """Whether the state after so many steps is saved."""
        return self._every is not None and done % self._every == 0

    def seconds(self, now: float) -> float:
        """How long a save that begins now holds up the trainer."""
        return self._cost.blocking_seconds + max(0.0, self._free - now) if self._cost else 0.0

    def saved(self, done: int, now: float) -> None:
        """The trainer goes on after a save of the state after so many steps."""
        if self._cost:
            self._free = now + self._cost.background_seconds
            self._safe.append((done, self._free))

    def restore(self, now: float, done: int) -> int:
        """A crash after `done` steps: how many of them are safe. A write under way is lost with its host."""
        self._safe = [row for row in self._safe if row[1] <= now]
        self._free = 0.0
        return max(self._safe[-1][0], min(done, self._warmup))
