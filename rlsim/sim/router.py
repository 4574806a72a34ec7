"""Which attention rank of which engine a new sample goes to."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from heapq import heapify, heappop, heappush, heapreplace

from rlsim.sim.request import Request

CLOSED = 1 << 40  # more than any load


class Loads:
    """Samples that wait or run at each place, and the place with the fewest (of equals the first).

    The heap holds load·places + place: of every place its load as it is, and some that are outdated. Closed places have
    more than any other.
    """

    def __init__(self, places: int) -> None:
        self.places = places
        self._most = 8 * places + 64
        self._closed: set[int] = set()
        self.clear()

    def clear(self) -> None:
        """Nothing anywhere."""
        self.at = [CLOSED if place in self._closed else 0 for place in range(self.places)]
        self._rebuild()

    def close(self, place: int) -> None:
        """No sample goes there from now on."""
        if place not in self._closed:
            self._closed.add(place)
            self.at[place] += CLOSED
            self._rebuild()

    def open(self, place: int) -> None:
        """Samples go there again."""
        if place in self._closed:
            self._closed.remove(place)
            self.at[place] -= CLOSED
            self._rebuild()

    def _rebuild(self) -> None:
        self._heap = [load * self.places + place for place, load in enumerate(self.at)]
        heapify(self._heap)

    def take(self) -> int:
        """One sample more at the place with the fewest."""
        heap, at, places = self._heap, self.at, self.places
        while True:
            load, place = divmod(heap[0], places)
            if at[place] == load:
                at[place] = load + 1
                heapreplace(heap, heap[0] + places)
                return place
            heappop(heap)

    def add(self, place: int) -> None:
        """One sample more at a place."""
        load = self.at[place] = self.at[place] + 1
        heappush(self._heap, load * self.places + place)

    def gone(self, place: int) -> None:
        """A sample less at a place."""
        load = self.at[place] = self.at[place] - 1
        heappush(self._heap, load * self.places + place)
        if len(self._heap) > self._most:
            self._rebuild()


def least_loaded(requests: Sequence[Request], loads: Loads) -> list[int]:
    """Each sample to the place with the fewest samples at that moment."""
    return [loads.take() for _ in requests]


def group_sticky(requests: Sequence[Request], loads: Loads) -> list[int]:
    """Samples of a group that come one after another to one place, the least loaded: they share their prompt there."""
    places: list[int] = []
    group, place = None, 0
    for request in requests:
        if not places or request.group != group:
            group, place = request.group, loads.take()
        else:
            loads.add(place)
        places.append(place)
    return places


Router = Callable[[Sequence[Request], Loads], list[int]]
ROUTERS: dict[str, Router] = {"least-loaded": least_loaded, "group-sticky": group_sticky}
