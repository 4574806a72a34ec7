"""Samples that pass through the engines more than once, timed on paper: an iteration takes a second."""

from __future__ import annotations

from dataclasses import replace
from math import inf

import pytest
from test_fleet import even

from rlsim.sim.engines import Engines
from rlsim.sim.fleet import Fleet
from rlsim.sim.journeys import Environment, Journeys, KvTransfer
from rlsim.sim.request import Request

TWO_TURNS = [(3, 20, 10.0), (2, 0, 0.0)]
Plans = dict[int, list[tuple[int, int, float]]]


def start(
    fleet: Fleet,
    plans: Plans | None,
    workers: int | None = None,
    keep: bool = False,
    transfer: KvTransfer | None = None,
) -> tuple[Engines, Journeys]:
    engines = Engines(fleet)
    return engines, Journeys(engines, None if plans is None else plans.__getitem__, workers, keep, transfer)


def play(engines: Engines, journeys: Journeys, *requests: Request) -> dict[int, float]:
    engines.submit(journeys.begin(requests), 0.0)
    return {request.id: time for time, request in engines.drain(0.0)}


def test_two_turns() -> None:
    """Prefill and first token in second 1, two more tokens by 3; the answer at 13; prefill and token 14, end 15."""
    engines, journeys = start(Fleet([(even(prefill=1.0), 1)]), {0: TWO_TURNS})
    assert play(engines, journeys, Request(0, 0, 16, 5)) == {0: 15.0}
    assert engines.in_flight == 0
    stats = engines.fleet.stats
    assert stats.generated_tokens == 5
    assert stats.prefill_tokens == 16 + (16 + 3 + 20)


def test_kept_contexts_are_not_prefilled_again() -> None:
    """16 + 3 tokens are one whole block of 16: of 39 tokens of the second turn 23 are prefilled."""
    engines, journeys = start(Fleet([(even(prefill=1.0), 1)]), {0: TWO_TURNS}, keep=True)
    play(engines, journeys, Request(0, 0, 16, 5))
    assert engines.fleet.stats.prefill_tokens == 16 + 39 - 16
    engines, journeys = start(Fleet([(even(prefill=1.0), 1)]), {0: TWO_TURNS}, keep=True)
    engines.submit(journeys.begin([Request(0, 0, 16, 5)]), 0.0)
    engines.play(5.0, False)
    engines.fleet.flush_cache(5.0)  # new weights
    engines.drain(5.0)
    assert engines.fleet.stats.prefill_tokens == 16 + 39


def test_a_returning_sample_goes_where_its_context_is() -> None:
    """Two engines, both empty when it comes back: the second has its context."""
    engines, journeys = start(Fleet([(even(), 2)]), {0: [(50, 0, 0.0)], 1: TWO_TURNS}, keep=True)
    engines.submit(journeys.begin([Request(0, 0, 16, 50), Request(1, 1, 16, 5)]), 0.0)
    done = engines.drain(0.0)
    assert {r.id: r.rank.place for _, r in done} == {0: 0, 1: 1}


def test_one_environment_worker_answers_one_after_the_other() -> None:
    """Both samples ask at 3; answers at 13 and 23."""
    engines, journeys = start(Fleet([(even(prefill=1.0), 1)]), {0: TWO_TURNS, 1: TWO_TURNS}, workers=1)
    ends = play(engines, journeys, Request(0, 0, 16, 5), Request(1, 1, 16, 5))
    assert ends == {0: 15.0, 1: 25.0}


def test_a_failed_environment_ends_a_sample_when_it_gives_up() -> None:
    engines, journeys = start(Fleet([(even(prefill=1.0), 1)]), {0: [(3, 0, 10.0)]})
    assert play(engines, journeys, Request(0, 0, 16, 3)) == {0: 13.0}


def test_taken_out_while_a_failed_environment_works_it_ends_once() -> None:
    """It asks at 3, is taken out at 7 and handed over again at 9, beside another: only its end was missing."""
    engines, journeys = start(Fleet([(even(prefill=1.0), 1)]), {0: [(3, 0, 10.0)], 1: [(4, 0, 0.0)]})
    engines.submit(journeys.begin([Request(0, 0, 16, 3)]), 0.0)
    engines.play(7.0, False)
    gone = engines.abort(None, 7.0)
    engines.play(9.0, False)
    engines.submit(journeys.go_on(gone, 9.0), 9.0)
    engines.submit(journeys.begin([Request(1, 1, 16, 4)]), 9.0)
    assert [(c.time, c.request.id) for c in engines.play(inf, True)] == [(9.0, 0)]
    assert [(c.time, c.request.id) for c in engines.play(inf, True)] == [(13.0, 1)]


def test_play_stops_at_ends_of_samples_only() -> None:
    engines, journeys = start(Fleet([(even(prefill=1.0), 1)]), {0: TWO_TURNS, 1: [(8, 0, 0.0)]})
    engines.submit(journeys.begin([Request(0, 0, 16, 5), Request(1, 1, 16, 8)]), 0.0)
    assert [time for time, _ in engines.play(inf, True)] == [8.0]
    assert engines.in_flight == 1
    assert [time for time, _ in engines.play(inf, True)] == [15.0]


