"""Which attention rank of which engine a new sample goes to.

A place counts what lies on it: samples, or tokens still to generate where the router looks at lengths, divided by the
place's weight where engines are of unlike speed. New work goes to the place with the least (of equals the first).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from heapq import heapify, heappop, heappush, heapreplace
from typing import Protocol

from rlsim.sim.request import Request

CLOSED = 1 << 40  # more than any load


class Loads(Protocol):
    """What lies at each place."""

    def clear(self) -> None:
        """Nothing anywhere."""
        ...

    def close(self, place: int) -> None:
        """No sample goes there from now on."""
        ...

    def open(self, place: int) -> None:
        """Samples go there again."""
        ...

    def take(self, request: Request) -> int:
        """The sample goes to the place with the least."""
        ...

    def add(self, place: int, request: Request) -> None:
        """The sample goes to this place."""
        ...

    def gone(self, place: int, request: Request) -> None:
        """The sample has left."""
        ...

    def is_open(self, place: int) -> bool: ...


class Counts:
    """Samples that wait or run at each place, all places alike.

    The heap holds load·places + place: of every place its load as it is, and some that are outdated. Closed places have
    more than any other.
    """

    def __init__(self, places: int) -> None:
        self.places = places
        self._most = 8 * places + 64
        self._closed: set[int] = set()
        self.clear()

    def clear(self) -> None:
        self.at = [CLOSED if place in self._closed else 0 for place in range(self.places)]
        self._rebuild()

    def close(self, place: int) -> None:
        if place not in self._closed:
            self._closed.add(place)
            self.at[place] += CLOSED
            self._rebuild()

    def open(self, place: int) -> None:
        if place in self._closed:
            self._closed.remove(place)
            self.at[place] -= CLOSED
            self._rebuild()

    def is_open(self, place: int) -> bool:
        return place not in self._closed

    def _rebuild(self) -> None:
        self._heap = [load * self.places + place for place, load in enumerate(self.at)]
        heapify(self._heap)

    def take(self, request: Request) -> int:
        heap, at, places = self._heap, self.at, self.places
        while True:
            load, place = divmod(heap[0], places)
            if at[place] == load:
                at[place] = load + 1
                heapreplace(heap, heap[0] + places)
                return place
            heappop(heap)

    def add(self, place: int, request: Request) -> None:
        load = self.at[place] = self.at[place] + 1
        heappush(self._heap, load * self.places + place)

    def gone(self, place: int, request: Request) -> None:
        load = self.at[place] = self.at[place] - 1
        heappush(self._heap, load * self.places + place)
        if len(self._heap) > self._most:
            self._rebuild()


class Amounts:
    """Samples, or tokens still to come, at each place over the place's weight. `amount` says what a sample counts."""

    def __init__(self, weights: Sequence[float], amount: Callable[[Request], int]) -> None:
        self.weights = list(weights)
        self._amount = amount
        self._closed: set[int] = set()
        self._counted: dict[int, int] = {}
        self.clear()

    def clear(self) -> None:
        self.at = [0] * len(self.weights)
        self._counted.clear()
        self._rebuild()

    def _rebuild(self) -> None:
        # an empty place counts by its speed too: the first sample goes to a fast one
        self._heap = [(self._key(place), place) for place in range(len(self.at)) if place not in self._closed]
        heapify(self._heap)

    def _key(self, place: int) -> float:
        return (self.at[place] + 1) / self.weights[place]

    def close(self, place: int) -> None:
        self._closed.add(place)
        self._rebuild()

    def open(self, place: int) -> None:
        self._closed.discard(place)
        self._rebuild()

    def is_open(self, place: int) -> bool:
        return place not in self._closed

    def take(self, request: Request) -> int:
        while True:
            key, place = self._heap[0]
            if key == self._key(place) and place not in self._closed:
                self.add(place, request)
                return place
            heappop(self._heap)

    def add(self, place: int, request: Request) -> None:
        amount = self._counted[request.id] = self._amount(request)
        self.at[place] += amount
        heappush(self._heap, (self._key(place), place))

    def gone(self, place: int, request: Request) -> None:
        self.at[place] -= self._counted.pop(request.id, 0)
        heappush(self._heap, (self._key(place), place))
        if len(self._heap) > 8 * len(self.at) + 64:
            self._rebuild()


def one(request: Request) -> int:
    return 1


def tokens_to_come(request: Request) -> int:
    """Tokens that it will still generate: known here, not to a real router."""
    return max(1, request.response - request.done)


# Routers ----------

Router = Callable[[Sequence[Request], Loads], list[int]]


def least_loaded(requests: Sequence[Request], loads: Loads) -> list[int]:
    """Each sample to the place with the fewest samples at that moment."""
    return [loads.take(request) for request in requests]


def group_sticky(requests: Sequence[Request], loads: Loads) -> list[int]:
    """Samples of a group that come one after another to one place, the least loaded: they share their prompt there."""
    places: list[int] = []
    group, place = None, 0
    for request in requests:
        if not places or request.group != group:
            group, place = request.group, loads.take(request)
        else:
            loads.add(place, request)
        places.append(place)
    return places


def length_aware(requests: Sequence[Request], loads: Loads) -> list[int]:
    """Longest first, each to the place with the fewest tokens to come (LPT). An oracle: no router knows lengths."""
    places = [0] * len(requests)
    for i in sorted(range(len(requests)), key=lambda i: (-tokens_to_come(requests[i]), i)):
        places[i] = loads.take(requests[i])
    return places


class RoundRobin:
    """Each sample to the next place in turn, whatever lies there."""

    def __init__(self, places: int) -> None:
        self.places = places
        self._next = 0

    def __call__(self, requests: Sequence[Request], loads: Loads) -> list[int]:
        places: list[int] = []
        for request in requests:
            while not loads.is_open(self._next):
                self._next = (self._next + 1) % self.places
            loads.add(self._next, request)
            places.append(self._next)
            self._next = (self._next + 1) % self.places
        return places


def router(name: str, weights: Sequence[float]) -> tuple[Router, Loads]:
    """The router of a name for places of these weights, and what it counts.

    round-robin | least-loaded | group-sticky | length-aware
    """
    alike = all(weight == weights[0] for weight in weights)
    if name == "round-robin":
        return RoundRobin(len(weights)), Counts(len(weights))
    if name == "length-aware":
        return length_aware, Amounts(weights, tokens_to_come)
    found = {"least-loaded": least_loaded, "group-sticky": group_sticky}[name]
    return found, Counts(len(weights)) if alike else Amounts(weights, one)
