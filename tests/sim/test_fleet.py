"""The fleet: what happens at which boundary, causality, scaling, and what comes out of its counters."""

from __future__ import annotations

from dataclasses import replace
from math import inf

import numpy as np
import pytest
from engine_cases import Case, cases, random_surface
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from rlsim.sim.fleet import Fleet
from rlsim.sim.request import Completion, Request
from rlsim.sim.surface import Surface

quick = settings(max_examples=30, deadline=None, suppress_health_check=[HealthCheck.too_slow])


def even(seconds: float = 1.0, slots: int = 4, capacity: int = 10**6, prefill: float = 0.0, ranks: int = 1) -> Surface:
    """Every iteration takes `seconds`, one of prompt tokens alone `prefill`."""
    rows = np.full((slots + 1, 2), seconds)
    rows[0] = 0.0
    return Surface(
        knots=np.array([0.0, 1000.0]),
        rank_rows=rows,
        joint=np.zeros(ranks * slots + 1),
        prefill_knots=np.array([0.0, 1000.0]),
        prefill_seconds=np.zeros(2),
        prefill_pair_seconds=0.0,
        prefill_base=prefill,
        provenance={},
        kv_capacity_tokens=capacity,
        block_size=16,
        max_num_seqs=slots,
        max_num_batched_tokens=1000,
    )


def ends(done: list[Completion]) -> dict[int, float]:
    return {request.id: time for time, request in done}


def batch(case: Case) -> list[Request]:
    return [Request(i, group, prompt, response) for i, (group, prompt, response) in enumerate(case.samples)]


# --- on paper ---------------------------------------------------------------


def test_one_sample() -> None:
    """Prefill gives the first of 5 tokens after 0.5 s; four decode iterations of 1 s follow."""
    fleet = Fleet([(even(prefill=0.5), 1)])
    fleet.submit([Request(0, 0, 10, 5)], 2.0)
    assert ends(fleet.drain(2.0)) == {0: 6.5}
    assert (fleet.stats.iterations, fleet.stats.prefill_tokens, fleet.stats.generated_tokens) == (5, 10, 5)


def test_submit_in_the_middle_of_a_jump() -> None:
    """Decoding 1 s a token; a sample that comes at 3.5 is admitted at 4 and prefilled beside a decode, to 5."""
    fleet = Fleet([(even(), 1)])
    fleet.submit([Request(0, 0, 10, 11)], 0.0)  # prefill free at 0, ends at 10
    fleet.submit([late := Request(1, 1, 10, 3)], 3.5)
    assert ends(fleet.drain(3.5)) == {1: 7.0, 0: 10.0}
    assert late.start == 4.0


def test_a_boundary_at_the_moment_counts_as_before() -> None:
    """What comes exactly at a boundary takes part in the iteration that begins there."""
    fleet = Fleet([(even(), 1)])
    fleet.submit([Request(0, 0, 10, 11)], 0.0)
    fleet.submit([late := Request(1, 1, 10, 3)], 4.0)
    assert ends(fleet.drain(4.0)) == {1: 7.0, 0: 10.0}
    assert late.start == 4.0


def test_pause_loses_the_iteration_under_way() -> None:
    fleet = Fleet([(even(), 1)])
    fleet.submit([Request(0, 0, 10, 11)], 0.0)
    fleet.pause(3.5)
    assert fleet.stats.generated_tokens == 4
    fleet.resume(20.0)
    assert ends(fleet.drain(20.0)) == {0: 27.0}


def test_weight_update_without_kv() -> None:
    """At 3.5 three decodes are done: 4 tokens. Prompt and these 4 are prefilled again, giving the fifth at once."""
    fleet = Fleet([(even(), 1)])
    fleet.submit([Request(0, 0, 10, 11)], 0.0)
    fleet.interrupt(3.5, keep_kv=False)
    assert ends(fleet.drain(3.5)) == {0: 9.5}
    assert (fleet.stats.prefill_tokens, fleet.stats.reprefilled_tokens) == (24, 14)
    assert fleet.stats.generated_tokens == 11


