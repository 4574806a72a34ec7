"""When sequences are done: the next iteration, and who then."""

from __future__ import annotations

from rlsim.sim.finishes import Finishes
from rlsim.sim.request import Request


def test_first_and_pop_pass_over_what_was_dropped() -> None:
    finishes, requests = Finishes(), [Request(i, i, 1, 9) for i in range(4)]
    for request, at in zip(requests, (5, 3, 5, 8), strict=True):
        request.finish = at
        finishes.add(request)
    finishes.drop(requests[1])
    assert finishes.first() == 5
    assert finishes.pop(5) == [requests[0], requests[2]]
    assert finishes.pop(6) == []
    assert finishes.first() == 8


def test_what_does_not_decode_is_not_there() -> None:
    finishes, request = Finishes(), Request(0, 0, 1, 9)
    finishes.drop(request)
    assert finishes.at == {}
