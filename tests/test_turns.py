"""Plans of turns: limits, failures, time-outs, on paper."""

from __future__ import annotations

import numpy as np
import pytest

from rlsim.scenario import scenario_from_dict
from rlsim.scenario.schema import Workload
from rlsim.turns import TurnPlans, turn_model
from rlsim.workload import sample_batch, workload_lengths

BASE = {
    "model": "Qwen/Qwen2.5-7B",
    "cluster": {"gpu": "h100-sxm", "gpus": 8},
    "trainer": {"backend": "fsdp2"},
    "rollout": {},
}


def workload(**turns: object) -> Workload:
    block = {"count": 3, "tokens": 100, "observation_tokens": 50, "wait": "2 s", **turns}
    work = {"prompts": 4, "group_size": 2, "prompt_tokens": 10, "response_tokens": {"mean": 300, "max": 1000}}
    return scenario_from_dict({**BASE, "workload": {**work, "turns": block}}).workload


def plans(work: Workload, room: int = 1000, n: int = 1000) -> TurnPlans:
    model = turn_model(work)
    assert model is not None
    return model.draw(np.random.default_rng(1), np.full(n, room))


def test_three_turns_and_two_answers() -> None:
    """3 · 100 tokens generated, 2 · 50 observed; the environment works after the first two turns."""
    plan = plans(workload(), n=1)
    assert plan.of(0) == [(100, 50, 2.0), (100, 50, 2.0), (100, 0, 0.0)]
    assert plan.generated_tokens.tolist() == [300]
    assert plan.response_tokens.tolist() == [400]


@pytest.mark.parametrize(
    ("room", "turns"),
    [
        (400, [(100, 50, 2.0), (100, 50, 2.0), (100, 0, 0.0)]),
        (320, [(100, 50, 2.0), (100, 50, 2.0), (20, 0, 0.0)]),
        (300, [(100, 50, 2.0), (100, 0, 0.0)]),  # after the second answer no token would fit
        (120, [(100, 0, 0.0)]),
        (70, [(70, 0, 0.0)]),
    ],
)
def test_the_limit_ends_a_sample(room: int, turns: list[tuple[int, int, float]]) -> None:
    assert plans(workload(), room, 1).of(0) == turns


def test_failures_end_a_sample_and_keep_its_workers_busy() -> None:
    """Every call fails and is tried twice: 2 · 2 s, then the sample ends with its first turn."""
    plan = plans(workload(failure_rate=0.999999, retries=1), n=1)
    assert plan.of(0) == [(100, 0, 4.0)]
    assert not plan.lost.any()
    assert plans(workload(failure_rate=0.999999, on_failure="drop"), n=1).lost.all()


def test_timeouts() -> None:
    """Calls of 2 s with a time-out of 1 s and one retry: given up after 2 s."""
    assert plans(workload(timeout="1 s", retries=1), n=1).of(0) == [(100, 0, 2.0)]
    assert plans(workload(timeout="3 s", retries=1), n=1).of(0)[0] == (100, 50, 2.0)


def test_share_of_lost_samples() -> None:
    """Failure for good with chance 0.3² a call, two calls a sample: 1 − 0.91² = 17.2%."""
    plan = plans(workload(failure_rate=0.3, retries=1, on_failure="drop"), n=20_000)
    assert plan.lost.mean() == pytest.approx(1 - (1 - 0.09) ** 2, abs=0.01)


def test_batches_have_the_responses_of_their_plans() -> None:
    work = workload(tokens={"mean": 100, "max": 400}, count={"mean": 3, "max": 8})
    batch = sample_batch(work, np.random.default_rng(0), 0)
    assert batch.plan is not None
    assert batch.response_tokens.ravel().tolist() == batch.plan.response_tokens.tolist()
    assert (batch.response_tokens <= 1000).all()
    mean = np.mean([sample_batch(work, np.random.default_rng(i), 0).response_tokens.mean() for i in range(60)])
    assert workload_lengths(work).response.mean == pytest.approx(mean, rel=0.05)


def test_drift_lengthens_the_turns() -> None:
    work = workload().model_copy(update={"drift": workload().drift})
    model = turn_model(work)
    assert model is not None
    assert model.draw(np.random.default_rng(0), np.full(1, 1000), 2.0).generated.tolist() == [200, 200, 200]
