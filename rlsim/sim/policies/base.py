"""What a staleness policy is asked, and what it is told."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

Ints = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]
Rank = tuple[int, ...]


@dataclass
class Stand:
    """Where the stream of groups from the prompts to the trainer stands. All counts are groups.

    version     weight syncs completed
    submitted   ever handed to the engines
    running     of those, neither accepted nor lost
    accepted    accepted so far, without those dropped afterwards
    ready       accepted, and not yet taken by the trainer
    wanted      what the trainer waits for now
    """

    version: int = 0
    submitted: int = 0
    running: int = 0
    accepted: int = 0
    ready: int = 0
    wanted: int = 0

    @property
    def queued(self) -> int:
        """Groups in the queue of a framework whose waiting trainer takes them one by one as they come."""
        return max(0, self.ready - self.wanted)

    @property
    def taken(self) -> int:
        """Groups that the trainer took so far."""
        return self.accepted - self.ready


class Policy:
    """The rules of one framework: how many groups may start, which ones the trainer gets, which are too old.

    reacts   the end of a group can make room for others at once
    drops    groups can be too old to be trained on
    """

    reacts = False
    drops = False

    def room(self, stand: Stand) -> int:
        """Groups that may be submitted now (none if not positive)."""
        raise NotImplementedError

    def admitted(self, groups: range, stand: Stand) -> None:
        """These groups have been submitted; `stand` counts them."""

    def accepted(self, group: int, stand: Stand) -> Rank:
        """A group is scored and kept; returns its place in the order in which the trainer takes them."""
        return (group,)

    def lost(self, group: int, ready: bool) -> None:
        """A group that ran, or (`ready`) that had been accepted, will not be trained on."""

    def enough(self, wanted: int, stand: Stand) -> bool:
        """Whether the trainer can take `wanted` groups now."""
        return stand.ready >= wanted

    def taken(self, groups: list[int]) -> None:
        """The trainer took these groups."""

    def published(self, stand: Stand) -> None:
        """A weight sync is complete; `stand.version` counts it."""

    def too_old(self, groups: list[int], begun: Ints, version: int) -> Bools:
        """Which ready groups, in the trainer's order, are dropped; `begun`: version of each one's first token."""
        return np.zeros(len(groups), np.bool_)
