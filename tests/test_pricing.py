"""What a system's prices take for granted."""

from __future__ import annotations

from pathlib import Path

import pytest

from rlsim.pricing import copy_gpus
from rlsim.scenario import load_scenario
from rlsim.system import resolve

CONSOLIDATION = Path(__file__).parents[1] / "scenarios" / "consolidation.yaml"


@pytest.mark.parametrize(
    ("variant", "trainer", "gpus"),
    [
        ("quarter", {}, 4),  # tp 2 · cp 2
        ("quarter", {"pp": 2}, 8),
        ("fsdp-quarter", {}, 32),  # sharded over all 32 GPUs
        ("replicas-quarter", {}, 8),  # over a node
    ],
)
def test_gpus_that_hold_one_copy_for_a_forward_pass(variant: str, trainer: dict[str, int], gpus: int) -> None:
    sets = [f"trainer.{key}={value}" for key, value in trainer.items()]
    (scenario,) = load_scenario(CONSOLIDATION, overrides=sets, variant=variant).variants
    assert copy_gpus(resolve(scenario).trainer) == gpus
