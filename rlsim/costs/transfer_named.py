"""Weight syncs by the names that frameworks give them: `weight_sync.strategy: verl-nccl` and so on.

Each is one of the ways of moving weights, done as that framework does it: which ranks send, what overlaps, what one
tensor costs, which dtype travels. The framework that runs the rest of the step may be another.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from math import ceil

from rlsim.costs.transfer_case import Receiver, SyncCase
from rlsim.costs.transfer_strategies import Timed, broadcast, host, ipc, p2p

MATRICES = 3.0
"""Gate, up and down: the tensors of one expert, or of one dense MLP."""


@dataclass(frozen=True)
class Named:
    """A framework's way of moving weights.

    placement  where it works: "colocated" or "disaggregated"
    framework  whose habits (senders, overlap, dtype on the wire, bucket) it has
    timed      seconds by part
    formula    P bytes, B of a bucket, K buckets, n tensors; rates g gather, b broadcast, m copy, l load, h host; c per
               bucket, τ per tensor
    source     where it was read
    """

    placement: str
    framework: str
    timed: Callable[[SyncCase], Timed]
    formula: str
    source: str


def nemo_reshard(case: SyncCase) -> Timed:
    """FFN projections and routed experts from shard to shard, everything else by packed broadcast, one after the other.

    s = bytes of gate, up, down and experts ÷ all bytes; T = T_p2p(s·P) + T_broadcast((1−s)·P).
    """
    share = case.mlp_share
    direct, packed = p2p(_part(case, share)), broadcast(_part(case, 1.0 - share))
    parts = {name: seconds for name, seconds in packed.parts.items() if name != "fixed"}
    for name, seconds in direct.parts.items():
        parts[name] = parts.get(name, 0.0) + seconds
    return Timed(parts, direct.link_seconds + packed.link_seconds)


def _part(case: SyncCase, share: float) -> SyncCase:
    """The same sync of a share of the model."""
    source = replace(
        case.source,
        held_gpu=case.source.held_gpu * share,
        held_node=case.source.held_node * share,
        send_gpu=case.source.send_gpu * share,
    )
    return replace(
        case,
        model_bytes=case.model_bytes * share,
        read_bytes=case.read_bytes * share,
        tensors=ceil(case.tensors * share),
        source=source,
        receivers=tuple(_part_of(r, share) for r in case.receivers),
    )


def _part_of(receiver: Receiver, share: float) -> Receiver:
    return replace(
        receiver,
        recv_gpu=receiver.recv_gpu * share,
        recv_node=receiver.recv_node * share,
        engine_bytes=receiver.engine_bytes * share,
        missing_gpu=receiver.missing_gpu * share,
        missing_node=receiver.missing_node * share,
        tensors_gpu=receiver.tensors_gpu * share,
    )


NAMED: Mapping[str, Named] = {
    "verl-nccl": Named(
        "disaggregated",
        "verl",
        broadcast,
        "B/g + (K−1)·max(B/g, B/b, B/l + c) + B/b + B/l",
        "verl 1dda039: checkpoint_engine nccl, two buffers, ranks of the source node as relays",
    ),
    "verl-naive-ipc": Named(
        "colocated",
        "verl",
        ipc,
        "K·(B/g + B/m + B/l + c) + n·τ: strict alternation",
        "verl 1dda039: checkpoint_engine naive, one IPC buffer",
    ),
    "slime-distributed": Named(
        "disaggregated",
        "slime",
        broadcast,
        "K·c + P/g + P/b + P/l: pipeline stages take turns under one engine lock, one NIC sends",
        "slime 624b824: one NCCL group per stage, non-expert and expert pass",
    ),
    "openrlhf-broadcast": Named(
        "disaggregated",
        "openrlhf",
        broadcast,
        "n·(τ_gather + τ_rpc) + P·(1/g + 1/b + 1/l)",
        "OpenRLHF 3c3be62: a remote call and a broadcast for every parameter",
    ),
    "areal-nccl": Named(
        "disaggregated",
        "areal",
        broadcast,
        "B/g + (K−1)·max(B/g, B/b + c + B/l) + …: one pending bucket",
        "AReaL 4aef98d: chunks of 1,024 MB, broadcast k beside the gathers of k + 1",
    ),
    "nemo-reshard": Named(
        "disaggregated",
        "nemo-rl",
        nemo_reshard,
        "T_p2p(s·P) + T_packed_broadcast((1−s)·P), s: share of FFN projections and experts",
        "NeMo-RL 7ea279a: refit_transport nccl_reshard",
    ),
    "trl-server": Named(
        "disaggregated",
        "trl",
        broadcast,
        "n·(τ_gather + τ_http) + P·(1/g + 1/b + 1/l)",
        "TRL f2cd577: an HTTP call and a broadcast for every parameter",
    ),
    "checkpoint-engine": Named(
        "disaggregated",
        "generic",
        host,
        "P/(S·h) + rounds·(B/h + N·max(B/b, B/l)): through pinned host memory",
        "MoonshotAI checkpoint-engine 59a3c4f",
    ),
    "p2p-plan": Named(
        "disaggregated",
        "generic",
        p2p,
        "max(max_r in_r/NIC, max_s out_s/NIC) + n_ops·α, in and out from the plan",
        "plan of rlsim.reshard; vLLM sharded RDT, Miles, Awex",
    ),
}
