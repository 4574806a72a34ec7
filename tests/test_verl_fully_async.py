"""verl's published table of asynchronous against co-located training (H20, Qwen2.5-Math-7B): direction and rough size.

Source: verl docs at 1dda039, fully asynchronous policy. Response lengths are not published; the scenario assumes some.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from rlsim import load_scenario, simulate

FILE = load_scenario(Path(__file__).parents[1] / "scenarios" / "verl_fully_async.yaml")
PUBLISHED = {"colocated-32": 790.10, "async-16-16": 294.77, "colocated-64": 365.28, "async-32-32": 189.26}
STEP = {"theta-0": 231.34, "theta-0.1": 171.30, "async-64-64": 150.63}


@pytest.fixture(scope="module")
def predicted() -> dict[str, dict[str, Any]]:
    return {name: simulate(FILE.variant(name), steps=1).summary() for name in (*PUBLISHED, *STEP)}


def test_its_own_gpus_beat_turns_on_the_same_ones(predicted: dict[str, dict[str, Any]]) -> None:
    for gpus, half in ((32, "16-16"), (64, "32-32")):
        together, apart = f"colocated-{gpus}", f"async-{half}"
        ratio = predicted[together]["step_time_s"]["mean"] / predicted[apart]["step_time_s"]["mean"]
        assert 1.2 < ratio < PUBLISHED[together] / PUBLISHED[apart]  # 2.68 and 1.93
    for name, seconds in PUBLISHED.items():
        assert seconds / 1.6 < predicted[name]["step_time_s"]["mean"] < seconds * 1.6


def test_the_trainer_waits_less_the_higher_the_threshold(predicted: dict[str, dict[str, Any]]) -> None:
    waits = [predicted[name]["phases_s"]["wait_rollout"] for name in STEP]
    assert waits == sorted(waits, reverse=True)
    assert waits[0] > 4 * waits[1]
    for name, seconds in STEP.items():
        assert seconds / 1.4 < predicted[name]["step_time_s"]["mean"] < seconds * 1.4
    stale = [predicted[name]["staleness"]["mean"] for name in STEP]
    assert stale == sorted(stale)
    assert stale[0] == 0
