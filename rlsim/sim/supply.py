"""Where the groups of a rollout come from: what earlier rollouts left unfinished, then fresh prompts."""

from __future__ import annotations

from dataclasses import dataclass

from rlsim.sim.request import Request
from rlsim.sim.work import Work


@dataclass(frozen=True)
class Carried:
    """A group that goes on with what it has: the samples that it still has to finish, with their tokens."""

    group: int
    requests: tuple[Request, ...]


class Supply:
    """State between rollouts.

    carried    groups that go on where they were stopped, the oldest first
    collected  groups that begin again in a step of their own, the oldest first
    """

    def __init__(self, work: Work) -> None:
        self.carried: list[Carried] = []
        self.collected: list[int] = []
        self._work = work
        self._fresh = 0

    def carry_on(self, groups: int) -> list[Carried]:
        """At most so many of the carried groups."""
        taken, self.carried = self.carried[:groups], self.carried[groups:]
        return taken

    def begin_again(self, groups: int) -> list[int]:
        """So many of the collected groups."""
        taken, self.collected = self.collected[:groups], self.collected[groups:]
        return taken

    def fresh(self, groups: int, step: int) -> range:
        """The next groups of the workload, for a step."""
        first, self._fresh = self._fresh, self._fresh + groups
        while self._work.groups < self._fresh:
            self._work.batch(step)
        return range(first, self._fresh)
