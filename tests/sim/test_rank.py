"""KV blocks of a rank as a function of the iteration, against counting them sequence by sequence."""

from __future__ import annotations

from random import Random

from hypothesis import given, settings
from hypothesis import strategies as st

from rlsim.sim.rank import NEVER, Rank
from rlsim.sim.request import Request

lengths = st.lists(st.tuples(st.integers(0, 3), st.integers(1, 60), st.integers(2, 60)), min_size=1, max_size=12)


def filled(samples: list[tuple[int, int, int]], block: int, k: int, share: bool, capacity: int = 10**6) -> Rank:
    """All admitted at iteration k; every second one decodes from k on. Samples of a group have one prompt."""
    rank = Rank(64, capacity, block)
    prompts: dict[int, int] = {}
    for i, (group, prompt, response) in enumerate(samples):
        rank.waiting.append(Request(i, group, prompts.setdefault(group, prompt), response))
    rank.admit(k, 10**9, 0.0, share)
    for request in list(rank.prefilling)[::2]:
        rank.prefilling.remove(request)
        rank.begin_decode(request, k)
    return rank


def counted(rank: Rank, k: int, share: bool) -> int:
    """KV blocks before iteration k: full blocks of a shared prompt once per group."""
    blocks, groups = 0, set()
    for request in rank.running.values():
        prefilling = request in rank.prefilling
        tokens = request.prompt + request.done if prefilling else request.context + k - 1
        blocks += -(-tokens // rank.block)
        if share and request.group in groups:
            blocks -= request.prompt // rank.block
        groups.add(request.group)
    return blocks


@given(lengths, st.sampled_from([1, 4, 16]), st.integers(0, 100), st.booleans(), st.integers(0, 40))
@settings(deadline=None)
def test_blocks_held(samples: list[tuple[int, int, int]], block: int, k: int, share: bool, later: int) -> None:
    rank = filled(samples, block, k, share)
    assert rank.held(k + later) == counted(rank, k + later, share)


@given(lengths, st.sampled_from([1, 4, 16]), st.integers(0, 100), st.booleans(), st.integers(0, 30))
@settings(deadline=None)
def test_when_blocks_run_out(samples: list[tuple[int, int, int]], block: int, k: int, share: bool, spare: int) -> None:
    rank = filled(samples, block, k, share)
    rank.capacity = rank.held(k) + spare
    at = k
    while rank.b and counted(rank, at + 1, share) <= rank.capacity:
        at += 1
    assert rank.exhausted_at(k) == (at if rank.b else NEVER)
    assert rank.safe_until() <= rank.exhausted_at(k)


@given(lengths, st.sampled_from([1, 4, 16]), st.booleans(), st.randoms(use_true_random=False))
@settings(deadline=None)
def test_all_blocks_come_back(samples: list[tuple[int, int, int]], block: int, share: bool, random: Random) -> None:
    rank = filled(samples, block, 5, share)
    leaving = list(rank.running.values())
    random.shuffle(leaving)
    for k, request in enumerate(leaving, start=6):
        rank.take_out(request, k)
        assert rank.held(k) == counted(rank, k, share)
    assert (rank.b, rank.contexts, rank.lengths, rank.fixed, rank.members) == (0, 0, 0, 0, {})
    assert not any(rank.offsets)


def test_forgetting_keeps_the_order_of_admission() -> None:
    rank = filled([(0, 10, 20), (1, 10, 20), (2, 10, 20)], 16, 0, True)
    rank.waiting.append(Request(9, 9, 10, 20))
    rank.forget(4)
    assert [request.id for request in rank.waiting] == [0, 1, 2, 9]
    # one token from the prefill and four iterations; none for the one that was being prefilled
    assert [request.done for request in rank.waiting] == [5, 0, 5, 0]
    assert rank.held(4) == 0
