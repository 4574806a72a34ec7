"""The summary's block on the weight sync: one sync, and what a step loses of generation to its syncs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from rlsim.sim.prices import Costs, Delta
from rlsim.sim.recorder import PoolCounts, Step


def weight_sync(
    steps: Sequence[Step], costs: Costs, phase: Mapping[str, float], pool: Mapping[str, float]
) -> dict[str, Any]:
    """One weight sync, and what a step loses to it: on the trainer's clock, and of generation."""
    sync = costs.sync
    return {
        "strategy": sync.strategy,
        "bytes_total": float(sync.bytes_total),
        "bytes_max_per_gpu": float(sync.bytes_max_per_gpu),
        "seconds": float(sync.seconds),
        "floor_seconds": float(sync.floor_seconds),
        "transfer_seconds": float(sync.transfer_seconds),
        "exposed_seconds": phase["weight_sync"],
        "lost_generation_seconds": pool["weight_sync"] + pool["reprefill"],
        "lost": lost(steps, costs, pool),
        "delta": None if sync.delta is None else _delta(sync.delta),
    }


def lost(steps: Sequence[Step], costs: Costs, pool: Mapping[str, float]) -> dict[str, float]:
    """Seconds of generation that a step loses to its weight syncs, before, during and after them.

    drain_s          engines run out with nothing new admitted, or wait for the grace period, before a sync
    stand_still_s    they stand still for the sync itself: weights, flush, remote calls
    group_rebuild_s  they stand still for a new process group
    reprefill_s      contexts whose KV a sync threw away are prefilled again after it
    regenerate_s     tokens that a sync threw away are generated again after it
    engine_seconds   engine-seconds without generation of all these; engine_share: of all engine-seconds of the step
    """
    n = len(steps)
    losses = [step.lost for step in steps]
    engines = sum(count for _, count in costs.engines)
    grace, group = sum(one.grace for one in losses) / n, sum(one.group for one in losses) / n
    still = max(0.0, pool["weight_sync"] - grace - group)
    total = PoolCounts()
    for step in steps:
        total = total.plus(step.counts)
    again = _share(sum(one.forgotten for one in losses), total.reprefilled) if total.preemptions else 1.0
    thrown = _share(sum(one.aborted for one in losses), total.generated)
    generating = max(0.0, total.busy - total.prefill - total.reprefill)
    spent = engines * (grace + group + still) + sum(one.drain_idle for one in losses) / n
    spent += (again * total.reprefill + thrown * generating) / n
    wall = sum(step.seconds for step in steps) / n
    return {
        "drain_s": grace + sum(one.drain for one in losses) / n,
        "stand_still_s": still,
        "group_rebuild_s": group,
        "reprefill_s": again * pool["reprefill"],
        "regenerate_s": thrown * pool["generate"],
        "engine_seconds": spent,
        "engine_share": spent / (engines * wall) if wall else 0.0,
    }


def _share(part: float, whole: float) -> float:
    return min(1.0, part / whole) if whole else 0.0


def _delta(delta: Delta) -> dict[str, Any]:
    """One delta sync beside a full one by the strategy in use, and the link rate below which it is faster."""
    return {
        "changed": delta.changed,
        "bytes": delta.bytes,
        "seconds": delta.seconds,
        "full": delta.full,
        "full_seconds": delta.full_seconds,
        "break_even_bytes_per_s": delta.break_even,
    }
