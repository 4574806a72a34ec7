"""Weight synchronisation: what it costs to bring the trainer's new weights into every engine."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from math import exp, log

import numpy as np

from rlsim.costs import measured
from rlsim.costs.transfer_build import sync_case
from rlsim.costs.transfer_case import SyncCase
from rlsim.costs.transfer_delta import DeltaCost, delta, delta_bytes, delta_cost
from rlsim.costs.transfer_floor import floor_seconds
from rlsim.costs.transfer_group import group_seconds
from rlsim.costs.transfer_named import NAMED
from rlsim.costs.transfer_strategies import COLOCATED, DISAGGREGATED, STRATEGIES, Timed, control, per_tensor
from rlsim.sync_settings import double_buffered
from rlsim.system import System

LINKS = frozenset({"wire", "replicate", "host_to_device", "device_to_host"})


@dataclass(frozen=True)
class SyncCost:
    """One weight synchronisation.

    strategy           the one in use
    bytes_total        one whole model in the dtype on the wire (70B in bf16: 141.1 GB)
    bytes_max_per_gpu  into the busiest engine GPU (TP=8: 17.6 GB)
    bytes_delivered    into all engines together, replicas counted
    seconds            from the first gather to engines that run again
    floor_seconds      physical floor: no strategy is faster
    transfer_seconds   the part during which bytes move and are prepared; double-buffered engines may generate
                       meanwhile
    parts              exposed seconds by part, which add up to `seconds`
    sources            seconds by provenance: links by datasheet rates, software by rates fitted on published
                       runs
    alternatives       seconds of every strategy that this placement allows
    delta              what a delta sync is against a full one; None where there is none
    """

    strategy: str
    bytes_total: float
    bytes_max_per_gpu: float
    bytes_delivered: float
    seconds: float
    floor_seconds: float
    transfer_seconds: float
    parts: Mapping[str, float]
    sources: Mapping[str, float]
    alternatives: Mapping[str, float]
    delta: DeltaCost | None = None

    @property
    def grace_seconds(self) -> float:
        """Of `seconds`, what engines stand still before weights move."""
        return self.parts.get("grace", 0.0)

    @property
    def group_seconds(self) -> float:
        """Of `seconds`, what building the process group anew takes."""
        return self.parts.get("group", 0.0)

    @property
    def pause_seconds(self) -> float:
        """The part that stops the engines even when they are double-buffered."""
        return self.seconds - self.transfer_seconds

    @property
    def wire_seconds(self) -> float:
        """The part on the network between nodes."""
        return min(self.parts.get("wire", 0.0), self.seconds)

    def scaled(self, factor: float) -> SyncCost:
        """The same synchronisation with all its durations multiplied."""
        return replace(
            self,
            seconds=self.seconds * factor,
            floor_seconds=self.floor_seconds * factor,
            transfer_seconds=self.transfer_seconds * factor,
            parts={k: v * factor for k, v in self.parts.items()},
            sources={k: v * factor for k, v in self.sources.items()},
            alternatives={k: v * factor for k, v in self.alternatives.items()},
            delta=None if self.delta is None else self.delta.scaled(factor),
        )


def weight_sync_cost(system: System) -> SyncCost:
    """The weight sync of a system by its strategy, every other strategy beside it; measured where the profile is.

    Raises `UserError` for a strategy that the placement does not allow.
    """
    cost = _modelled(system)
    engines = sum(part.layout.engines for part in system.rollout)
    return measured.sync(system.profile, cost, engines) or cost


def _modelled(system: System) -> SyncCost:
    named = NAMED.get(system.scenario.weight_sync.strategy)
    overlap = double_buffered(system.scenario)
    if named is None:
        case = sync_case(system, planned=False)
        strategy = _strategy(system, case)
        cost = sync_cost(sync_case(system) if strategy == "p2p" else case, strategy, overlap=overlap)
        return replace(cost, alternatives=Alternatives(system, strategy))
    if named.placement != system.scenario.placement:
        raise system.scenario.error(
            "weight_sync.strategy",
            f"{system.scenario.weight_sync.strategy} does not work with placement {system.scenario.placement}",
            "one of " + ", ".join(name for name, n in NAMED.items() if n.placement == system.scenario.placement),
        )
    own = sync_case(system, named.framework)
    cost = sync_cost(own, system.scenario.weight_sync.strategy, overlap=overlap, timed=named.timed)
    return replace(cost, alternatives=Alternatives(system, None, (cost.strategy, cost.seconds)))


class Alternatives(Mapping[str, float]):
    """Seconds of every strategy that the placement allows, worked out when somebody looks: p2p's plan takes time."""

    def __init__(self, system: System, strategy: str | None, own: tuple[str, float] | None = None) -> None:
        self._system, self._strategy, self._own = system, strategy, own

    @cached_property
    def _seconds(self) -> Mapping[str, float]:
        case = sync_case(self._system)
        found = sync_cost(case, self._strategy or _auto(case)).alternatives
        return found if self._own is None else {self._own[0]: self._own[1], **found}

    def __getitem__(self, name: str) -> float:
        return self._seconds[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._seconds)

    def __len__(self) -> int:
        return len(self._seconds)


def parts_by_cause(system: System, cost: SyncCost) -> dict[str, float]:
    """The parts of a sync with what goes by tensors (at the gather) and by buckets (at the hand-over) of their own."""
    named = NAMED.get(system.scenario.weight_sync.strategy)
    case = sync_case(system, named.framework if named is not None else None, planned=False)
    parts = dict(cost.parts)
    shares = (("tensors", "gather", case.tensors * per_tensor(case)), ("buckets", "load", control(case)))
    for name, within, seconds in shares:
        place = "handover" if within == "load" and "handover" in parts else within
        parts[name] = min(seconds, parts.get(place, 0.0))
        if place in parts:
            parts[place] -= parts[name]
    return parts


