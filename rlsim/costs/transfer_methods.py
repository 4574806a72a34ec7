"""How each framework moves weights, read from its source: the method behind `strategy: auto`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True)
class Method:
    """What a framework does, apart from how fast it is.

    colocated, disaggregated   strategy by placement
    senders         trainer ranks that feed the network at once: "node" (all of the root's node relay over
                    NVLink, so all its NICs work) or "one" (a single rank, a single NIC)
    stage_heads     every pipeline stage sends its own layers, so nothing is gathered across stages
    overlap         groups of pipeline stages: groups work on different buckets at the same time, stages
                    inside a group take turns
    per_tensor      tensors go one by one, each with a remote call
    quantise_at_source  an FP8 engine gets FP8 bytes; else the stored dtype travels and the engine quantises
    stored_dtype    parameters travel as they are stored (FSDP fp32: 4 bytes), else cast to bf16 first
    from_host       co-located: the source is a copy in pinned host memory
    source          where this was read
    """

    colocated: str
    disaggregated: str
    senders: str
    stage_heads: bool
    colocated_overlap: tuple[tuple[str, ...], ...]
    overlap: tuple[tuple[str, ...], ...]
    per_tensor: bool
    quantise_at_source: bool
    stored_dtype: bool
    from_host: bool
    source: str


PING_PONG = (("gather",), ("handover", "load"))
ALTERNATE = (("gather", "handover", "load"),)
PIPELINED = (("gather",), ("wire",), ("load",))
SENT_AND_LOADED = (("gather",), ("wire", "load"))
ONE_BY_ONE = (("gather", "wire", "load"),)

METHODS: Mapping[str, Method] = {
    "generic": Method(
        colocated="ipc",
        disaggregated="broadcast",
        senders="node",
        stage_heads=False,
        colocated_overlap=PING_PONG,
        overlap=PIPELINED,
        per_tensor=False,
        quantise_at_source=False,
        stored_dtype=False,
        from_host=False,
        source="the best of the public methods: double-buffered buckets, all NICs of the root's node",
    ),
    "verl": Method(
        colocated="ipc",
        disaggregated="broadcast",
        senders="node",
        stage_heads=False,
        colocated_overlap=ALTERNATE,
        overlap=PIPELINED,
        per_tensor=False,
        quantise_at_source=False,
        stored_dtype=True,
        from_host=False,
        source="verl 1dda039: checkpoint_engine naive (one IPC buffer, strict alternation) and nccl (multi_sender)",
    ),
    "slime": Method(
        colocated="ipc",
        disaggregated="broadcast",
        senders="one",
        stage_heads=True,
        colocated_overlap=ALTERNATE,
        overlap=ONE_BY_ONE,
        per_tensor=False,
        quantise_at_source=True,
        stored_dtype=False,
        from_host=True,
        source="slime 624b824: pinned host copy, bucket by bucket; one NCCL group per stage, global engine lock",
    ),
    "openrlhf": Method(
        colocated="ipc",
        disaggregated="broadcast",
        senders="one",
        stage_heads=False,
        colocated_overlap=ALTERNATE,
        overlap=ONE_BY_ONE,
        per_tensor=True,
        quantise_at_source=False,
        stored_dtype=False,
        from_host=False,
        source="OpenRLHF 3c3be62: ZeRO gather, remote call and broadcast per parameter",
    ),
    "areal": Method(
        colocated="ipc",
        disaggregated="broadcast",
        senders="one",
        stage_heads=True,
        colocated_overlap=PING_PONG,
        overlap=SENT_AND_LOADED,
        per_tensor=False,
        quantise_at_source=False,
        stored_dtype=False,
        from_host=False,
        source="AReaL 4aef98d: 1024 MB chunks, one pending bucket overlaps the gathers of the next",
    ),
    "nemo-rl": Method(
        colocated="ipc",
        disaggregated="broadcast",
        senders="node",
        stage_heads=False,
        colocated_overlap=PING_PONG,
        overlap=SENT_AND_LOADED,
        per_tensor=False,
        quantise_at_source=False,
        stored_dtype=False,
        from_host=False,
        source="NeMo-RL 7ea279a: ZMQ + CUDA IPC with two half buffers; packed broadcast, two buffers of 2% "
        "of HBM, all trainer ranks in the group",
    ),
    "trl": Method(
        colocated="ipc",
        disaggregated="broadcast",
        senders="one",
        stage_heads=False,
        colocated_overlap=ALTERNATE,
        overlap=ONE_BY_ONE,
        per_tensor=True,
        quantise_at_source=False,
        stored_dtype=False,
        from_host=False,
        source="TRL f2cd577: one HTTP call and one broadcast per parameter; in-process load when co-located",
    ),
}


def method_of(framework: str) -> Method:
    """The framework's method; `generic` for one that has none of its own."""
    return METHODS.get(framework, METHODS["generic"])
