"""When the sequences of an engine are done: all that decode, by iteration."""

from __future__ import annotations

from heapq import heappop, heappush

from rlsim.sim.request import NOT_RUNNING, Request


class Finishes:
    """at: the samples by the iteration at which they are done; heap: these iterations, and some that are outdated."""

    __slots__ = ("at", "heap")

    def __init__(self) -> None:
        self.clear()

    def clear(self) -> None:
        self.heap: list[int] = []
        self.at: dict[int, list[Request]] = {}

    def add(self, request: Request) -> None:
        """A sample has begun to decode."""
        together = self.at.get(request.finish)
        if together is None:
            self.at[request.finish] = [request]
            heappush(self.heap, request.finish)
        else:
            together.append(request)

    def drop(self, request: Request) -> None:
        """A sample is about to lose its slot before it is done, if it decodes at all."""
        if request.finish != NOT_RUNNING:
            together = self.at[request.finish]
            together.remove(request)
            if not together:
                del self.at[request.finish]

    def first(self) -> int:
        """The next iteration at which a sample is done; there is one."""
        heap, at = self.heap, self.at
        while heap[0] not in at:
            heappop(heap)
        return heap[0]

    def pop(self, k: int) -> list[Request]:
        """The samples that are done at iteration k, none of the others before it."""
        heap = self.heap
        while heap and heap[0] <= k:
            heappop(heap)
        return self.at.pop(k, [])
