"""Defaults that depend on other keys, filled into the plain data before validation.

Malformed data passes through unchanged: the schema refuses it with a better message.
"""

from __future__ import annotations

from typing import Any


def fill(data: dict[str, Any]) -> dict[str, Any]:
    """GPUs of a role that gives none, and log-probs returned where the workload uses them."""
    return _returned_logprobs(_role_gpus(data))


def _role_gpus(data: dict[str, Any]) -> dict[str, Any]:
    """Co-located: both roles have the same GPUs, by default all. Disaggregated: one takes what the other leaves."""
    cluster, trainer, rollout = data.get("cluster"), data.get("trainer"), data.get("rollout")
    if not isinstance(cluster, dict) or not isinstance(trainer, dict) or not isinstance(rollout, dict):
        return data
    total, training, rolling = cluster.get("gpus"), trainer.get("gpus"), rollout.get("gpus")
    if not _whole(total) or ("gpus" in trainer) == ("gpus" in rollout) == True:  # noqa: E712
        return data
    if data.get("placement", "colocated") == "colocated":
        training_default = rolling if "gpus" in rollout else total
        rolling_default = training if "gpus" in trainer else total
    elif "gpus" in trainer and _whole(training):
        training_default, rolling_default = training, total - training
    elif "gpus" in rollout and _whole(rolling):
        training_default, rolling_default = total - rolling, rolling
    else:
        return data
    return {
        **data,
        "trainer": {"gpus": training_default, **trainer},
        "rollout": {"gpus": rolling_default, **rollout},
    }


def _returned_logprobs(data: dict[str, Any]) -> dict[str, Any]:
    """The engine returns log-probs where the workload takes the old policy's from it."""
    workload, rollout = data.get("workload"), data.get("rollout")
    if not isinstance(workload, dict) or workload.get("logprob", "recompute") == "recompute":
        return data
    if isinstance(rollout, dict):
        return {**data, "rollout": {"return_logprobs": True, **rollout}}
    if isinstance(rollout, list):
        entries = [
            {"return_logprobs": True, **entry} if isinstance(entry, dict) else entry for entry in rollout
        ]
        return {**data, "rollout": entries}
    return data


def _whole(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)