@pytest.mark.parametrize("when", [2.0, 7.0, 14.0])
def test_taken_out_at_any_moment_and_resumed(when: float) -> None:
    """In a turn, at the environment, in the last turn: tokens so far are known, and all five are generated once."""
    engines, journeys = start(Fleet([(even(prefill=1.0), 1)]), {0: TWO_TURNS})
    engines.submit(journeys.begin([Request(0, 0, 16, 5)]), 0.0)
    engines.play(when, False)
    (request,) = engines.abort(None, when)
    assert engines.in_flight == 0
    assert request.generated == {2.0: 2, 7.0: 3, 14.0: 4}[when]
    engines.submit(journeys.go_on([request], when), when)
    (completion,) = engines.drain(when)
    assert completion.request.generated == 5
    assert engines.fleet.stats.generated_tokens == 5


def test_begun_again_it_begins_with_its_first_turn() -> None:
    engines, journeys = start(Fleet([(even(prefill=1.0), 1)]), {0: TWO_TURNS})
    engines.submit(journeys.begin([Request(0, 0, 16, 5)]), 0.0)
    engines.play(14.0, False)
    engines.abort(None, 14.0)
    engines.submit(journeys.begin([Request(0, 0, 16, 5)]), 14.0)
    assert [time for time, _ in engines.drain(14.0)] == [29.0]


# Prefill and decode engines ----------

TRANSFER = KvTransfer(bytes_per_token=1.0, rate=17.0 / 2, latency=0.5)


def apart() -> Fleet:
    """A prefill engine (1 s for a prompt) and a decode engine (1 s a token)."""
    return Fleet([(even(prefill=1.0), 1), (even(), 1)], roles=("prefill", "decode"))


def test_kv_travels_to_a_decode_engine() -> None:
    """Prompt and first token at 1; 17 tokens at 8.5 a second and 0.5 s on the way: 3.5; three more tokens: 6.5."""
    engines, journeys = start(apart(), None, transfer=TRANSFER)
    assert play(engines, journeys, Request(0, 0, 16, 4)) == {0: 6.5}
    assert [engine.stats.generated_tokens for engine in engines.fleet.engines] == [1, 3]
    assert [engine.stats.prefill_tokens for engine in engines.fleet.engines] == [16, 0]


def test_transfers_of_one_place_take_turns() -> None:
    """Both prompts are done at 1: the second leaves when the first has left, at 3, and arrives at 5.5."""
    engines, journeys = start(apart(), None, transfer=TRANSFER)
    ends = play(engines, journeys, Request(0, 0, 16, 4), Request(1, 1, 16, 4))
    assert ends == {0: 6.5, 1: 8.5}


def test_a_sample_of_one_token_ends_on_the_prefill_engine() -> None:
    engines, journeys = start(apart(), None, transfer=TRANSFER)
    assert play(engines, journeys, Request(0, 0, 16, 1)) == {0: 1.0}


def test_taken_out_on_the_way_it_is_prefilled_again() -> None:
    engines, journeys = start(apart(), None, transfer=TRANSFER)
    engines.submit(journeys.begin([Request(0, 0, 16, 4)]), 0.0)
    engines.play(2.0, False)
    (request,) = engines.abort(None, 2.0)
    assert request.generated == 1
    engines.submit(journeys.go_on([request], 2.0), 2.0)
    (completion,) = engines.drain(2.0)
    assert completion.request.generated == 4
    assert sum(engine.stats.generated_tokens for engine in engines.fleet.engines) == 4


def test_turns_on_prefill_and_decode_engines() -> None:
    """Every turn's prompt goes to the prefill engine: 16, then 16 + 3 + 20 tokens."""
    engines, journeys = start(apart(), {0: TWO_TURNS}, transfer=TRANSFER, keep=True)
    play(engines, journeys, Request(0, 0, 16, 5))
    assert [engine.stats.prefill_tokens for engine in engines.fleet.engines] == [16 + 39, 0]


def test_scaled_durations_scale_the_ends() -> None:
    plans: Plans = {i: [(3 + i, 20, 1.7 * i), (2, 0, 0.0)] for i in range(6)}
    longer = {i: [(g, o, 3.0 * w) for g, o, w in turns] for i, turns in plans.items()}
    requests = [Request(i, i, 16, 5) for i in range(6)]
    ends = []
    for c, mine in ((1.0, plans), (3.0, longer)):
        surface = replace(even(prefill=0.7), kv_capacity_tokens=320).scaled(c)
        engines, journeys = start(Fleet([(surface, 1)]), mine, workers=2, keep=True)
        ends.append(play(engines, journeys, *[Request(r.id, r.group, r.prompt, r.response) for r in requests]))
    assert ends[1] == pytest.approx({i: 3.0 * time for i, time in ends[0].items()})


def test_environment_is_first_come_first_served() -> None:
    pool = Environment(2)
    assert [pool.answers(at, 5.0) for at in (0.0, 1.0, 2.0, 9.0)] == [5.0, 6.0, 10.0, 14.0]
    assert Environment(None).answers(2.0, 5.0) == 7.0
