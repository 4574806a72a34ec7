"""KV that outlives an iteration on paper: kept contexts, KV from elsewhere, swaps; and prompts that are not cut."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from test_fleet import ends, even

from rlsim.sim.fleet import Fleet
from rlsim.sim.request import Request


def second_turn(id: int, whole: int, more: int) -> Request:
    return Request(id, id, whole + more, 5, cached=whole, keep=True, common=20)


def one_turn(fleet: Fleet) -> None:
    """20 prompt tokens, 14 generated: KV of 33 tokens, so 2 full blocks of 16 stay."""
    fleet.submit([Request(0, 0, 20, 14, keep=True)], 0.0)
    fleet.drain(0.0)


def test_a_second_turn_prefills_what_is_new() -> None:
    fleet = Fleet([(even(), 1)])
    one_turn(fleet)
    fleet.submit([second_turn(0, 34, 30)], fleet.now)  # 64 tokens, 32 of them kept
    fleet.drain(fleet.now)
    assert (fleet.stats.prefill_tokens, fleet.stats.reused_tokens) == (20 + 32, 32)
    assert (fleet.stats.evicted_tokens, fleet.stats.reprefilled_tokens) == (0, 0)


def test_a_flush_or_new_weights_or_no_prefix_cache_lose_it() -> None:
    for how in ("flush", "weights", "none"):
        fleet = Fleet([(replace(even(), prefix_caching=how != "none"), 1)])
        one_turn(fleet)
        if how == "flush":
            fleet.flush_cache(fleet.now)
        elif how == "weights":
            fleet.interrupt(fleet.now, keep_kv=False)
        fleet.submit([second_turn(0, 34, 30)], fleet.now)
        fleet.drain(fleet.now)
        assert (fleet.stats.prefill_tokens, fleet.stats.reused_tokens) == (20 + 64, 0)


def test_what_runs_takes_the_blocks_of_kept_contexts() -> None:
    """Room for 4 blocks, 2 kept. Another sample grows to 33 tokens, 3 blocks: one of the kept is left."""
    fleet = Fleet([(even(capacity=64), 1)])
    one_turn(fleet)
    fleet.submit([Request(1, 1, 20, 14)], fleet.now)
    fleet.drain(fleet.now)
    fleet.submit([second_turn(0, 34, 16)], fleet.now)  # 50 tokens, 16 of them kept
    fleet.drain(fleet.now)
    assert (fleet.stats.reused_tokens, fleet.stats.evicted_tokens) == (16, 16)
    assert fleet.stats.preemptions == 0
    assert fleet.stats.prefill_tokens == 20 + 20 + 34


def test_the_last_block_is_computed_afresh() -> None:
    """32 tokens kept of 32: the next token's logits need at least one block computed."""
    fleet = Fleet([(even(), 1)])
    fleet.submit([Request(0, 0, 20, 13, keep=True)], 0.0)
    fleet.drain(0.0)
    fleet.submit([Request(0, 0, 32, 5, cached=32)], fleet.now)
    fleet.drain(fleet.now)
    assert (fleet.stats.prefill_tokens, fleet.stats.reused_tokens) == (20 + 16, 16)


def test_kv_that_comes_with_the_sample() -> None:
    """One of 11 tokens is there: ten decodes of a second, no prompt tokens."""
    fleet = Fleet([(even(prefill=7.0), 1)])
    fleet.submit([Request(0, 0, 10, 11, 1, kv_ready=True)], 3.0)
    assert ends(fleet.drain(3.0)) == {0: 13.0}
    assert (fleet.stats.prefill_tokens, fleet.stats.generated_tokens) == (0, 10)


def test_preempted_to_the_host_and_back() -> None:
    """As `test_preempts_the_youngest`: room for 4 blocks, at 12 s the younger has 32 tokens of KV, 2 blocks.

    0.25 s a block: the iteration from 12 takes 1.5 s. The other ends at 19.5; then 2 blocks come back, another half
    second, and 7 tokens follow, 1 s each. Recomputing took 6 s, as the prefill is free there and gives a token.
    """
    swapping = replace(even(capacity=64), swap_block_seconds=0.25, swap_capacity_tokens=32)
    fleet = Fleet([(swapping, 1)])
    fleet.submit([Request(i, i, 20, 20) for i in range(2)], 0.0)
    assert ends(fleet.drain(0.0)) == {0: 19.5, 1: 27.0}
    stats = fleet.stats
    assert (stats.preemptions, stats.swapped_tokens, stats.swap_seconds) == (1, 32, 1.0)
    assert (stats.reprefilled_tokens, stats.generated_tokens) == (0, 40)


def test_a_full_host_means_recompute() -> None:
    small = replace(even(capacity=64), swap_block_seconds=0.25, swap_capacity_tokens=16)
    fleet = Fleet([(small, 1)])
    fleet.submit([Request(i, i, 20, 20) for i in range(2)], 0.0)
    assert ends(fleet.drain(0.0)) == {0: 19.0, 1: 25.0}
    assert (fleet.stats.swapped_tokens, fleet.stats.reprefilled_tokens) == (0, 33)


@pytest.mark.parametrize(("chunked", "finish"), [(True, {0: 20.5, 1: 11.5}), (False, {0: 21.0, 1: 11.0})])
def test_without_chunks_decodes_wait_for_prompts(chunked: bool, finish: dict[int, float]) -> None:
    """A prompt takes 5 s by itself (0.5 of it the weights), a decode 1 s. Each sample brings one, the second at 5.

    The first has a token at 5 and 11 to come. Mixed, the second prompt makes one decode 1 + 4.5 s long: 10 + 5.5 s.
    Whole, the first waits for it: 5 + 11 s. The second has its second token a decode after its first.
    """
    surface = replace(
        even(prefill=0.5),
        prefill_knots=np.array([0.0, 10.0]),
        prefill_seconds=np.array([0.0, 4.5]),
        chunked_prefill=chunked,
    )
    fleet = Fleet([(surface, 1)])
    fleet.submit([Request(0, 0, 10, 12)], 0.0)
    fleet.submit([Request(1, 1, 10, 2)], 5.0)
    assert ends(fleet.drain(5.0)) == finish


def test_whole_prompts_fill_the_budget() -> None:
    """700 tokens of 1000: the second prompt waits for the next iteration; one of 1500 goes alone. 1 ms a token."""
    surface = replace(even(), prefill_seconds=np.array([0.0, 1.0]), chunked_prefill=False)
    fleet = Fleet([(surface, 1)])
    fleet.submit([Request(i, i, n, 1) for i, n in enumerate((700, 400, 1500, 100))], 0.0)
    assert ends(fleet.drain(0.0)) == pytest.approx({0: 0.7, 1: 1.1, 2: 2.6, 3: 2.7})
