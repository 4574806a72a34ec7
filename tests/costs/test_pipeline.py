"""Bucket pipelines against sums done by hand."""

from __future__ import annotations

import pytest

from rlsim.costs.pipeline import pipeline

STAGES = {"gather": 10.0, "load": 5.0}


def test_stages_that_take_turns_add_up() -> None:
    parts = pipeline(STAGES, (("gather", "load"),), 5)
    assert parts == {"gather": 10.0, "load": 5.0}


def test_overlapped_stages_hide_all_but_one_item_of_the_faster() -> None:
    """x = 2 s, y = 1 s per bucket, K = 5: 2 + 4*2 + 1 = 11 s."""
    parts = pipeline(STAGES, (("gather",), ("load",)), 5)
    assert sum(parts.values()) == pytest.approx(11.0)
    assert parts["load"] == pytest.approx(1.0)


def test_one_item_has_nothing_to_overlap_with() -> None:
    assert sum(pipeline(STAGES, (("gather",), ("load",)), 1).values()) == pytest.approx(15.0)


def test_a_stage_that_no_group_names_goes_with_the_last() -> None:
    """quantise 6 + load 5 = 11 s beats gather 10 s: 11 + 10/5 = 13 s."""
    parts = pipeline({**STAGES, "quantise": 6.0}, (("gather",), ("load",)), 5)
    assert sum(parts.values()) == pytest.approx(13.0)
