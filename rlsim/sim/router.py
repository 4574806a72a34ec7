"""Which attention rank of which engine a new sample goes to."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from heapq import heapify, heappop, heappush

from rlsim.sim.request import Request


class Loads:
    """Samples that wait or run at each place, and the place with the fewest (of equals the first).

    The heap holds load·places + place: of every place its load as it is, and some that are outdated.
    """

    def __init__(self, places: int) -> None:
        self.at = [0] * places
        self._heap = list(range(places))

    def lowest(self) -> int:
        heap, at, places = self._heap, self.at, len(self.at)
        while True:
            load, place = divmod(heap[0], places)
            if at[place] == load:
                return place
            heappop(heap)

    def add(self, place: int, n: int) -> None:
        """n samples more (or fewer) at a place."""
        load = self.at[place] = self.at[place] + n
        heap, places = self._heap, len(self.at)
        heappush(heap, load * places + place)
        if len(heap) > 8 * places + 64:
            heap[:] = [load * places + place for place, load in enumerate(self.at)]
            heapify(heap)

    def clear(self) -> None:
        self.at = [0] * len(self.at)
        self._heap = list(range(len(self.at)))


def least_loaded(requests: Sequence[Request], loads: Loads) -> list[int]:
    """Each sample to the place with the fewest samples at that moment."""
    places = []
    for _ in requests:
        place = loads.lowest()
        loads.add(place, 1)
        places.append(place)
    return places


def group_sticky(requests: Sequence[Request], loads: Loads) -> list[int]:
    """Samples of a group that come one after another to one place, the least loaded: they share their prompt there."""
    places: list[int] = []
    group, place = None, 0
    for request in requests:
        if not places or request.group != group:
            group, place = request.group, loads.lowest()
        loads.add(place, 1)
        places.append(place)
    return places


Router = Callable[[Sequence[Request], Loads], list[int]]
ROUTERS: dict[str, Router] = {"least-loaded": least_loaded, "group-sticky": group_sticky}
