"""Real processes: all placements end to end, weights bit for bit, staleness within its bound, and it learns."""

from __future__ import annotations

import pytest
import torch

from validation.minigrpo.driver import STAGES, Driver, Step
from validation.minigrpo.setting import PLACEMENTS, setting
from validation.minigrpo.world import World, world

STEPS = {"colocated": 3, "disaggregated": 3, "one-step-off": 3, "async": 6}
BOUND = {"colocated": 0, "disaggregated": 0, "one-step-off": 1, "async": 2}
OWN = {"colocated": {"offload", "onload", "rollout"}, "disaggregated": {"rollout"}}


def engines_hold_what_the_trainer_has(processes: World) -> None:
    """After a sync every engine's weights are the trainer's shards put together, bit for bit in bf16."""
    processes.sync(99)
    shards = processes.call(processes.trainers, "weights")
    for engine in processes.call(processes.engines, "weights"):
        assert engine.keys() == shards[0].keys()
        for name, tensor in engine.items():
            assert tensor.dtype == torch.bfloat16
            assert torch.equal(tensor, torch.cat([part[name] for part in shards])), name


def stages(step: Step) -> set[str]:
    """Stages that took time, but for what stands between them."""
    return {name for name in STAGES if step.phases[name] > 1e-4} - {"other"}


@pytest.fixture(scope="module")
def runs() -> dict[str, list[Step]]:
    found = {}
    for placement in PLACEMENTS:
        one = setting(placement)
        with world(one) as processes:
            found[placement] = Driver(processes, one).run(STEPS[placement])
            engines_hold_what_the_trainer_has(processes)
    return found


@pytest.mark.parametrize("placement", PLACEMENTS)
def test_a_placement_runs_end_to_end(runs: dict[str, list[Step]], placement: str) -> None:
    history = runs[placement]
    assert len(history) == STEPS[placement]
    for step in history:
        assert sum(step.phases.values()) == pytest.approx(step.seconds)
        assert 0 < step.reward < 1
        assert step.staleness[1] <= BOUND[placement]
    assert {"logprob", "train", "weight_sync"} | OWN.get(placement, {"wait_rollout"}) >= stages(history[-1])
    assert {"logprob", "train", "weight_sync"} | OWN.get(placement, set()) <= stages(history[-1])
    assert history[-1].staleness[1] == BOUND[placement]  # what may be late is: the bound is reached


@pytest.mark.parametrize("placement", ["colocated", "disaggregated"])
def test_engine_and_trainer_differ_by_the_rounding_of_the_weights(runs: dict[str, list[Step]], placement: str) -> None:
    for step in runs[placement]:
        assert 0 < step.gap < 0.01  # bf16 weights there, fp32 here
        assert step.weight == pytest.approx(1, abs=0.01)


def test_synchronous_placements_train_on_the_same_samples(runs: dict[str, list[Step]]) -> None:
    """Four ranks or two, shared memory or broadcast: the same policy, up to rounding."""
    for a, b in zip(runs["colocated"], runs["disaggregated"], strict=True):
        assert a.tokens == b.tokens
        assert a.reward == pytest.approx(b.reward, abs=0.01)


def test_it_learns() -> None:
    one = setting("one-step-off")
    with world(one) as processes:
        history = Driver(processes, one).run(24)
    assert history[0].reward < 0.15  # by chance: 1 of 15
    assert history[-1].reward > 0.95
