"""Weight synchronisation: what it costs to bring the trainer's new weights into every engine."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from rlsim.costs.transfer_build import sync_case
from rlsim.costs.transfer_case import SyncCase
from rlsim.costs.transfer_floor import floor_seconds
from rlsim.costs.transfer_strategies import COLOCATED, DISAGGREGATED, STRATEGIES, Timed
from rlsim.errors import NotModelled
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

    @property
    def pause_seconds(self) -> float:
        """The part that stops the engines even when they are double-buffered."""
        return self.seconds - self.transfer_seconds

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
        )


def weight_sync_cost(system: System) -> SyncCost:
    """The weight sync of a system by its strategy, every other strategy beside it.

    Raises `UserError` for a strategy that the placement does not allow.
    """
    case = sync_case(system)
    return sync_cost(case, _strategy(system, case), overlap=double_buffered(system.scenario))


def sync_cost(case: SyncCase, strategy: str, *, overlap: bool = False) -> SyncCost:
    """Price of one case by one strategy.

    With `overlap` the weights arrive in a second buffer, from which each GPU copies its slice at the end:
    bytes into the GPU / (HBM rate / 2). No figure is below the floor.
    """
    floor = floor_seconds(case)
    allowed = COLOCATED if case.colocated else DISAGGREGATED
    parts = {name: above_floor(STRATEGIES[name](case), floor) for name in allowed}
    swap = max(2.0 * r.recv_gpu / r.side.hbm for r in case.receivers) if overlap else 0.0
    mine = {**parts[strategy], "swap": swap} if overlap else parts[strategy]
    seconds = sum(mine.values())
    links = sum(value for name, value in mine.items() if name in LINKS)
    return SyncCost(
        strategy=strategy,
        bytes_total=case.model_bytes,
        bytes_max_per_gpu=case.recv_gpu,
        bytes_delivered=case.delivered,
        seconds=seconds,
        floor_seconds=floor,
        transfer_seconds=seconds - mine["fixed"] - swap,
        parts=mine,
        sources={"measured": 0.0, "scaled": seconds - links, "roofline": links},
        alternatives={name: sum(values.values()) for name, values in parts.items()},
    )


def above_floor(timed: Timed, floor: float) -> dict[str, float]:
    """The parts, links stretched to the floor where the sum without the fixed part is below it."""
    moving = timed.seconds - timed.parts["fixed"]
    parts = dict(timed.parts)
    if moving < floor:
        parts["wire"] = parts.get("wire", 0.0) + floor - moving
    return parts


def _strategy(system: System, case: SyncCase) -> str:
    asked = system.scenario.weight_sync.strategy
    allowed = COLOCATED if case.colocated else DISAGGREGATED
    if asked == "auto":
        return case.method.colocated if case.colocated else case.method.disaggregated
    if asked in allowed:
        return asked
    if asked not in STRATEGIES:
        raise NotModelled(f"not modelled yet: weight_sync.strategy {asked}", key="weight_sync.strategy")
    raise system.scenario.error(
        "weight_sync.strategy",
        f"{asked} does not work with placement {system.scenario.placement}",
        "one of " + ", ".join(allowed),
    )
