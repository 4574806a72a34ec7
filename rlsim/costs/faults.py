"""Faults of a scenario with what they hit and how long they last: places, repair times, the engines of a node."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rlsim.costs.checkpoint import CheckpointCost
from rlsim.dtypes import BYTES
from rlsim.sim.faults import ENGINE_CRASH, ROLLOUT, SLOW_NODE, TRAINER, TRAINER_CRASH, Fault
from rlsim.slices import engine_rank_bytes

if TYPE_CHECKING:
    from rlsim.scenario.schema_run import Fault as Given
    from rlsim.system import System

BOTH = "both"  # sides of a node that trainer and rollout share
Places = tuple[tuple[int, ...], ...]


def fault_costs(system: System, checkpoint: CheckpointCost) -> tuple[Fault, ...]:
    """The scenario's faults in its order.

    Repair by default: an engine starts again and reads its weights; the trainer starts again and reads the checkpoint;
    a slow node or NIC is replaced after a while.
    """
    return tuple(_fault(system, given, checkpoint) for given in system.scenario.faults)


def _fault(system: System, given: Given, checkpoint: CheckpointCost) -> Fault:
    shared = system.colocated and given.kind in (SLOW_NODE, TRAINER_CRASH)
    side = TRAINER if given.kind == TRAINER_CRASH else ROLLOUT if given.kind == ENGINE_CRASH else given.side
    places = len(_engines(system)) if given.kind == ENGINE_CRASH else _nodes(system, side)
    if given.where >= places:
        what = "engines" if given.kind == ENGINE_CRASH else f"{side} nodes"
        raise system.scenario.error(
            "faults", f"{given.kind} hits number {given.where}, but there are {places} {what}", "a smaller where"
        )
    return Fault(
        kind=given.kind,
        side=BOTH if shared and given.kind == SLOW_NODE else side,
        at=given.at,
        mtbf=given.mtbf,
        places=places,
        where=given.where,
        duration=given.duration if given.duration is not None else _repair(system, given, checkpoint),
        factor=given.factor,
        engines=_hit(system, given.kind, side, places),
    )


def _hit(system: System, kind: str, side: str, places: int) -> Places:
    """Engines that go down or slow with each place."""
    engines = _engines(system)
    if kind == ENGINE_CRASH:
        return tuple((number,) for number in range(len(engines)))
    if kind == TRAINER_CRASH and system.colocated:  # one job: its engines fall with it
        return (tuple(range(len(engines))),) * places
    if kind == SLOW_NODE and (side == ROLLOUT or system.colocated):
        return tuple(tuple(n for n, nodes in enumerate(engines) if node in nodes) for node in range(places))
    return ()


def _engines(system: System) -> list[range]:
    """The nodes of every engine; each kind of engine begins on a node of its own."""
    found, first = [], 0
    for part in system.rollout:
        size, per_node = part.layout.gpus_per_engine, part.layout.gpus_per_node
        for n in range(part.layout.engines):
            found.append(range(first + n * size // per_node, first + ((n + 1) * size - 1) // per_node + 1))
        first = found[-1].stop
    return found


def _nodes(system: System, side: str) -> int:
    if side == TRAINER:
        return -(-system.trainer.gpus // system.trainer.gpus_per_node)
    return _engines(system)[-1].stop


def _repair(system: System, given: Given, checkpoint: CheckpointCost) -> float:
    value = system.profile.value
    if given.kind == TRAINER_CRASH:
        return value("trainer_restart_s") + checkpoint.load_seconds
    if given.kind == ENGINE_CRASH:
        part = system.rollout[0]
        weights = sum(engine_rank_bytes(system.model, part.layout, BYTES[part.entry.dtype]))
        weights *= part.layout.gpus_per_engine / part.layout.pp
        return value("engine_restart_s") + weights / value("filesystem_node_read_rate")
    return value("slow_node_s")
