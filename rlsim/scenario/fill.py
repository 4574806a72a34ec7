"""Defaults that depend on other keys, filled into the plain data before validation.

Malformed data passes through unchanged: the schema refuses it with a better message.
"""

from __future__ import annotations

from typing import Any

from rlsim.scenario.fill_pools import fill_pools, several, whole


def fill(data: dict[str, Any]) -> dict[str, Any]:
    """GPUs (and pool) of a role that gives none, and log-probs returned where the workload uses them."""
    return _returned_logprobs(fill_pools(data) if several(data) else _role_gpus(data))


def _role_gpus(data: dict[str, Any]) -> dict[str, Any]:
    """Co-located: the same GPUs for both, by default all. Disaggregated: one takes what the other leaves."""
    cluster, trainer, rollout = data.get("cluster"), data.get("trainer"), data.get("rollout")
    if not isinstance(cluster, dict) or not isinstance(trainer, dict) or not isinstance(rollout, dict):
        return data
    total, training, rolling = cluster.get("gpus"), trainer.get("gpus"), rollout.get("gpus")
    if whole(total):
        total = max(1, total - _other_gpus(data.get("roles")))
    if not whole(total) or (training is None and rolling is None and not _colocated(data)):
        return data
    if training is None:
        training = _partner(data, total, rolling)
    if rolling is None:
        rolling = _partner(data, total, training)
    return {**data, "trainer": {**trainer, "gpus": training}, "rollout": {**rollout, "gpus": rolling}}


def _other_gpus(roles: Any) -> int:
    """GPUs that critic, reference and reward model have to themselves."""
    given = roles.values() if isinstance(roles, dict) else ()
    own = [role.get("gpus") for role in given if isinstance(role, dict)]
    return sum(gpus for gpus in own if whole(gpus))


def _partner(data: dict[str, Any], total: int, gpus: Any) -> int:
    """GPUs of a role that gives none, the other role having `gpus`; at least 1, so that the sum shows the mistake."""
    if not whole(gpus):
        return total
    return gpus if _colocated(data) else max(1, total - gpus)


def _colocated(data: dict[str, Any]) -> bool:
    return bool(data.get("placement", "colocated") == "colocated")


def _returned_logprobs(data: dict[str, Any]) -> dict[str, Any]:
    """The engine returns log-probs where the workload takes the old policy's from it."""
    workload, rollout = data.get("workload"), data.get("rollout")
    if not isinstance(workload, dict) or workload.get("logprob", "recompute") == "recompute":
        return data
    if isinstance(rollout, dict):
        return {**data, "rollout": {"return_logprobs": True, **rollout}}
    if isinstance(rollout, list):
        entries = [{"return_logprobs": True, **entry} if isinstance(entry, dict) else entry for entry in rollout]
        return {**data, "rollout": entries}
    return data
