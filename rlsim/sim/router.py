"""Which attention rank of which engine a new sample goes to."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from heapq import heapify, heapreplace

from rlsim.sim.request import Request

Router = Callable[[Sequence[Request], list[int]], list[int]]


def least_loaded(requests: Sequence[Request], loads: list[int]) -> list[int]:
    """Each sample to the place with the fewest samples at that moment, the first of equals."""
    heap = [(load, place) for place, load in enumerate(loads)]
    heapify(heap)
    places = []
    for _ in requests:
        load, place = heap[0]
        places.append(place)
        heapreplace(heap, (load + 1, place))
    return places


def group_sticky(requests: Sequence[Request], loads: list[int]) -> list[int]:
    """All samples of a group that come together to one place, the least loaded one: they share their prompt there."""
    heap = [(load, place) for place, load in enumerate(loads)]
    heapify(heap)
    places, group, place, count = [], None, 0, 0
    for request in requests:
        if request.group != group:
            if group is not None:
                heapreplace(heap, (heap[0][0] + count, place))
            group, count = request.group, 0
            place = heap[0][1]
        places.append(place)
        count += 1
    return places


ROUTERS: dict[str, Router] = {"least-loaded": least_loaded, "group-sticky": group_sticky}