def first_sync_cost(system: System) -> SyncCost | None:
    """The first sync of a run where it differs from the rest: a delta needs a whole copy to be laid on."""
    if system.scenario.weight_sync.strategy != "delta":
        return None
    case = sync_case(system)
    return sync_cost(case, _auto(case), overlap=double_buffered(system.scenario))


def named_seconds(system: System) -> dict[str, float]:
    """Seconds of the weight sync as each framework of the placement would do it."""
    placement = system.scenario.placement
    return {
        name: sync_cost(sync_case(system, named.framework), name, timed=named.timed).seconds
        for name, named in NAMED.items()
        if named.placement == placement
    }


def best_bucket_of(system: System) -> tuple[float, float]:
    """(bytes, seconds) of the best bucket for the strategy in use."""
    named = NAMED.get(system.scenario.weight_sync.strategy)
    if named is not None:
        return best_bucket(sync_case(system, named.framework), named.timed)
    case = sync_case(system)
    return best_bucket(case, STRATEGIES[_strategy(system, case)])


def best_bucket(case: SyncCase, timed: Callable[[SyncCase], Timed]) -> tuple[float, float]:
    """(bytes, seconds) of the bucket with which a strategy is fastest, between 1 MiB and the whole model.

    A bounded search over the logarithm of the bucket: small buckets fill a pipeline sooner, large ones shake hands less
    often. For a store-and-forward chain it is near sqrt(P·c·b/(R−1)).
    """
    floor = floor_seconds(case)

    def seconds(log_bucket: float) -> float:
        return sum(above_floor(timed(replace(case, bucket=exp(log_bucket))), floor).values())

    # rounds are whole numbers, so the curve has steps: a grid first, then its best cell
    grid = np.linspace(log(2.0**20), log(max(case.model_bytes, 2.0**21)), 65)
    found = min(grid.tolist(), key=seconds)
    return exp(found), seconds(found)


def sync_cost(
    case: SyncCase, strategy: str, *, overlap: bool = False, timed: Callable[[SyncCase], Timed] | None = None
) -> SyncCost:
    """Price of one case by one strategy; `timed` is its formula where it is none of the general ones.

    With `overlap` the weights arrive in a second buffer, from which each GPU copies its slice at the end:
    bytes into the GPU / (HBM rate / 2). No figure is below the floor.
    """
    floor = floor_seconds(case)
    allowed = COLOCATED if case.colocated else DISAGGREGATED
    parts = {name: above_floor(STRATEGIES[name](case), floor) for name in allowed}
    if deltas_work(case):
        parts["delta"] = above_floor(delta(case), delta_floor(case))
        floor = delta_floor(case) if strategy == "delta" else floor
    if timed is not None:
        parts[strategy] = above_floor(timed(case), floor)
    swap = max(2.0 * r.recv_gpu / r.side.hbm for r in case.receivers) if overlap else 0.0
    still = {"group": group_seconds(case, strategy)} if case.rebuild else {}
    still |= {"grace": case.grace} if case.grace else {}
    mine = {**parts[strategy], "swap": swap, **still} if overlap else {**parts[strategy], **still}
    seconds = sum(mine.values())
    links = sum(value for name, value in mine.items() if name in LINKS)
    return SyncCost(
        strategy=strategy,
        bytes_total=case.model_bytes,
        bytes_max_per_gpu=case.recv_gpu,
        bytes_delivered=case.delivered,
        seconds=seconds,
        floor_seconds=floor,
        transfer_seconds=seconds - mine["fixed"] - swap - sum(still.values()),
        parts=mine,
        sources={"measured": 0.0, "scaled": seconds - links, "roofline": links},
        alternatives={
            name: sum(values.values()) + case.grace + (group_seconds(case, name) if case.rebuild else 0.0)
            for name, values in parts.items()
        },
        delta=delta_cost(case, strategy if strategy in DISAGGREGATED else _auto(case)) if deltas_work(case) else None,
    )


def deltas_work(case: SyncCase) -> bool:
    """Whether sending only what changed is a way: between separate roles, of a model that is trained whole."""
    return not case.colocated and case.changed is not None


def delta_floor(case: SyncCase) -> float:
    """The floor of the bytes that a delta sync sends."""
    return floor_seconds(case) * delta_bytes(case) / case.model_bytes


def above_floor(timed: Timed, floor: float) -> dict[str, float]:
    """The parts, links stretched to the floor where the sum without the fixed part is below it."""
    moving = timed.seconds - timed.parts["fixed"]
    parts = dict(timed.parts)
    if moving < floor:
        parts["wire"] = parts.get("wire", 0.0) + floor - moving
    return parts


def _auto(case: SyncCase) -> str:
    """The framework's own."""
    return case.method.colocated if case.colocated else case.method.disaggregated


def _strategy(system: System, case: SyncCase) -> str:
    asked = system.scenario.weight_sync.strategy
    allowed = COLOCATED if case.colocated else DISAGGREGATED
    if asked == "auto":
        return _auto(case)
    if asked in allowed:
        return asked
    if asked == "delta" and deltas_work(case):
        return asked
    raise system.scenario.error(
        "weight_sync.strategy",
        f"{asked} does not work with placement {system.scenario.placement}"
        + (" and LoRA adapters, which change whole" if asked == "delta" and not case.colocated else ""),
        "one of " + ", ".join(allowed),
    )
