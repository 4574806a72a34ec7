"""The engines with events of their own: a fleet plus an agenda of moments at which something happens to it.

An event (an environment answers, an engine crashes, KV arrives from a prefill engine) is no business of simpy: only
the rollout side sees it. So whoever plays the engines plays them from event to event, never past one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from heapq import heappop, heappush
from math import inf
from operator import itemgetter

from rlsim.sim.fleet import Fleet
from rlsim.sim.request import Completion, Request

Action = Callable[[float], Completion | None]


class Engines:
    """A fleet played from event to event.

    `finished` decides about every completion of the fleet: what it returns is a completion of the sample, None means
    that the sample goes on (another turn, or decoding elsewhere).

    away    samples between two requests: number -> the request that they go on with if they are taken out
    """

    def __init__(self, fleet: Fleet) -> None:
        self.fleet = fleet
        self.finished: Callable[[Completion], Completion | None] | None = None
        self.away: dict[int, Request] = {}
        self._agenda: list[tuple[float, int, Action]] = []
        self._number = 0
        self._early: list[Completion] = []
        self._acting = False

    @property
    def now(self) -> float:
        return self.fleet.now

    @property
    def in_flight(self) -> int:
        """Samples that wait, run, or are away and come back."""
        return self.fleet.in_flight + len(self.away)

    def at(self, time: float, action: Action) -> None:
        """Call `action(time)` when the engines have been played up to `time`; of equals in the order of their entry.

        What it returns is a completion of a sample at that moment.
        """
        heappush(self._agenda, (time, self._number, action))
        self._number += 1

    def leave(self, request: Request, time: float, action: Action) -> None:
        """A sample has nothing to do here until `time`; taken out before, it goes on with `request`."""
        self.away[request.id] = request

        def back(now: float) -> Completion | None:
            if self.away.get(request.id) is not request:
                return None
            del self.away[request.id]
            return action(now)

        self.at(time, back)

    def submit(self, requests: Iterable[Request], now: float) -> None:
        """As `Fleet.submit`, after the events up to `now`; events submit too, and none waits for another then."""
        if self._agenda and self._agenda[0][0] <= now and not self._acting:
            self._early = self.play(now, False)  # with those that were there before
        self.fleet.submit(requests, now)

    def abort(self, ids: Iterable[int] | None, now: float) -> list[Request]:
        """Take samples out (None: all), those that are away too; returns them with the tokens they have."""
        wanted = None if ids is None else set(ids)
        gone = self.fleet.abort(wanted, now)
        for i in [i for i in self.away if wanted is None or i in wanted]:
            request = self.away.pop(i)
            request.away = True
            gone.append(request)
        return gone

    def play(self, until: float, stop_at_completion: bool) -> list[Completion]:
        """As `Fleet.play`, with the events up to `until`."""
        fleet, agenda = self.fleet, self._agenda
        if self.finished is None and not agenda and not self._early:
            return fleet.play(until, stop_at_completion)
        done, self._early = self._early, []
        if done and stop_at_completion:
            return done
        if until == inf and not self.in_flight:  # what lies on the agenda has nothing to do with a sample
            return done + self._sift(fleet.play(fleet.now, True))
        react = stop_at_completion or self.finished is not None
        while True:
            event = agenda[0][0] if agenda else inf
            found = self._sift(fleet.play(min(until, event), react))
            while agenda and agenda[0][0] <= fleet.now and not (found and stop_at_completion):
                found += self._act()
            done += found
            if found and stop_at_completion:
                return done
            if fleet.now >= until or not (agenda or fleet.in_flight) or (until == inf and not self.in_flight):
                return done

    def drain(self, now: float) -> list[Completion]:
        """Run everything in flight to its end; completions in the order of time."""
        if self.finished is None and not self._agenda and not self._early:
            return self.fleet.drain(now)
        done, self._early = self._early, []
        while self.in_flight:  # not past the last end: what lies on the agenda after it may come much later
            done += self._sift(self.fleet.play(self._agenda[0][0] if self._agenda else inf, True))
            while self._agenda and self._agenda[0][0] <= self.fleet.now and self.in_flight:
                done += self._act()
        done += self._sift(self.fleet.drain(max(now, self.fleet.now)))
        done.sort(key=itemgetter(0))
        return done

    def _act(self) -> list[Completion]:
        """The next event happens."""
        time, _, action = heappop(self._agenda)
        self._acting = True
        completion = action(time)
        self._acting = False
        return [] if completion is None else [completion]

    def _sift(self, done: list[Completion]) -> list[Completion]:
        if self.finished is None:
            return done
        return [kept for completion in done if (kept := self.finished(completion)) is not None]