def test_weight_update_with_kv_changes_nothing() -> None:
    fleet = Fleet([(even(), 1)])
    fleet.submit([Request(0, 0, 10, 11)], 0.0)
    fleet.interrupt(3.5, keep_kv=True)
    assert ends(fleet.drain(3.5)) == {0: 10.0}
    assert fleet.stats.reprefilled_tokens == 0


def test_a_group_shares_its_prompt() -> None:
    """40 prompt tokens: 2 full blocks of 16 are shared, so the other samples prefill 8 tokens each."""
    for share, tokens in ((True, 40 + 8 + 8), (False, 120)):
        fleet = Fleet([(even(), 1)], share_prompts=share)
        fleet.submit([Request(i, 0, 40, 5) for i in range(3)], 0.0)
        fleet.drain(0.0)
        assert fleet.stats.prefill_tokens == tokens


def test_abort_gives_back_what_was_generated() -> None:
    fleet = Fleet([(even(slots=1), 2)])
    fleet.submit([Request(i, i, 10, 11) for i in range(3)], 0.0)  # 0 and 1 run, 2 waits behind 0
    gone = fleet.abort({0, 1}, 3.5)
    assert [(r.id, r.done) for r in gone] == [(0, 4), (1, 4)]
    assert fleet.in_flight == 1
    assert ends(fleet.drain(3.5)) == {2: 13.5}


def test_abort_of_what_blocks_the_queue() -> None:
    """Room for 4 blocks: 0 takes 2, so 1 (3 blocks) waits and keeps others waiting. Without it, 2 is admitted."""
    fleet = Fleet([(even(capacity=64), 1)])
    fleet.submit([Request(0, 0, 20, 11), Request(1, 1, 40, 5)], 0.0)
    fleet.abort({1}, 3.0)
    fleet.play(4.5, False)
    fleet.submit([Request(2, 2, 20, 3)], 4.5)
    assert ends(fleet.drain(4.5)) == {2: 8.0, 0: 10.0}


def test_preempts_the_youngest() -> None:
    """Room for 4 blocks: two samples of 2 blocks each run till one needs a third; the younger goes and comes back."""
    fleet = Fleet([(even(capacity=64), 1)])
    fleet.submit([Request(i, i, 20, 20) for i in range(2)], 0.0)
    # contexts 33 begin with the decode of token 14, iteration 13: then at 12 s the younger (13 tokens) is preempted
    assert ends(fleet.drain(0.0)) == {0: 19.0, 1: 25.0}
    assert fleet.stats.preemptions == 1
    assert fleet.stats.reprefilled_tokens == 33


def test_a_sample_that_never_fits_is_an_error() -> None:
    fleet = Fleet([(even(capacity=32), 1)])
    fleet.submit([Request(0, 0, 20, 20)], 0.0)
    with pytest.raises(RuntimeError, match="does not fit"):
        fleet.drain(0.0)


# --- causality ---------------------------------------------------------------


@given(cases(eventful=False), st.integers(1, 4))
@quick
def test_no_engine_is_past_the_completion_that_is_reacted_to(case: Case, chain: int) -> None:
    """Each completion submits another sample; every boundary played lies in its past, and it is in time for it."""
    fleet = Fleet(case.kinds(), share_prompts=case.share)
    requests = batch(case)
    fleet.submit(requests, 0.0)
    number = len(requests)
    while done := fleet.play(inf, True):
        assert {time for time, _ in done} == {fleet.now}
        assert all(engine.t <= fleet.now for engine in fleet.engines)
        new = [Request(number + i, number + i, r.prompt, r.response) for i, (_, r) in enumerate(done) if r.id < chain]
        number += len(new)
        fleet.submit(new, fleet.now)
    assert fleet.in_flight == 0


def test_reaction_reaches_the_other_engine() -> None:
    """Engine 0 ends its sample at 3; the reaction goes to engine 1, whose own jump would have lasted to 50."""
    fleet = Fleet([(even(slots=1), 1), (even(0.7), 1)])
    fleet.submit([Request(0, 0, 5, 4), Request(1, 1, 5, 51), Request(2, 2, 5, 51)], 0.0)
    (first,) = fleet.play(inf, True)
    assert first.time == 3.0
    assert fleet.engines[1].t <= 3.0
    fleet.submit(
        [late := Request(3, 3, 5, 2)], 3.0
    )  # engine 0 holds sample 2, engine 1 one sample: the first of equals
    fleet.submit([later := Request(4, 4, 5, 2)], 3.0)
    assert {late.rank, later.rank} == {engine.ranks[0] for engine in fleet.engines}
    finish = ends(fleet.drain(3.0))
    assert later.start == pytest.approx(3.5)
    assert finish[4] == pytest.approx(4.9)


