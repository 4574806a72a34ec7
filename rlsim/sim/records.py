"""What engines record of their work: sums, and a timeline in flat typed columns."""

from __future__ import annotations

from array import array
from dataclasses import dataclass


@dataclass(slots=True)
class Stats:
    """Cumulative figures of one engine, or of all.

    busy_seconds      time with an iteration under way
    batch_seconds     decoding sequences · time
    prefill_seconds   what prompt tokens added to iterations; of it reprefill_seconds for tokens done before
    jumps             stretches of iterations played in one go
    swap_seconds      by which swaps between GPU and host lengthened iterations
    swapped_tokens    tokens whose KV went to the host
    reused_tokens     prompt tokens not prefilled, as their KV was kept from an earlier turn
    evicted_tokens    those that were to be found so, but whose KV was gone
    """

    busy_seconds: float = 0.0
    batch_seconds: float = 0.0
    prefill_seconds: float = 0.0
    reprefill_seconds: float = 0.0
    generated_tokens: int = 0
    prefill_tokens: int = 0
    reprefilled_tokens: int = 0
    preemptions: int = 0
    iterations: int = 0
    jumps: int = 0
    swap_seconds: float = 0.0
    swapped_tokens: int = 0
    reused_tokens: int = 0
    evicted_tokens: int = 0


class Timeline:
    """Running sequences and KV tokens of an engine from its batch changes on."""

    __slots__ = ("kv_tokens", "running", "time")

    def __init__(self) -> None:
        self.time = array("d")
        self.running = array("q")
        self.kv_tokens = array("q")

    def add(self, time: float, running: int, kv_tokens: int) -> None:
        self.time.append(time)
        self.running.append(running)
        self.kv_tokens.append(kv_tokens)
