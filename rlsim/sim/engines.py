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

Action = Callable[[float], None]


class Engines:
    """A fleet played from event to event.

    `finished` decides about every completion of the fleet: what it returns is a completion of the sample, None means
    that the sample goes on (another turn, or decoding elsewhere).
    """

    def __init__(self, fleet: Fleet) -> None:
        self.fleet = fleet
        self.finished: Callable[[Completion], Completion | None] | None = None
        self._agenda: list[tuple[float, int, Action]] = []
        self._number = 0

    @property
    def now(self) -> float:
        return self.fleet.now

    @property
    def in_flight(self) -> int:
        """Samples that wait, run, or are away (at an environment) and come back."""
        return self.fleet.in_flight

    def at(self, time: float, action: Action) -> None:
        """Call `action(time)` when the engines have been played up to `time`; of equals in the order of their entry."""
        heappush(self._agenda, (time, self._number, action))
        self._number += 1

    def submit(self, requests: Iterable[Request], now: float) -> None:
        self.fleet.submit(requests, now)

    def play(self, until: float, stop_at_completion: bool) -> list[Completion]:
        """As `Fleet.play`, with the events up to `until`."""
        done: list[Completion] = []
        react = stop_at_completion or self.finished is not None
        while True:
            event = self._agenda[0][0] if self._agenda else inf
            found = self._sift(self.fleet.play(min(until, event), react))
            done += found
            if found and stop_at_completion:
                return done
            if event <= until and self.fleet.now >= event:
                _, _, action = heappop(self._agenda)
                action(event)
            elif not self._goes_on(until):
                return done

    def _goes_on(self, until: float) -> bool:
        """Whether the fleet stopped at a completion that was none of a sample, before `until`."""
        return self.finished is not None and self.fleet.now < until and self.fleet.in_flight > 0

    def drain(self, now: float) -> list[Completion]:
        """Run everything in flight to its end; completions in the order of time."""
        done: list[Completion] = []
        while self._agenda or (self.finished is not None and self.fleet.in_flight):
            done += self.play(self._agenda[0][0] if self._agenda else inf, False)
        done += self._sift(self.fleet.drain(max(now, self.fleet.now)))
        done.sort(key=itemgetter(0))
        return done

    def _sift(self, done: list[Completion]) -> list[Completion]:
        if self.finished is None:
            return done
        return [kept for completion in done if (kept := self.finished(completion)) is not None]
