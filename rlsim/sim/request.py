"""One sample on its way through the rollout engines."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from rlsim.sim.rank import Rank

NOT_RUNNING = -1


class Request:
    """A sample: what it is, and where it stands on its engine.

    id, group       sample number; samples of one group share their prompt
    prompt          prompt tokens
    response        response tokens to generate, already cut at the cap
    done            response tokens generated so far
    arrived         when it was submitted
    version         policy version at submission
    start           when it was first admitted to a batch
    context         after admission: its context in iteration k of its engine is `k + context`
    finish          iteration count at which it is done, NOT_RUNNING while it waits or is prefilled
    rank            the attention rank that it waits or runs on
    todo            prompt tokens still to prefill before it decodes
    swapped         KV blocks that it has at the host
    prefilled       whether it has been prefilled before: doing it again is a re-prefill
    cached          tokens at its beginning whose KV may still be kept on the rank that admits it (an earlier turn's)
    common          prompt tokens that it shares with its group
    keep            at its end its context's KV stays on its rank, until the blocks are needed, it comes back or a flush
    kv_ready        its KV arrives with it: admitted, it decodes at once
    place           the place (see `Fleet`) that holds its KV; None: none does
    earlier         tokens that its sample generated before this request (in earlier turns)
    full            response tokens of which a prefill engine generates the first only; 0: no prefill engine has it
    away            it is no request yet: its sample waits for an environment, or its KV travels
    """

    rank: Rank

    __slots__ = (
        "arrived",
        "away",
        "cached",
        "common",
        "context",
        "done",
        "earlier",
        "finish",
        "full",
        "group",
        "id",
        "keep",
        "kv_ready",
        "place",
        "prefilled",
        "prompt",
        "rank",
        "response",
        "start",
        "swapped",
        "todo",
        "version",
    )

    def __init__(
        self,
        id: int,
        group: int,
        prompt: int,
        response: int,
        done: int = 0,
        arrived: float = 0.0,
        version: int = 0,
        *,
        cached: int = 0,
        common: int | None = None,
        keep: bool = False,
        kv_ready: bool = False,
        place: int | None = None,
    ) -> None:
        self.id = id
        self.group = group
        self.prompt = prompt
        self.response = response
        self.done = done
        self.arrived = arrived
        self.version = version
        self.start = math.nan
        self.context = 0
        self.finish = NOT_RUNNING
        self.todo = 0
        self.swapped = 0
        self.prefilled = False
        self.cached = cached
        self.common = prompt if common is None else common
        self.keep = keep
        self.kv_ready = kv_ready
        self.place = place
        self.earlier = 0
        self.full = 0
        self.away = False

    @property
    def generated(self) -> int:
        """Tokens that its sample has generated so far, all turns."""
        return self.earlier + self.done


class Completion(NamedTuple):
    """A sample's last token, at `time`."""

    time: float
    request: Request
