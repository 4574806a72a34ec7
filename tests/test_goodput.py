"""Checkpoint interval and goodput: closed forms on paper, and the simulation in their limit."""

from __future__ import annotations

import sys
from dataclasses import replace
from math import e
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent / "sim"))

from prices_by_hand import Checkpoint, Hand, Sync, Training, fixed, regime

from rlsim.goodput import best_interval, expected_goodput, sentence
from rlsim.result import Labels, simulate
from rlsim.sim.faults import TRAINER_CRASH, Fault


def test_youngs_interval() -> None:
    # C = 60 s, M = 24 h: sqrt(2 · 60 · 86,400) = 3,220 s; Daly's terms -60 + 20 + 0.04.
    assert best_interval(60.0, 86400.0) == pytest.approx(3220 - 40, abs=1.0)
    assert best_interval(100.0, 40.0) == 40.0


def test_goodput_of_one_interval() -> None:
    # τ = 9, C = 1, R = 0, M = 10: 9 / (10 (e - 1)).
    assert expected_goodput(9.0, 1.0, 0.0, 10.0) == pytest.approx(9 / (10 * (e - 1)))
    assert expected_goodput(1000.0, 0.0, 5.0, 1e9) == pytest.approx(1.0, abs=1e-5)


def test_the_best_interval_is_best() -> None:
    best = best_interval(20.0, 3600.0)
    assert all(
        expected_goodput(best, 20.0, 300.0, 3600.0) >= expected_goodput(best * c, 20.0, 300.0, 3600.0)
        for c in (0.7, 1.4)
    )


@pytest.mark.parametrize("lag", [0.0, 20.0])
def test_the_simulation_tends_to_the_closed_form(lag: float) -> None:
    # Steps of 4 s, a save of 2 s every 10 steps, a crash every 200 s, restart 30 s; over about 25 crashes.
    hand = Hand(
        training=Training(update_seconds=2.0),
        sync=Sync(seconds=1.0),
        checkpoint=Checkpoint(2.0, lag, "async"),
        faults=(Fault(TRAINER_CRASH, "trainer", mtbf=400.0, places=2, duration=30.0),),
    )
    rules = regime(logprob="rollout", prompts=1, group_size=1, checkpoint_every=10)
    result = simulate(rules, hand.costs(), fixed(100, 1, 1), Labels("g", "v", 1), 800)
    summary = result.summary()
    block = summary["checkpoint"]
    assert block["mtbf_s"] == 200.0
    assert block["expected_goodput"] == pytest.approx(expected_goodput(40.0, 2.0, 30.0, 200.0, lag), abs=1e-4)
    assert summary["goodput"] == pytest.approx(block["expected_goodput"], abs=0.03)


def test_a_far_interval_gets_a_sentence() -> None:
    hand = Hand(
        training=Training(update_seconds=2.0),
        checkpoint=Checkpoint(1.0),
        faults=(Fault(TRAINER_CRASH, "trainer", mtbf=5000.0, duration=60.0),),
    )
    rules = regime(logprob="rollout")

    def told(every: int | None) -> str:
        rule = replace(rules, checkpoint_every=every)
        return sentence(simulate(rule, hand.costs(), fixed(100, 4, 2), Labels("g", "v", 0), 3).summary()) or ""

    assert "the best is one every" in told(500)
    assert "is near the best" in told(33)  # sqrt(2 · 1 · 5000) = 100 s of 3 s
    assert "begins again" in told(None)
