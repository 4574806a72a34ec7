"""What a scenario may hold: blocks for another schedule, every kind of reward, FP8 training."""

from __future__ import annotations

import pytest

from rlsim.errors import UserError
from rlsim.scenario import loads_scenario
from rlsim.system import resolve

from .text import BASE, changed


def test_mistakes_are_named() -> None:
    with pytest.raises(UserError, match="has no unit"):
        loads_scenario(changed(("nic: 50 GB/s", "nic: 50, oversubscription: 2.0")))


def test_fp8_training_needs_fp8_tensor_cores() -> None:
    text = changed(("trainer: {gpus: 8, ", "trainer: {gpus: 8, precision: fp8, ")).split("variants:")[0]
    scenario = loads_scenario(text).variants[0]
    assert resolve(scenario).scenario.trainer.precision == "fp8"
    old = loads_scenario(text.replace("h100-sxm", "a100-80g")).variants[0]
    with pytest.raises(UserError, match="no FP8 tensor cores"):
        resolve(old)


def test_inert_blocks_are_not_refused() -> None:
    text = changed(("schedule: async", "schedule: sync"), ("max_staleness: 2", "policy: verl, theta: 0.5"))
    assert loads_scenario(text).variants[0].async_.theta == 0.5


@pytest.mark.parametrize(
    "reward",
    [
        "{kind: rule}",
        "{kind: sandbox, seconds: {mean: 3 s, p99: 20 s}, workers: 256, timeout: 30 s, retries: 1}",
        "{kind: model, seconds: 0.2 s, workers: 64}",
        "{kind: environment, streaming: false}",
    ],
)
def test_accepted_rewards(reward: str) -> None:
    base = loads_scenario(changed(("  prompts: 32", f"  reward: {reward}\n  prompts: 32"))).variants[0]
    assert reward.startswith("{kind: " + base.workload.reward.kind)


def test_the_base_is_accepted() -> None:
    assert loads_scenario(BASE).variants
