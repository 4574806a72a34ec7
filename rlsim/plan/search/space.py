"""What a plan chooses from: regimes, splits of the GPUs, layouts of either side, ways of syncing the weights."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from rlsim import catalog
from rlsim.costs.transfer_named import NAMED
from rlsim.costs.transfer_strategies import COLOCATED, DISAGGREGATED
from rlsim.errors import UserError
from rlsim.plan.search import layouts
from rlsim.plan.search.layouts import Options
from rlsim.scenario.load import scenario_from_dict
from rlsim.scenario.schema import Scenario
from rlsim.sim.settings import settings

SHARES = (1 / 4, 3 / 8, 1 / 2, 3 / 4)
"""Shares of the GPUs that train, in whole nodes."""
REGIMES = (
    ("colocated", "sync"),
    ("disaggregated", "sync"),
    ("disaggregated", "one-step-off"),
    ("disaggregated", "async"),
)


@dataclass(frozen=True)
class Block:
    """Candidates that share regime and split: every trainer with every engine and every way of syncing."""

    placement: str
    schedule: str
    gpus: int
    trainer_gpus: int
    rollout_gpus: int
    trainers: tuple[Options, ...]
    engines: tuple[Options, ...]
    strategies: tuple[str, ...]

    @property
    def regime(self) -> str:
        return self.schedule if self.schedule != "sync" else f"{self.placement}-sync"

    @property
    def size(self) -> int:
        """Candidates, counted after divisibility."""
        return len(self.trainers) * len(self.engines) * len(self.strategies)


@dataclass(frozen=True)
class Candidate:
    """One way to run it: a block, and one choice on each side."""

    block: Block
    trainer: int
    engine: int
    strategy: str


def check_plannable(base: Scenario) -> None:
    """What a plan does not choose for: GPUs of several kinds, several kinds of engines, roles with their own GPUs."""
    found = {
        "cluster.pools": bool(base.cluster.pools),
        "rollout": len(base.rollout) > 1,
        "roles": base.roles.gpus > 0,
        "remedies.elastic": base.remedies.elastic is not None,
    }
    for key, there in found.items():
        if there:
            raise base.error(
                key, "a plan divides GPUs of one kind between a trainer and one kind of engine", "delete it"
            )


def staleness_bound(base: Scenario, schedule: str) -> float:
    """Versions that samples may be late: what a schedule costs besides seconds."""
    if schedule == "sync":
        return 0.0
    if schedule == "one-step-off":
        return 1.0
    found = settings(base.model_copy(update={"placement": "disaggregated", "schedule": "async"}))
    return found.max_staleness if found.policy == "areal" else float(found.settling - 1)


def blocks(base: Scenario, gpus: int, only: Mapping[str, Sequence[Any]]) -> Iterator[Block]:
    """The whole space for `gpus` GPUs. `only`: values by dotted key that a choice is limited to."""
    model = catalog.model(base.model.base)
    training = _limited(layouts.trainer_choices(base, model), "trainer", only)
    rolling = _limited(layouts.rollout_choices(base, model), "rollout", only)
    for placement, schedule in REGIMES:
        if placement not in only.get("placement", [placement]) or schedule not in only.get("schedule", [schedule]):
            continue
        for trainer_gpus in _splits(base, placement, gpus, only):
            rollout_gpus = gpus if placement == "colocated" else gpus - trainer_gpus
            sized = base.model_copy(
                update={
                    "trainer": base.trainer.model_copy(update={"gpus": trainer_gpus}),
                    "rollout": (base.rollout[0].model_copy(update={"gpus": rollout_gpus}),),
                }
            )
            yield Block(
                placement=placement,
                schedule=schedule,
                gpus=gpus,
                trainer_gpus=trainer_gpus,
                rollout_gpus=rollout_gpus,
                trainers=tuple(layouts.trainers(sized, model, training)),
                engines=tuple(layouts.engines(sized, model, rolling)),
                strategies=_strategies(base, placement, only),
            )


def _limited(choices: dict[str, list[Any]], role: str, only: Mapping[str, Sequence[Any]]) -> dict[str, list[Any]]:
    given = {key.partition(".")[2]: list(values) for key, values in only.items() if key.startswith(f"{role}.")}
    return {**choices, **{key: values for key, values in given.items() if key != "gpus"}}


def _splits(base: Scenario, placement: str, gpus: int, only: Mapping[str, Sequence[Any]]) -> list[int]:
    """GPUs of the trainer."""
    if placement == "colocated":
        return [gpus]
    if "trainer.gpus" in only:
        return sorted({int(n) for n in only["trainer.gpus"] if 0 < n < gpus})
    unit = base.cluster.gpus_per_node if gpus >= 2 * base.cluster.gpus_per_node else 1
    return sorted({n for share in SHARES if 0 < (n := round(gpus * share / unit) * unit) < gpus})


def _strategies(base: Scenario, placement: str, only: Mapping[str, Sequence[Any]]) -> tuple[str, ...]:
    """The file's; where it leaves the choice: the framework's own, for `generic` every general one."""
    allowed = COLOCATED if placement == "colocated" else DISAGGREGATED
    own = base.framework.name  # the strategy that bears its name is what `auto` means
    named = [
        n for n, how in NAMED.items() if (how.placement, how.framework) == (placement, own) and not n.startswith(own)
    ]
    given = only.get("weight_sync.strategy")
    if given is not None:
        return tuple(name for name in given if name == "auto" or name in allowed or name in NAMED)
    asked = base.weight_sync.strategy
    if asked != "auto":
        fits = asked in allowed or (asked in NAMED and NAMED[asked].placement == placement)
        return (asked,) if fits or (asked == "delta" and placement != "colocated") else ("auto",)
    return tuple(allowed) if base.framework.name == "generic" else ("auto", *named)


def scenario_of(base: dict[str, Any], candidate: Candidate, cluster_gpus: int) -> Scenario:
    """The scenario of a candidate: what `rlsim run` would play. `base`: plain data of the file."""
    return scenario_from_dict(scenario_data(base, candidate, cluster_gpus))


def scenario_data(base: dict[str, Any], candidate: Candidate, cluster_gpus: int) -> dict[str, Any]:
    """The same as plain data."""
    block = candidate.block
    trainer = {**base["trainer"], **block.trainers[candidate.trainer], "gpus": block.trainer_gpus}
    rollout = {**base["rollout"], **block.engines[candidate.engine], "gpus": block.rollout_gpus}
    return {
        **base,
        "placement": block.placement,
        "schedule": block.schedule,
        "variant": block.regime,
        "cluster": {**base["cluster"], "gpus": cluster_gpus},
        "trainer": {key: value for key, value in trainer.items() if value is not None},
        "rollout": {key: value for key, value in rollout.items() if value is not None},
        "weight_sync": {**base.get("weight_sync", {}), "strategy": candidate.strategy},
    }


def ladder(base: Scenario) -> list[int]:
    """Numbers of GPUs to try where none is given: doubling from one node up to the file's cluster."""
    node, most = base.cluster.gpus_per_node, base.cluster.gpus
    found = [node * 2**i for i in range(max(1, most // node).bit_length()) if node * 2**i <= most]
    return sorted({*found[-6:], most})


def whole_nodes(base: Scenario, gpus: int) -> None:
    """A budget is whole nodes, or part of one."""
    node = base.cluster.gpus_per_node
    if gpus < 1 or (gpus > node and gpus % node):
        near = max(node, round(gpus / node) * node)
        raise UserError(f"{gpus} GPUs are not whole nodes of {node}", key="--gpus", fix=f"for example {near}")
