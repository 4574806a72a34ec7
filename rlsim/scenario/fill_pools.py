"""Defaults of clusters with several pools, and of several rollout entries: a role's pool, and how much of it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeGuard


def fill_pools(data: dict[str, Any]) -> dict[str, Any]:
    """Pools of roles that name none, then GPUs of roles that give none; for clusters of several kinds, or entries.

    Pool: the only one; co-located, the other role's; of two pools, the one that the other role does not name; a role
    with GPUs of its own has the trainer's. GPUs: co-located roles have the same; else the one role of a pool that
    gives none takes what the others leave.
    """
    pools, entries = data["cluster"].get("pools"), data.get("rollout")
    if isinstance(pools, dict) and pools and all(isinstance(pool, dict) for pool in pools.values()):
        data = _with_pools(data, list(pools))
    elif pools is not None or not isinstance(entries, list):
        return data
    return _with_gpus(data)


def several(data: Mapping[str, Any]) -> bool:
    """Whether the file has pools, or a list of rollout entries."""
    cluster, trainer, rollout = data.get("cluster"), data.get("trainer"), data.get("rollout")
    if not isinstance(cluster, dict) or not isinstance(trainer, dict):
        return False
    return isinstance(rollout, list) or (cluster.get("pools") is not None and isinstance(rollout, dict))


# Which pool ----------


def _with_pools(data: dict[str, Any], names: list[str]) -> dict[str, Any]:
    trainer, entries = data["trainer"], _entries(data)
    given = {entry.get("pool") for entry in entries} - {None}
    rolling = given.pop() if len(given) == 1 else None
    training = trainer.get("pool") or _partner_pool(data, names, rolling)
    entries = [_in_pool(entry, _partner_pool(data, names, training)) for entry in entries]
    roles = data.get("roles")
    if isinstance(roles, dict):
        own = {name: isinstance(role, dict) and role.get("gpus") is not None for name, role in roles.items()}
        data = {**data, "roles": {n: _in_pool(r, training) if own[n] else r for n, r in roles.items()}}
    return _put(data, _in_pool(trainer, training), entries)


def _partner_pool(data: dict[str, Any], names: list[str], other: Any) -> Any:
    """Pool of a role that names none, the other role having `other`; None where that is not clear."""
    if len(names) == 1:
        return names[0]
    if _colocated(data):
        return other
    return next(name for name in names if name != other) if len(names) == 2 and other in names else None


def _in_pool(role: Any, pool: Any) -> Any:
    return role if pool is None or role.get("pool") is not None else {**role, "pool": pool}


# How many GPUs ----------


def _with_gpus(data: dict[str, Any]) -> dict[str, Any]:
    roles = [data["trainer"], *_entries(data)]
    filled = _shared_gpus(data, roles) if _colocated(data) else [_rest(data, roles, role) for role in roles]
    return _put(data, filled[0], filled[1:])


def _shared_gpus(data: dict[str, Any], roles: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Co-located: the entries share what the trainer has, by default all of its pool."""
    trainer, entries = roles[0], roles[1:]
    rolling = [entry.get("gpus") for entry in entries]
    if trainer.get("gpus") is None:
        known = [gpus for gpus in rolling if whole(gpus)]
        trainer = {**trainer, "gpus": sum(known) if len(known) == len(rolling) else _free(data, trainer)}
    if whole(trainer["gpus"]) and rolling.count(None) == 1:
        rest = max(1, trainer["gpus"] - sum(gpus for gpus in rolling if whole(gpus)))
        entries = [{**e, "gpus": rest} if e.get("gpus") is None else e for e in entries]
    return [trainer, *entries]


def _rest(data: dict[str, Any], roles: list[dict[str, Any]], role: dict[str, Any]) -> dict[str, Any]:
    """What the others leave of the role's pool; nothing is filled in where two of them give none."""
    mates = [other for other in roles if other.get("pool") == role.get("pool")]
    if role.get("gpus") is not None or sum(other.get("gpus") is None for other in mates) > 1:
        return role
    taken = sum(other["gpus"] for other in mates if whole(other.get("gpus")))
    return {**role, "gpus": max(1, _free(data, role) - taken)}


def _free(data: dict[str, Any], role: dict[str, Any]) -> int:
    """GPUs of the role's pool without those of critic, reference and reward model; 1 where there is no such pool."""
    cluster = data["cluster"]
    pools = cluster.get("pools")
    pool = pools.get(role.get("pool")) if isinstance(pools, dict) else cluster
    total = pool.get("gpus") if isinstance(pool, dict) else None
    others = data.get("roles")
    own = [r for r in others.values() if isinstance(r, dict)] if isinstance(others, dict) else []
    taken = sum(r["gpus"] for r in own if whole(r.get("gpus")) and r.get("pool") == role.get("pool"))
    return max(1, total - taken) if whole(total) else 1


# Plain data ----------


def _entries(data: dict[str, Any]) -> list[dict[str, Any]]:
    rollout = data["rollout"]
    return [e if isinstance(e, dict) else {} for e in rollout] if isinstance(rollout, list) else [rollout]


def _put(data: dict[str, Any], trainer: dict[str, Any], entries: list[dict[str, Any]]) -> dict[str, Any]:
    rollout = data["rollout"]
    if not isinstance(rollout, list):
        return {**data, "trainer": trainer, "rollout": entries[0]}
    kept = [new if isinstance(old, dict) else old for old, new in zip(rollout, entries, strict=True)]
    return {**data, "trainer": trainer, "rollout": kept}


def _colocated(data: dict[str, Any]) -> bool:
    return bool(data.get("placement", "colocated") == "colocated")


def whole(value: Any) -> TypeGuard[int]:
    return isinstance(value, int) and not isinstance(value, bool)
