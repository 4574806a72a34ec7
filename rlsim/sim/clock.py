"""simpy's environment, with events at an absolute time."""

from __future__ import annotations

from heapq import heappush

from simpy import Environment, Event
from simpy.events import NORMAL


class Clock(Environment):
    """`at(t)` fires at exactly t; `timeout(t - now)` can miss it by a rounding."""

    def at(self, time: float) -> Event:
        """An event at `time`, at once if that is past."""
        event = Event(self)
        event._ok = True
        event._value = None
        heappush(self._queue, (max(time, self._now), NORMAL, next(self._eid), event))
        return event
