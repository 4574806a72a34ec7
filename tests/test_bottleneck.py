"""The sentence names the largest cause with its numbers."""

from __future__ import annotations

from typing import Any

from rlsim.bottleneck import bottleneck
from rlsim.sim.recorder import PHASES, POOL


def summary(tail: float | None = 0.0, pool: dict[str, float] | None = None, **phases: float) -> dict[str, Any]:
    step = sum(phases.values())
    return {
        "phases_s": {name: phases.get(name, 0.0) for name in PHASES},
        "rollout_pool_s": {name: (pool or {}).get(name, 0.0) for name in POOL},
        "step_time_s": {"mean": step},
        "tail": None if tail is None else {"seconds": tail, "share": tail / step},
        "samples": {"trained": 100, "dropped": {}},
        "preemptions": 0,
    }


def test_a_long_tail_is_the_story() -> None:
    text = bottleneck(summary(tail=41.0, rollout=62.0, train=38.0), "colocated-sync")
    assert text == (
        "The rollout tail decides: 41% of the step (41.0 s) runs with fewer than a quarter of the samples; the rollout "
        "takes 62.0 of 100.0 s (62%); next is the update with 38.0 of 100.0 s (38%)."
    )


def test_a_short_tail_is_not() -> None:
    assert bottleneck(summary(tail=5.0, rollout=62.0, train=38.0), "colocated-sync").startswith(
        "Generation decides: 62.0 of 100.0 s (62%)"
    )


def test_every_phase_can_decide() -> None:
    for name in ("reward", "logprob", "reference", "train", "weight_sync", "offload", "onload", "other"):
        text = bottleneck(summary(**{"rollout": 1.0, name: 9.0}), "colocated-sync")
        assert "9.0 of 10.0 s (90%)" in text


def test_overlapped_regimes_name_who_sets_the_pace() -> None:
    waiting = summary(tail=None, train=20.0, wait_rollout=70.0, weight_sync=10.0)
    assert bottleneck(waiting, "async").startswith("The rollout sets the pace: the trainer waits 70.0 of 100.0 s (70%)")
    busy = summary(tail=None, pool={"wait_trainer": 60.0}, train=90.0, weight_sync=10.0)
    text = bottleneck(busy, "async")
    assert text.startswith("The trainer sets the pace: 90.0 of 100.0 s (90%)")
    assert "stands still 60.0 of 100.0 s (60%)" in text


def test_a_trainer_that_waits_a_little_while_the_pool_never_does_is_not_the_bottleneck() -> None:
    """2 of 100 s: more trainer GPUs alone would only lengthen the wait."""
    text = bottleneck(summary(tail=None, train=68.0, wait_rollout=2.0, weight_sync=30.0), "one-step-off")
    assert text.startswith("Trainer and rollout are balanced: the trainer waits 2.0 of 100.0 s (2%)")
    assert "more trainer GPUs" not in text


def test_the_controller_is_no_pass_of_the_trainer() -> None:
    """3 s of passes and 7 s of controller: GPUs shorten the three."""
    text = bottleneck(summary(tail=None, train=3.0, other=7.0), "async")
    assert "3.0 of 10.0 s (30%) in its passes" in text
    assert "the controller 7.0 of 10.0 s (70%)" in text


def test_dropped_samples_are_mentioned() -> None:
    case = summary(tail=None, train=20.0, wait_rollout=80.0)
    case["samples"]["dropped"] = {"stale": 25}
    assert "20.0% of the finished samples are dropped as too old" in bottleneck(case, "async")


def test_thrashing_engines_are_mentioned() -> None:
    """250 preemptions over 100 samples."""
    case = summary(rollout=80.0, train=20.0) | {"preemptions": 250}
    assert "run out of KV cache, 2.5 preemptions a sample" in bottleneck(case, "colocated-sync")


def test_generation_for_nothing_is_named() -> None:
    one = summary(rollout=62.0, train=38.0)
    one["tokens"] = {"generated": 1000, "wasted": 640}
    one["samples"]["dropped"] = {"zero_variance": 60, "surplus": 4}
    text = bottleneck(one, "colocated-sync")
    assert text.endswith(" 64% of the generated tokens are thrown away: most are in groups of equal rewards.")
    one["samples"]["dropped"] = {}
    assert bottleneck(one, "colocated-sync").endswith("thrown away: what is stopped begins again.")
    one["tokens"]["wasted"] = 100
    assert "thrown away" not in bottleneck(one, "colocated-sync")


def test_other_is_named_by_what_it_is() -> None:
    from rlsim.bottleneck import _upkeep

    split = {"controller": 2.0, "checkpoint": 0.0, "evaluation": 0.0, "restart": 50.0, "lost": 41.0}
    assert _upkeep({"other_s": split}) == "the restart and work lost in crashes"
    assert _upkeep({}) == "the controller"
