"""The driver's costs."""

from __future__ import annotations

import pytest

from rlsim.costs.controller import ControllerCosts, controller_costs
from tests.costs.systems import LLAMA_70B, system

COSTS = ControllerCosts(
    dispatch_seconds=0.02, step_fixed_seconds=1.5, bytes_per_token=20.0, bytes_rate=1e9, sample_seconds=50e-6
)


def test_80_million_tokens_are_1_6_gigabytes() -> None:
    """80e6 * 20 B = 1.6 GB, 1.6 s at 1 GB/s, and 8,192 samples at 50 us = 0.41 s."""
    assert COSTS.batch_bytes(80e6) == pytest.approx(1.6e9)
    assert COSTS.batch_seconds(80e6, 8192) == pytest.approx(1.6 + 0.4096)


def test_scaling_multiplies_every_duration() -> None:
    twice = COSTS.scaled(2.0)
    assert twice.batch_seconds(80e6, 8192) == pytest.approx(2 * COSTS.batch_seconds(80e6, 8192))
    assert (twice.dispatch_seconds, twice.step_fixed_seconds) == (0.04, 3.0)


def test_a_call_goes_to_the_larger_role() -> None:
    """8 trainer and 56 rollout GPUs: 20 ms + 56 * 0.1 ms."""
    text = LLAMA_70B.replace("{gpus: 32, backend: megatron, tp: 8, pp: 4}", "{gpus: 8, backend: megatron, tp: 8}")
    split = system(text.replace("{gpus: 32, engine", "{gpus: 56, engine"))
    assert controller_costs(split).dispatch_seconds == pytest.approx(0.0256)


def test_costs_of_a_system() -> None:
    """32 trainer ranks: 20 ms + 32 * 0.1 ms a call."""
    costs = controller_costs(system(LLAMA_70B))
    assert costs.dispatch_seconds == pytest.approx(0.0232)
    assert costs.step_fixed_seconds == 1.5
    assert controller_costs(system(LLAMA_70B, "schedule=async")).sample_seconds > costs.sample_seconds
