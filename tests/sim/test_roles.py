"""Models besides the policy on the loop's clock, with round numbers: what is exposed, and what it costs."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from prices_by_hand import Hand, Reward, Training, fixed, regime, uniform

from rlsim.accounting import mfu, utilization
from rlsim.sim.run import play

PROMPTS, GROUP = 4, 2


@dataclass(frozen=True)
class Critic:
    passes: Training
    gpus: int = 0
    onload_seconds: float = 0.0
    offload_seconds: float = 0.0


@dataclass(frozen=True)
class Replicas:
    each: float
    workers: int = 1
    gpus: int = 2
    sources: dict[str, float] = field(default_factory=lambda: {"measured": 1.0})

    def seconds(self, tokens: Any) -> Any:
        return np.full(np.shape(tokens), self.each)


HAND = Hand(training=Training(update_seconds=3.0, logprob_seconds=2.0, flops=1e15), onload=0.5, offload=0.25)


def step(colocated: bool = False, settings: dict[str, Any] | None = None, hand: Hand = HAND, **roles: Any) -> Any:
    """The second of two steps: 100 tokens in 1 s, whatever else runs."""
    costs = replace(hand.costs(), **roles)
    rules = regime("sync", colocated, PROMPTS, GROUP, **(settings or {}))
    return play(rules, costs, fixed(100, PROMPTS, GROUP), 2, 0).steps[1], costs


def test_shared_critic_goes_before_the_policy() -> None:
    critic = Critic(Training(update_seconds=4.0, logprob_seconds=1.5), onload_seconds=0.7, offload_seconds=0.6)
    one, _ = step(True, {"mini_batches": 2, "epochs": 2}, critic=critic)
    # values 1.5 + log-prob 2; 2 mini-batches x 2 epochs of 4 s and of 3 s; the critic's states in and out, the policy's
    assert one.phases["logprob"] == pytest.approx(3.5)
    assert one.phases["train"] == pytest.approx(4 * 4 + 4 * 3)
    assert one.phases["onload"] == pytest.approx(0.7 + 0.5)
    assert one.phases["offload"] == pytest.approx(0.6 + 0.25)
    assert sum(one.phases.values()) == pytest.approx(one.seconds)
    assert not one.exposed


@pytest.mark.parametrize(
    ("values", "update", "logprob", "train"),
    [
        (1.0, 2.0, 2.0, 3.0),  # done before the policy at both points: hidden
        (5.0, 2.0, 5.0, 3.0),  # values 3 s late; 5 + 2 < 5 + 3
        (1.0, 9.0, 2.0, 8.0),  # 1 + 9 = 10 s, the policy's 2 + 3 = 5: 5 s exposed
    ],
)
def test_own_critic_runs_beside(values: float, update: float, logprob: float, train: float) -> None:
    critic = Critic(Training(update_seconds=update, logprob_seconds=values), gpus=8)
    one, costs = step(critic=critic)
    assert (one.phases["logprob"], one.phases["train"]) == (pytest.approx(logprob), pytest.approx(train))
    assert one.exposed.get("logprob", 0.0) == pytest.approx(logprob - 2.0)
    assert one.beside["critic"] == pytest.approx((values + update) * 8)
    # waiting for the critic is no work of the trainer's 8 GPUs: 5 s of passes
    busy = utilization([one], costs)
    assert busy["trainer"] == pytest.approx(5.0 / one.seconds)
    rollout = busy["rollout"] * 16
    assert busy["all"] == pytest.approx((busy["trainer"] * 8 + rollout + (values + update) * 8 / one.seconds) / 24)
    assert mfu([one], costs) == pytest.approx(1e15 / (3.0 * 8 * 1e15))


def test_own_reference_exposes_its_tail() -> None:
    # 8 samples end together; two replicas take 1 s each: there 4 s later, 2 s of which the log-prob pass hides
    one, _ = step(settings={"reference": True}, reference=Replicas(1.0, workers=2, gpus=4))
    assert one.phases["reference"] == pytest.approx(4.0 - 2.0)
    assert one.beside["reference"] == pytest.approx(8 * 1.0 * 4 / 2)
    # of a streaming rollout only what the last samples need is left
    quick, _ = step(settings={"reference": True}, reference=Replicas(0.1, workers=2))
    assert quick.phases["reference"] == 0.0


def test_reward_model_on_the_trainers_gpus_is_a_pass() -> None:
    one, _ = step(True, scoring=Training(reference_seconds=0.75))
    assert one.phases["reward"] == pytest.approx(0.75)


def test_own_reward_model_is_busy() -> None:
    one, _ = step(hand=replace(HAND, reward=Reward(0.5, workers=4)), reward_model=Replicas(0.5, workers=4, gpus=8))
    # 8 samples, 0.5 s each on one of 4 replicas of 2 GPUs
    assert one.beside["reward_model"] == pytest.approx(8 * 0.5 * 2)
    assert one.phases["reward"] == pytest.approx(1.0)


@given(
    c=st.sampled_from([0.5, 3.0]),
    own=st.booleans(),
    colocated=st.booleans(),
    values=st.floats(0.1, 9.0),
    update=st.floats(0.1, 9.0),
)
def test_step_scales_with_all_durations(c: float, own: bool, colocated: bool, values: float, update: float) -> None:
    def run(factor: float) -> Any:
        passes = Training(update_seconds=update, logprob_seconds=values).scaled(factor)
        critic = Critic(passes, 8 if own else 0, 0.3 * factor, 0.2 * factor)
        return step(
            colocated, {"reference": True}, HAND.scaled(factor), critic=critic, reference=Replicas(0.6 * factor)
        )

    (one, _), (other, _) = run(1.0), run(c)
    assert other.seconds == pytest.approx(one.seconds * c, rel=1e-9)
    assert sum(one.phases.values()) == pytest.approx(one.seconds, rel=1e-9)


@pytest.mark.parametrize("schedule", ["sync", "one-step-off", "async"])
@pytest.mark.parametrize("gpus", [0, 8])
def test_spans_of_a_group_never_overlap(schedule: str, gpus: int) -> None:
    critic = Critic(Training(update_seconds=4.0, logprob_seconds=5.0), gpus, 0.3, 0.2)
    costs = replace(HAND.costs(), critic=critic, reference=Replicas(0.4, workers=2))
    rules = regime(schedule, False, PROMPTS, GROUP, reference=True, max_staleness=1.0)
    run = play(rules, costs, uniform(20, 200, PROMPTS, GROUP), 4, 0)
    spans = run.spans
    assert {"critic", "reference"} <= set(spans.track)
    for group in set(spans.group):
        own = sorted((s, e) for s, e, g in zip(spans.start, spans.end, spans.group, strict=True) if g == group)
        assert all(a[1] <= b[0] + 1e-9 for a, b in pairwise(own)), group
    # a shared critic is on the trainer's group
    assert ("critic" in set(spans.group)) == (gpus > 0)
    for one in run.steps:
        assert sum(one.phases.values()) == pytest.approx(one.seconds)
        assert sum(end - start for _, _, start, end in one.segments) == pytest.approx(one.seconds)
