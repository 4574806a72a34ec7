"""Samples that pass through the engines more than once: several turns with an environment between them, and prefill
engines whose KV travels to decode engines.

Each pass is a request of its own with the sample's number. Regimes see whole samples only: an end of a pass that is not
the end of its sample is caught here, and the next pass begins when the environment has answered, or the KV has arrived.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from heapq import heapreplace
from typing import NamedTuple

from rlsim.sim.engines import Engines
from rlsim.sim.request import Completion, Request


class Turn(NamedTuple):
    """One turn of a sample.

    generated  tokens that it generates
    observed   tokens of the environment's answer, which the next turn begins with; 0 after the last
    wait       seconds that the environment works on it, retries included; 0: there is no answer to wait for
    """

    generated: int
    observed: int
    wait: float


Plan = Callable[[int], Sequence[tuple[int, int, float]]]
"""Sample number -> its turns (generated, observed, wait)."""


@dataclass(frozen=True)
class KvTransfer:
    """KV from a prefill to a decode engine: bytes per token of context over one rank's links, and a latency."""

    bytes_per_token: float
    rate: float
    latency: float

    def seconds(self, tokens: int) -> float:
        return tokens * self.bytes_per_token / self.rate


class Environment:
    """Workers that answer one turn each, first come first served; None: as many as there are samples."""

    def __init__(self, workers: int | None) -> None:
        self._free = None if workers is None else [0.0] * workers

    def answers(self, asked: float, seconds: float) -> float:
        """When the answer to a turn that ended at `asked` is there."""
        if self._free is None:
            return asked + seconds
        end = max(asked, self._free[0]) + seconds
        heapreplace(self._free, end)
        return end


class Journeys:
    """State of all samples between their passes.

    turns     what each sample does; None: one turn as the request has it
    keep      contexts stay in the prefix caches while the environment works
    transfer  how KV gets from prefill to decode engines; None: engines do both
    """

    def __init__(
        self,
        engines: Engines,
        turns: Plan | None,
        workers: int | None,
        keep: bool,
        transfer: KvTransfer | None,
    ) -> None:
        self.engines = engines
        self._turns = turns
        self._environment = Environment(workers)
        self._keep = keep and transfer is None  # the next turn's prompt goes to a prefill engine
        self._transfer = transfer
        self._passes: dict[int, _Passing] = {}
        self._links: dict[int, float] = {}  # when a prefill place's link is free again
        engines.finished = self.finished

    def begin(self, requests: Iterable[Request]) -> list[Request]:
        """First requests of fresh samples."""
        return [self._leg(self._fresh(request)) for request in requests]

    def go_on(self, requests: Iterable[Request], now: float) -> list[Request]:
        """Requests that samples go on with after they were taken out, with the tokens they have and no KV."""
        found = []
        for request in requests:
            self._taken_out(request)
            if request.response:
                found.append(self._leg(request))
            else:  # only the answer of an environment that has failed was missing
                self.engines.leave(request, now, partial(self._answered, request=request))
        return found

    def _fresh(self, request: Request) -> Request:
        turns: tuple[Turn, ...] = (Turn(request.response, 0, 0.0),)
        if self._turns is not None:
            turns = tuple(Turn(*turn) for turn in self._turns(request.id))
        self._passes[request.id] = _Passing(turns)
        request.response = turns[0].generated
        request.keep = self._keep and len(turns) > 1
        return request

    def _leg(self, request: Request) -> Request:
        """The request as the engines get it: with prefill engines, its prompt first."""
        if self._transfer is not None and request.response - request.done > 1:
            request.full, request.response = request.response, request.done + 1
        return request

    def finished(self, completion: Completion) -> Completion | None:
        """A pass has ended: hand over its sample if that was its last."""
        time, request = completion
        if request.full:
            self._travel(time, request)
            return None
        passing = self._passes[request.id]
        turn = passing.turns[passing.turn]
        last = passing.turn + 1 == len(passing.turns)
        if last and not turn.wait:
            del self._passes[request.id]
            return completion
        end = self._environment.answers(time, turn.wait)
        self.engines.leave(self._later(request), end, lambda now: self._answered(now, request))
        return None

    def _answered(self, now: float, request: Request) -> Completion | None:
        """The environment has answered: the next turn, or (it has failed for good) the end."""
        passing = self._passes[request.id]
        if passing.turn + 1 == len(passing.turns):
            del self._passes[request.id]
            return Completion(now, request)
        later = self._later(request)
        passing.turn += 1
        later.arrived = now
        self.engines.submit([self._leg(later)], now)
        return None

    def _later(self, request: Request) -> Request:
        """The pass after this one: the context so far and the environment's answer, then the next turn."""
        passing = self._passes[request.id]
        turn = passing.turns[passing.turn]
        last = passing.turn + 1 == len(passing.turns)
        context = request.prompt + request.response
        later = Request(
            request.id,
            request.group,
            context + turn.observed,
            0 if last else passing.turns[passing.turn + 1].generated,
            0,
            request.arrived,
            request.version,
            cached=context if request.keep else 0,
            common=request.common,
            keep=request.keep and passing.turn + 2 < len(passing.turns),
            place=request.rank.place if request.keep else None,
        )
        later.start = request.start
        later.earlier = request.earlier + request.response
        return later

    def _taken_out(self, request: Request) -> None:
        """Its KV is lost; a sample that waited for an environment goes on with the turn after."""
        request.kv_ready, request.place = False, None
        if request.full:
            request.response, request.full = request.full, 0
        elif request.away:
            passing = self._passes[request.id]
            passing.turn = min(passing.turn + 1, len(passing.turns) - 1)
        request.away = False

    # --- KV on its way ----------------------------------------------------------------------------

    def _travel(self, time: float, request: Request) -> None:
        """The prompt has given a token; its KV leaves over the link of its place, one sample after another."""
        assert self._transfer is not None
        place = request.rank.place
        tokens = request.prompt + request.done
        end = max(time, self._links.get(place, 0.0)) + self._transfer.seconds(tokens)
        self._links[place] = end
        arrives = end + self._transfer.latency
        self.engines.leave(request, arrives, lambda now: self._arrived(now, request))

    def _arrived(self, now: float, request: Request) -> None:
        request.response, request.full = request.full, 0
        request.kv_ready, request.place = True, None
        self.engines.submit([request], now)


@dataclass
class _Passing:
    turns: tuple[Turn, ...]
    turn: int = 0
