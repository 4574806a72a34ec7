"""Sentences that compare variants, on summaries by hand."""

from __future__ import annotations

from typing import Any

from rlsim.views.verdict import sentences

PHASES = ("rollout", "train", "weight_sync", "wait_rollout")


def summary(variant: str, staleness: float = 0.0, **phases: float) -> dict[str, Any]:
    return {
        "variant": variant,
        "feasible": True,
        "problems": [],
        "step_time_s": {"mean": sum(phases.values())},
        "phases_s": {name: phases.get(name, 0.0) for name in PHASES},
        "staleness": {"mean": staleness, "max": staleness},
        "staleness_updates": {"mean": 4 * staleness},
    }


def test_each_variant_against_the_first() -> None:
    base = summary("colocated", rollout=60.0, train=40.0)
    lines = sentences([base, summary("off", 1.0, train=50.0), summary("slow", rollout=80.0, train=40.0)])
    assert lines[0].startswith(
        "off (off-policy, samples 1.0 versions old on average, at most 1, 4.0 optimizer updates)"
    )
    assert "is 2.00x as fast as colocated: rollout -60.0 s, update +10.0 s" in lines[0]
    assert lines[1] == "slow (on-policy) takes 1.20x as long as colocated: rollout +20.0 s"


def test_a_gain_that_comes_of_training_on_short_answers_says_so() -> None:
    base, fast = summary("all", rollout=100.0), summary("first", rollout=50.0)
    base["response_tokens"], fast["response_tokens"] = (
        {"drawn": 1e3, "trained": 980.0},
        {"drawn": 1e3, "trained": 730.0},
    )
    (line,) = sentences([base, fast])
    assert line.endswith("rollout -50.0 s; the answers it trains on are 27% shorter than those drawn")


def test_differences_under_the_noise_are_no_verdict() -> None:
    lines = sentences([summary("a", rollout=100.0), summary("b", rollout=98.0)])
    assert "is level with a (-2%, under the noise of real runs)" in lines[0]


def test_what_does_not_fit_names_the_nearest_change() -> None:
    bad = {"variant": "big", "feasible": False, "problems": [{"fix": "trainer.tp: 8"}]}
    assert sentences([summary("a", rollout=1.0), bad]) == ["big does not fit: trainer.tp: 8"]
