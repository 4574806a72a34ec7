"""Routing: where samples go, and that the loads behind it are those of the places."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st
from prices_by_hand import surface

from rlsim.sim.fleet import Fleet
from rlsim.sim.request import Request
from rlsim.sim.router import Amounts, Counts, RoundRobin, group_sticky, least_loaded, length_aware, one, tokens_to_come

ANY = Request(0, 0, 10, 10)


def samples(groups: list[int]) -> list[Request]:
    return [Request(i, group, 10, 10) for i, group in enumerate(groups)]


def test_least_loaded_takes_places_in_turn() -> None:
    loads = Counts(3)
    assert least_loaded(samples([0] * 7), loads) == [0, 1, 2, 0, 1, 2, 0]
    assert loads.at == [3, 2, 2]


def test_least_loaded_fills_up_what_ended() -> None:
    loads = Counts(3)
    least_loaded(samples([0] * 9), loads)
    loads.gone(2, ANY)
    loads.gone(2, ANY)
    loads.gone(1, ANY)
    assert least_loaded(samples([0] * 4), loads) == [2, 1, 2, 0]


def test_group_sticky_keeps_a_group_together() -> None:
    loads = Counts(3)
    assert group_sticky(samples([0, 0, 0, 1, 2, 2, 3, 3]), loads) == [0, 0, 0, 1, 2, 2, 1, 1]
    assert loads.at == [3, 3, 2]
    # the same group again later is a new decision
    assert group_sticky(samples([3]), loads) == [2]


@given(st.integers(1, 6), st.lists(st.one_of(st.none(), st.integers(0, 10)), max_size=400))
@settings(deadline=None)
def test_always_the_lowest_load_and_of_equals_the_first(places: int, moves: list[int | None]) -> None:
    """None: a sample comes; n: one at place n (if it has any) ends."""
    loads, at = Counts(places), [0] * places
    for move in moves:
        if move is None:
            expected = at.index(min(at))
            assert loads.take(ANY) == expected
            at[expected] += 1
        elif at[move % places]:
            at[move % places] -= 1
            loads.gone(move % places, ANY)
    assert loads.at == at


def test_fleet_spreads_over_engines_before_ranks_and_counts_what_leaves() -> None:
    fleet = Fleet([(surface(0.01, slots=4), 2)])
    fleet.submit([Request(i, i, 16, length) for i, length in enumerate([5, 50, 50])], 0.0)
    assert [len(engine.ranks[0].waiting) for engine in fleet.engines] == [2, 1]
    fleet.play(0.2, False)  # sample 0 is over: one on each engine
    fleet.submit([Request(3, 3, 16, 50)], 0.2)
    assert fleet.engines[0].load == 2
    fleet.abort({2, 3}, 0.3)
    fleet.submit([Request(4, 4, 16, 50)], 0.3)
    assert [engine.load for engine in fleet.engines] == [1, 1]
    fleet.drain(0.3)
    fleet.submit(samples([0]), fleet.now)
    assert [engine.load for engine in fleet.engines] == [1, 0]


def of_lengths(*lengths: int) -> list[Request]:
    return [Request(i, i, 10, length) for i, length in enumerate(lengths)]


def test_round_robin_takes_turns_whatever_lies_there() -> None:
    loads, turns = Counts(3), RoundRobin(3)
    assert turns(samples([0] * 4), loads) == [0, 1, 2, 0]
    loads.close(1)
    assert turns(samples([0] * 3), loads) == [2, 0, 2]


def test_length_aware_is_longest_first() -> None:
    """LPT: 9 | 7, 2 | 5, 4 over three places: 9, 9 and 9 tokens."""
    loads = Amounts([1.0] * 3, tokens_to_come)
    requests = of_lengths(2, 9, 4, 7, 5)
    assert length_aware(requests, loads) == [1, 0, 2, 1, 2]
    assert loads.at == [9, 9, 9]
    loads.gone(1, requests[3])
    assert loads.at == [9, 2, 9]


def test_fast_places_get_more() -> None:
    """Weights 3 and 1: three samples to one on the slow place."""
    loads = Amounts([3.0, 1.0], one)
    assert least_loaded(samples([0] * 8), loads).count(0) == 6


def test_a_closed_place_gets_nothing_until_it_opens() -> None:
    loads = Amounts([1.0, 1.0], one)
    loads.close(0)
    assert least_loaded(samples([0] * 3), loads) == [1, 1, 1]
    loads.open(0)
    assert least_loaded(samples([0] * 3), loads) == [0, 0, 0]


def test_length_aware_shortens_a_rollout() -> None:
    """Two engines with one slot each, lengths 30, 20, 10: round-robin takes 40 iterations, by length 30."""
    ends = {}
    for name in ("round-robin", "length-aware"):
        fleet = Fleet([(surface(0.01, slots=1), 2)], name)
        fleet.submit(of_lengths(30, 20, 10), 0.0)
        ends[name] = fleet.drain(0.0)[-1].time
    assert ends["length-aware"] < 0.8 * ends["round-robin"]
