"""The process group between trainer and engines, where a framework builds it anew at every weight sync."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from rlsim.costs.transfer_case import SyncCase


def group_seconds(case: SyncCase, strategy: str) -> float:
    """Seconds to build the group: base + ranks * seconds per rank; none where nothing is sent through one.

    Ranks: the senders and all receiving GPUs; point to point, every trainer GPU that holds a slice. 8 + 248 ranks:
    1 + 256 * 0.01 = 3.6 s. Source: NCCL bootstrap, 1-10 s at hundreds of ranks.
    """
    ranks = RANKS.get(strategy, _broadcast)(case)
    value = case.profile.value
    return value("group_init_base_s") + ranks * value("group_init_rank_s") if ranks else 0.0


def _none(case: SyncCase) -> int:
    return 0


def _broadcast(case: SyncCase) -> int:
    if case.colocated:
        return 0
    return (1 if case.method.senders == "one" else case.source.side.rails) + case.receiving_gpus


def _everybody(case: SyncCase) -> int:
    return 0 if case.colocated else case.source.owners + case.receiving_gpus


def _receivers(case: SyncCase) -> int:
    return 0 if case.colocated else case.receiving_gpus


RANKS: Mapping[str, Callable[[SyncCase], int]] = {
    "ipc": _none,
    "filesystem": _none,
    "p2p": _everybody,
    "p2p-replicate": _everybody,
    "p2p-tree": _everybody,
    "p2p-plan": _everybody,
    "chain": _everybody,
    "host": _receivers,
    "checkpoint-engine": _receivers,
}
