"""A step's groups, collected from the engines as one batch: begin a rollout, play it, hand over what it gave."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from rlsim.sim.ledger import Ints
from rlsim.sim.loop import Loop
from rlsim.sim.tail import tail_seconds


@dataclass(frozen=True)
class Collected:
    """What one rollout gave.

    ids      sample numbers int64[groups, group_size]
    ended    last token of the last sample that the step needs
    scored   its last reward
    free     from here on the engines have nothing to do
    tail     seconds of the rollout in which fewer than a quarter of its peak of samples ran
    early    seconds of the log-prob pass that are already done
    """

    ids: Ints
    ended: float
    scored: float
    free: float
    tail: float
    early: float = 0.0


class Batches(Protocol):
    """Rollout after rollout; the next begins when the last has been taken."""

    def begin(self) -> None:
        """The engines start on the next step's groups, now."""
        ...

    def catch_up(self) -> None:
        """Play the engines up to now."""
        ...

    def take(self) -> Collected:
        """Play the rollout to its end, which may lie ahead: nobody else acts on the engines before."""
        ...


class WholeBatches:
    """Every group of a batch is needed and nobody reacts to one: the engines run out, each alone."""

    def __init__(self, loop: Loop) -> None:
        self.loop = loop
        self._batch = range(0)

    def begin(self) -> None:
        self._batch = self.loop.work.batch()
        self.loop.pool.submit(self._batch, self.loop.versions.current)

    def catch_up(self) -> None:
        self.loop.pool.note(self.loop.pool.advance())

    def take(self) -> Collected:
        ledger, ids = self.loop.ledger, self.loop.groups(self._batch)
        ended = self.loop.pool.drain()
        tail = tail_seconds(ledger["start"][ids].ravel(), ledger["end"][ids].ravel())
        return Collected(ids, ended, self.loop.rewarded(ids), ended, tail)
