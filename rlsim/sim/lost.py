"""What weight syncs take from generation in one step, beside the seconds in which weights move."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass
class SyncLoss:
    """Of one step, all its syncs together.

    drain        seconds in which engines run out before a sync, nothing new being admitted
    drain_idle   engine-seconds without work in that time
    grace        seconds in which they stand still before weights move
    group        seconds in which they stand still for a new process group
    forgotten    tokens whose KV a sync threw away, to be prefilled again
    aborted      tokens that a sync threw away, to be generated again
    """

    drain: float = 0.0
    drain_idle: float = 0.0
    grace: float = 0.0
    group: float = 0.0
    forgotten: int = 0
    aborted: int = 0
