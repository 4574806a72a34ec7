"""The engine against the per-iteration reference: finish times to 1e-9, all counts equal."""

from __future__ import annotations

from unittest.mock import patch

import pytest
from engine_cases import COUNTS, SECONDS, Case, cases, play_fleet, play_reference
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

quick = settings(
    max_examples=50, deadline=None, report_multiple_bugs=False, suppress_health_check=[HealthCheck.too_slow]
)


def same(case: Case) -> None:
    ours, theirs = play_fleet(case), play_reference(case)
    assert ours.aborted == theirs.aborted
    assert ours.finish.keys() == theirs.finish.keys()
    for id, time in theirs.finish.items():
        assert ours.finish[id] == pytest.approx(time, rel=1e-9)
        assert ours.start[id] == pytest.approx(theirs.start[id], rel=1e-9)
    for name in COUNTS:
        assert ours.counts[name] == theirs.counts[name], name
    for name in SECONDS:
        assert ours.counts[name] == pytest.approx(theirs.counts[name], rel=1e-9), name


@given(cases(eventful=False))
@quick
def test_one_batch(case: Case) -> None:
    same(case)


@given(cases())
@quick
def test_submits_pauses_weight_updates_aborts(case: Case) -> None:
    same(case)


@given(cases(wide=True))
@quick
def test_attention_ranks(case: Case) -> None:
    same(case)


@given(cases(), st.integers(0, 3), st.integers(1, 8))
@quick
def test_looking_ahead_early(case: Case, quiet: int, nearest: int) -> None:
    """As `test_submits...`, but engines look ahead after a few jumps already, a few finishes at first."""
    with patch.multiple("rlsim.sim.engine", QUIET=quiet, NEAREST=nearest, FARTHEST=16):
        same(case)


@given(cases(eventful=False, refill=True))
@quick
def test_refill_at_completions(case: Case) -> None:
    same(case)


@given(cases(pressed=True))
@quick
def test_kept_contexts_swaps_whole_prompts(case: Case) -> None:
    same(case)


@given(cases(pressed=True), st.integers(0, 3), st.integers(1, 8))
@quick
def test_looking_ahead_with_kept_contexts(case: Case, quiet: int, nearest: int) -> None:
    with patch.multiple("rlsim.sim.engine", QUIET=quiet, NEAREST=nearest, FARTHEST=16):
        same(case)
