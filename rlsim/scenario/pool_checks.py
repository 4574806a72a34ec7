"""Pre-flight checks of clusters with several pools: names, whole nodes, what fits where, links between them."""

from __future__ import annotations

from collections.abc import Iterator

from rlsim.scenario.schema import Scenario
from rlsim.scenario.source import path_of
from rlsim.scenario.translate import Complaint
from rlsim.scenario.variants import nearest

ONE_KIND = ("nvlink_domain", "nic", "host_link", "nvlink", "hbm", "hbm_bandwidth", "host_memory", "gpus_per_node")
ROLES = ("critic", "reference", "reward_model")


def _wrong(key: str, message: str, fix: str | None = None) -> Complaint:
    return Complaint(path_of(key), message, fix)


def wanted(s: Scenario) -> list[tuple[str, str | None, int]]:
    """(key of the role, its pool, its GPUs): trainer, rollout entries, and roles with GPUs of their own."""
    found: list[tuple[str, str | None, int]] = [("trainer", s.trainer.pool, s.trainer.gpus)]
    found += [(f"rollout.{i}", entry.pool, entry.gpus) for i, entry in enumerate(s.rollout)]
    for name in ROLES:
        role = getattr(s.roles, name)
        if role is not None and role.gpus is not None:
            found.append((f"roles.{name}", role.pool, role.gpus))
    return found


def pools_are_known(s: Scenario) -> Iterator[Complaint]:
    """A role names a pool that is there; with pools, every role has one."""
    names = list(s.cluster.pools or {})
    for key, pool, _ in wanted(s):
        if pool is None and names:
            yield _wrong(key, "pool is missing: which of cluster.pools?", "pool: " + " or ".join(names))
        elif pool is not None and pool not in names:
            yield _unknown(f"{key}.pool", pool, names)


def _unknown(key: str, pool: str, names: list[str]) -> Complaint:
    if not names:
        return _wrong(key, f"there is no pool {pool!r}: the cluster is of one kind", f"delete {key.split('.')[-1]}")
    return _wrong(key, f"there is no pool {pool!r}", nearest(pool, names) or "one of " + ", ".join(names))


def figures_belong_to_pools(s: Scenario) -> Iterator[Complaint]:
    """With pools, figures of the hardware stand in the pool they are of."""
    if s.cluster.pools:
        for key in ONE_KIND:
            if getattr(s.cluster, key) != type(s.cluster).model_fields[key].default:
                yield _wrong(f"cluster.{key}", "of which pool?", f"write it in the pool, cluster.pools.NAME.{key}")


def pool_nodes_are_whole(s: Scenario) -> Iterator[Complaint]:
    for name, pool in (s.cluster.pools or {}).items():
        if pool.gpus > pool.gpus_per_node and pool.gpus % pool.gpus_per_node:
            up = -(-pool.gpus // pool.gpus_per_node) * pool.gpus_per_node
            yield _wrong(
                f"cluster.pools.{name}.gpus",
                f"{pool.gpus} GPUs are not whole nodes of {pool.gpus_per_node}",
                f"for example {up}",
            )


def roles_fit_pools(s: Scenario) -> Iterator[Complaint]:
    """The roles of a pool together have no more than its GPUs; co-located roles share one pool, and all of theirs."""
    pools = s.cluster.pools
    if not pools:
        return
    roles = [role for role in wanted(s) if role[1] in pools]
    if s.placement == "colocated":
        yield from _one_pool(s)
        roles = [role for role in roles if not role[0].startswith("rollout")]
    for name, pool in pools.items():
        mates = [(key, gpus) for key, mine, gpus in roles if mine == name]
        if sum(gpus for _, gpus in mates) <= pool.gpus:
            continue
        told = " + ".join(f"{_spoken(s, key)} {gpus}" for key, gpus in mates)
        total = sum(gpus for _, gpus in mates)
        told += f" = {total} GPUs" if len(mates) > 1 else " GPUs"
        key, gpus = mates[-1]
        left = pool.gpus - (total - gpus)
        fix = f"{_spoken(s, key)}.gpus: {left}" if left > 0 else f"at most {pool.gpus} GPUs together"
        yield _wrong(f"{key}.gpus", f"{told}, but pool {name} has {pool.gpus}", fix)


def _one_pool(s: Scenario) -> Iterator[Complaint]:
    for i, entry in enumerate(s.rollout):
        if entry.pool != s.trainer.pool:
            message = f"co-located roles share GPUs, but trainer.pool is {s.trainer.pool} and this is {entry.pool}"
            yield _wrong(f"rollout.{i}.pool", message, "the same pool for both, or placement: disaggregated")
    training, rolling = s.trainer.gpus, sum(entry.gpus for entry in s.rollout)
    if training != rolling:
        message = f"co-located roles share GPUs, but trainer.gpus is {training} and rollout.gpus is {rolling}"
        yield _wrong("rollout.0.gpus", message, f"the same number for both, for example {training}")


def _spoken(s: Scenario, key: str) -> str:
    if not key.startswith("rollout"):
        return key
    return "rollout" if len(s.rollout) == 1 else f"rollout[{key.split('.')[1]}]"


def links_join_pools(s: Scenario) -> Iterator[Complaint]:
    """A link joins two different pools, each pair once."""
    names, seen = list(s.cluster.pools or {}), set()
    for i, link in enumerate(s.cluster.links):
        key = f"cluster.links.{i}.between"
        if not names:
            yield _wrong("cluster.links", "links join pools, and the cluster is of one kind", "cluster.pools")
            return
        for pool in link.between:
            if pool not in names:
                yield _unknown(key, pool, names)
        if link.between[0] == link.between[1]:
            yield _wrong(key, f"both ends are {link.between[0]}", "two different pools")
        if frozenset(link.between) in seen:
            yield _wrong(key, "there is a link between these pools already", "one link with their common bandwidth")
        seen.add(frozenset(link.between))


POOL_CHECKS = (
    pools_are_known,
    figures_belong_to_pools,
    pool_nodes_are_whole,
    roles_fit_pools,
    links_join_pools,
)