@given(cases(eventful=False))
@quick
def test_playing_in_pieces_and_draining_agree(case: Case) -> None:
    whole, parts = (Fleet(case.kinds(), share_prompts=case.share) for _ in range(2))
    whole.submit(batch(case), 0.0)
    parts.submit(batch(case), 0.0)
    at_once = ends(whole.drain(0.0))
    piecewise: dict[int, float] = {}
    while parts.in_flight:
        piecewise |= ends(parts.play(parts.now + 0.37, False))
    assert piecewise == pytest.approx(at_once, rel=1e-9)
    assert parts.stats.iterations == whole.stats.iterations
    assert parts.stats.preemptions == whole.stats.preemptions


# --- scaling and monotonicity --------------------------------------------------


@given(cases(eventful=False), st.sampled_from([0.25, 2.0, 1024.0]))
@quick
def test_all_durations_times_c_is_all_times_times_c(case: Case, c: float) -> None:
    """Powers of two are exact in floating point, so the equality is."""
    slow = Fleet([(surface.scaled(c), n) for surface, n in case.kinds()])
    fast = Fleet(case.kinds())
    slow.submit(batch(case), 0.0)
    fast.submit(batch(case), 0.0)
    assert ends(slow.drain(0.0)) == {id: c * time for id, time in ends(fast.drain(0.0)).items()}


@given(cases(eventful=False), st.integers(0, 2**32))
@quick
def test_a_faster_surface_never_ends_later(case: Case, seed: int) -> None:
    """With all samples there from the beginning the iterations are the same ones, so each sample ends no later."""
    rng = np.random.default_rng(seed)
    kinds = case.kinds()
    faster = [
        (
            replace(
                s,
                rank_rows=s.rank_rows * rng.uniform(0.5, 1.0, (len(s.rank_rows), 1)),
                prefill_base=s.prefill_base * rng.uniform(0.5, 1.0),
            ),
            n,
        )
        for s, n in kinds
    ]
    before, after = Fleet(kinds), Fleet(faster)
    before.submit(batch(case), 0.0)
    after.submit(batch(case), 0.0)
    slow, fast = ends(before.drain(0.0)), ends(after.drain(0.0))
    assert all(fast[id] <= slow[id] * (1 + 1e-12) for id in slow)
    assert before.stats.iterations == after.stats.iterations


# --- figures ---------------------------------------------------------------


@given(cases(eventful=False))
@quick
def test_counters_and_stats_agree(case: Case) -> None:
    fleet = Fleet(case.kinds(), share_prompts=case.share)
    fleet.submit(batch(case), 0.0)
    fleet.drain(0.0)
    counters, stats = fleet.counters(), fleet.stats
    time, running = counters["time"], counters["running"]
    assert running[-1] == counters["kv_tokens"][-1] == 0
    assert running.max() <= len(case.samples)
    assert running.min() >= 0
    assert stats.generated_tokens == sum(response for _, _, response in case.samples)
    # whatever decodes holds a slot
    assert stats.batch_seconds <= float((np.diff(time) * running[:-1]).sum()) * (1 + 1e-9)
    assert stats.busy_seconds <= (time[-1] - time[0]) * len(fleet.engines) * (1 + 1e-9)


def test_surface_helpers_agree() -> None:
    """`row` is linear between the knots and goes on with the last slope."""
    surface = random_surface(np.random.default_rng(1), 1, 4, 1000, 100, 16)
    knots, row = surface.knots, surface.rank_rows[3]
    assert surface.row(3, float(knots[2])) == pytest.approx(row[2])
    middle = float(knots[1] + knots[2]) / 2
    assert surface.row(3, middle) == pytest.approx((row[1] + row[2]) / 2)
    beyond = row[-1] + (row[-1] - row[-2]) / (knots[-1] - knots[-2]) * 50
    assert surface.row(3, float(knots[-1]) + 50) == pytest.approx(beyond)
