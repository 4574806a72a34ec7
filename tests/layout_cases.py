"""Scenarios for the layout and memory tests."""

from __future__ import annotations

from typing import Any

from rlsim.scenario import Scenario, scenario_from_dict


def case(
    model: str, trainer: dict[str, Any], rollout: dict[str, Any] | None = None, *, gpu: str = "h100-sxm", **blocks: Any
) -> Scenario:
    """One scenario; rollout defaults to engines of one GPU on as many GPUs as the trainer has."""
    rollout = {"gpus": trainer["gpus"], "tp": 1} if rollout is None else rollout
    colocated = blocks.get("placement", "colocated") == "colocated"
    total = trainer["gpus"] if colocated else trainer["gpus"] + rollout["gpus"]
    workload = {
        "prompts": 128,
        "group_size": 16,
        "prompt_tokens": {"mean": 200, "max": 1024},
        "response_tokens": {"mean": 3000, "max": 7168},
    }
    return scenario_from_dict(
        {
            "model": model,
            "cluster": {"gpu": gpu, "gpus": total, **blocks.pop("cluster", {})},
            "workload": {**workload, **blocks.pop("workload", {})},
            "trainer": trainer,
            "rollout": rollout,
            **blocks,
        }
    )
