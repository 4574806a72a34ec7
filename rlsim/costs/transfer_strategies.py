"""Ways to bring new weights from the trainer to the engines: one small function each, seconds by part.

Symbols: P bytes of one model on the wire, K buckets, I engine instances, R receiving GPUs. Each function
returns `Timed`: exposed seconds by part, which add up to the whole, and the seconds its busiest link works.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from math import ceil, log2

from rlsim.costs.pipeline import pipeline
from rlsim.costs.transfer_case import PlanBytes, Receiver, Side, SyncCase
from rlsim.costs.transfer_links import each, once, round_trip
from rlsim.costs.transfer_methods import PIPELINED


@dataclass(frozen=True)
class Timed:
    """Seconds by part, and the seconds of the busiest link alone (hidden or not)."""

    parts: Mapping[str, float]
    link_seconds: float

    @property
    def seconds(self) -> float:
        return sum(self.parts.values())


def ipc(case: SyncCase) -> Timed:
    """Co-located: gather a bucket, hand it over by CUDA IPC, load it into the engine of the same GPU.

    Per bucket: gather (links or software, whichever is slower) | copy into the shared buffer + engine load +
    control. NeMo-RL ping-pongs between two half buffers, x + (K-1)*max(x, y) + y; verl's naive path and slime
    take turns, K*(x + y). slime reads the shards from pinned host memory first. Source: verl 1dda039, slime
    624b824, NeMo-RL 7ea279a.
    """
    value = case.profile.value
    stages = {
        "gather": assembly(case) + host_read(case),
        "handover": case.model_bytes / value("refit_ipc_rate") + control(case),
        "load": engine_load(case, case.model_bytes),
    }
    parts = pipeline(stages, case.method.colocated_overlap, case.rounds)
    return Timed({**parts, "fixed": value("refit_fixed_s")}, gather_links(case))


def broadcast(case: SyncCase) -> Timed:
    """NCCL broadcast of buckets from the root to every engine GPU; what overlaps depends on the framework.

    wire = P / (rails * NIC) + K * nodes * latency. A ring enters and leaves each node once per channel, so
    its rate is that of the NICs of the sending ranks in the root's node: `rails` grows with the number of
    sending ranks and does not depend on I. Source: NCCL ring broadcast; verl 1dda039 (relay ranks), slime,
    AReaL, NeMo-RL.
    """
    wire = broadcast_wire(case)
    stages = {
        "gather": assembly(case),
        "wire": wire,
        "load": engine_load(case, case.model_bytes) + control(case),
    }
    parts = pipeline(stages, case.method.overlap, case.rounds)
    return Timed({**parts, "fixed": case.profile.value("refit_fixed_s")}, wire)


def root_fanout(case: SyncCase) -> Timed:
    """The root sends a whole copy to every instance, one after the other, through all NICs of its node.

    wire = max(I * P / (source node NICs), P / (NICs of one instance in a node)). No multicast: one 8-NIC node
    to four instances of 70B takes at least 4 * 141 / (8 * 50) = 1.41 s.
    """
    side = case.source.side
    egress = case.engines * case.model_bytes / (side.rails * case.nic_rate(side))
    ingress = max(
        case.model_bytes / (min(r.gpus_per_engine, r.side.rails) * case.nic_rate(r.side)) for r in case.receivers
    )
    wire = max(max(egress, ingress) * case.oversubscription, each(case, lambda r: r.engines * case.model_bytes))
    wire += case.rounds * round_trip(case)
    stages = {
        "gather": assembly(case),
        "wire": wire,
        "load": engine_load(case, case.model_bytes) + control(case),
    }
    parts = pipeline(stages, case.method.overlap, case.rounds)
    return Timed({**parts, "fixed": case.profile.value("refit_fixed_s")}, wire)


def chain(case: SyncCase) -> Timed:
    """Store-and-forward along the receiving GPUs, root to first to second ..., two buffers each.

    A bucket takes R hops; the buckets follow at the pace of the slowest of gather, hop and load. A link to another
    pool is one of the hops, and sets the pace of all where it is the slowest:
    (K + R - 1) hops of P/K / NIC + control when the network is slowest. Small buckets shorten the fill, until
    the cost per bucket bites: best bucket = sqrt(P * cost * NIC / (R - 1)). Source: verl 1dda039
    checkpoint_engine nixl, mooncake.
    """
    rounds = max(1, ceil(case.model_bytes / case.bucket))
    control = case.profile.value("refit_per_bucket_s")
    hop = case.model_bytes / rounds / chain_rate(case) * case.oversubscription + control
    across = once(case, case.model_bytes / rounds) + round_trip(case) + control
    pace = max(hop, across)
    stages = {
        "gather": assembly(case),
        "wire": rounds * pace,
        "load": engine_load(case, case.model_bytes),
    }
    parts = pipeline(stages, PIPELINED, rounds)
    fill = (case.receiving_gpus - 1) * hop + (pace - hop)
    parts["wire"] += fill
    fixed = case.profile.value("refit_fixed_s")
    return Timed({**parts, "fixed": fixed}, rounds * pace + fill)


def p2p(case: SyncCase) -> Timed:
    """Every trainer rank writes its slices straight into the GPUs that need them (RDMA); no gather.

    wire = max(bytes into the busiest engine GPU / NIC, bytes out of the busiest trainer GPU / NIC), both as the
    plan of `rlsim.reshard` has them; what stays in a node goes over NVLink. Each GPU converts and loads its own
    slice only. Source: vLLM PR 43375, Perplexity arXiv 2510.27656, Miles issue 755.
    """
    return _point_to_point(case, None)


def p2p_replicate(case: SyncCase) -> Timed:
    """Point-to-point to one instance of each kind, which its peers then copy: the trainer's NICs carry few copies.

    replicate = bytes of one GPU / NIC + (I - 2) bucket hops: each GPU streams to the GPU of the same place in
    the next instance, every kind of engine in its own pool. Source: Miles, SGLang remote_instance loader (PRs 13125,
    14997).
    """
    first = _point_to_point(case, 1)
    if case.colocated or all(r.engines == 1 for r in case.receivers):
        return first
    replicate = max(_replicate(case, r) for r in case.receivers)
    return Timed({**first.parts, "replicate": replicate}, first.link_seconds + replicate)


def p2p_tree(case: SyncCase) -> Timed:
    """The same with whole copies along a tree: whoever has the weights passes them on, every round doubles them.

    replicate = ceil(log2 I) · (bytes of one GPU / NIC + copy in), every kind of engine in its own pool. A chain hides
    its hops where there are many buckets; a tree needs no buckets. Source: SGLang remote_instance loader.
    """
    first = _point_to_point(case, 1)
    if case.colocated or all(r.engines == 1 for r in case.receivers):
        return first
    replicate = max(
        ceil(log2(r.engines)) * (r.recv_gpu * case.oversubscription / case.nic_rate(r.side) + copy_in(case, r.recv_gpu))
        for r in case.receivers
    )
    return Timed({**first.parts, "replicate": replicate}, first.link_seconds + replicate)


def _replicate(case: SyncCase, receiver: Receiver) -> float:
    """Seconds until all instances of one kind have copied from the first."""
    if receiver.engines == 1:
        return 0.0
    rate = case.nic_rate(receiver.side) / case.oversubscription
    hop = min(case.bucket, receiver.recv_gpu) / rate
    return receiver.recv_gpu / rate + (receiver.engines - 2) * hop + copy_in(case, receiver.recv_gpu)


def host(case: SyncCase) -> Timed:
    """Through host memory: shards to the trainer's hosts, over the NICs, up to the engines' GPUs, reload.

    D2H of the shards first; then per bucket: NICs of one node | each GPU of the node lifts its part and
    shares it over NVLink | reload. Source: MoonshotAI checkpoint-engine 59a3c4f, verl kimi_ckpt_engine
    (offload 7 s + update 3.5 s).
    """
    value = case.profile.value
    source = case.source.side
    down = case.model_bytes / (source.gpus * host_rate(case, source))
    wire = _host_wire(case)
    up = max(case.model_bytes / (r.side.rails * host_rate(case, r.side)) for r in case.receivers)
    share = max(case.model_bytes / _nvlink(case, r.side) for r in case.receivers)
    stages = {
        "wire": wire,
        "host_to_device": up,
        "load": max(engine_load(case, case.model_bytes), share) + bucket_control(case),
    }
    rounds = max(1, ceil(case.model_bytes / case.bucket))
    parts = pipeline(stages, (("wire",), ("host_to_device",), ("load",)), rounds)
    save = down + case.tensors * per_tensor(case) / case.source.owners
    return Timed({"device_to_host": save, **parts, "fixed": value("refit_fixed_s")}, max(wire, down, up))


def filesystem(case: SyncCase) -> Timed:
    """Write a checkpoint to a shared file system, every instance reads it: one after the other.

    P / write rate + max(bytes of a node / rate of one node, I * P / rate of the file system) + load;
    engines of one node share its page cache. The file system stands at the trainer: other pools read over their link.
    Source: AReaL and slime disk modes.
    """
    value = case.profile.value
    write = case.model_bytes / value("filesystem_write_rate")
    copies = sum(min(r.engines, r.side.nodes) for r in case.receivers)
    read = max(
        *(r.recv_node / value("filesystem_node_read_rate") for r in case.receivers),
        copies * case.model_bytes / value("filesystem_read_rate"),
        each(case, lambda r: min(r.engines, r.side.nodes) * case.model_bytes) + round_trip(case),
    )
    lift = max(case.model_bytes / (r.side.rails * host_rate(case, r.side)) for r in case.receivers)
    parts = {
        "device_to_host": case.model_bytes / (case.source.side.gpus * host_rate(case, case.source.side)),
        "write": write + case.tensors * per_tensor(case),
        "read": read,
        "host_to_device": lift,
        "load": engine_load(case, case.model_bytes),
        "fixed": value("refit_fixed_s"),
    }
    return Timed(parts, write + read)


STRATEGIES: Mapping[str, Callable[[SyncCase], Timed]] = {
    "ipc": ipc,
    "broadcast": broadcast,
    "root-fanout": root_fanout,
    "chain": chain,
    "p2p": p2p,
    "p2p-replicate": p2p_replicate,
    "p2p-tree": p2p_tree,
    "host": host,
    "filesystem": filesystem,
}
COLOCATED = ("ipc", "p2p", "host", "filesystem")
DISAGGREGATED = ("broadcast", "root-fanout", "chain", "p2p", "p2p-replicate", "p2p-tree", "host", "filesystem")


def assembly(case: SyncCase) -> float:
    """Seconds to turn the trainer's shards into full tensors ready to send: gather, convert, pack.

    max(links, P / refit_gather_rate) + tensors * cost per tensor (+ P / quantise rate when the source
    quantises). Public rows say that software, not links, sets this: a 72B model spends 23.5 of 24 s here
    (verl issue 7060).
    """
    value = case.profile.value
    rate = value("refit_fsdp_gather_rate" if case.source.element_wise else "refit_gather_rate")
    software = case.model_bytes / rate + case.read_bytes / value("refit_quantise_rate")
    return max(gather_links(case), software) + case.tensors * per_tensor(case)


def per_tensor(case: SyncCase) -> float:
    """Seconds that one tensor costs at the source whatever its size: launch, conversion, packing."""
    name = "refit_fsdp_per_tensor_s" if case.source.element_wise else "refit_per_tensor_s"
    return case.profile.value(name)


def gather_links(case: SyncCase) -> float:
    """Seconds of the links in the gather of the whole model onto every rank that takes part.

    NVLink: what the GPU lacks of the model / NVLink. NICs: what the node lacks / all NICs of the node;
    nothing when the group that holds one replica fits in a node. Stage heads gather their own layers only.
    """
    source, side = case.source, case.source.side
    needed = case.model_bytes * (source.held_by_stage if case.method.stage_heads and not case.colocated else 1.0)
    into_gpu = max(0.0, needed - source.held_gpu) / _nvlink(case, side) if side.rails > 1 else 0.0
    into_node = max(0.0, needed - source.held_node) / (side.rails * case.nic_rate(side)) if side.nodes > 1 else 0.0
    return max(into_gpu, into_node * case.oversubscription)


def chain_rate(case: SyncCase) -> float:
    """bytes/s of one hop: the slower NIC at its store-and-forward efficiency."""
    nic = min([case.source.side.nic, *(r.side.nic for r in case.receivers)])
    return nic * case.profile.value("chain_nic_efficiency")


def broadcast_wire(case: SyncCase) -> float:
    """Seconds of one broadcast's bytes on the slowest rails, plus the fill of the pipeline over the nodes.

    A link to another pool carries them once; every bucket waits for its acknowledgement, a round trip over the link.
    """
    side = case.source.side
    senders = 1 if case.method.senders == "one" else side.rails
    rate = min(
        [senders * case.nic_rate(side)] + [min(senders, r.side.rails) * case.nic_rate(r.side) for r in case.receivers]
    )
    fill = case.rounds * sum(r.side.nodes for r in case.receivers) * case.profile.value("collective_latency_s")
    rails = case.model_bytes * case.oversubscription / rate
    return max(rails, once(case, case.model_bytes)) + fill + case.rounds * round_trip(case)


def engine_load(case: SyncCase, incoming: float) -> float:
    """Seconds for an engine worker to take `incoming` bytes apart and copy its slices into its parameters.

    incoming / load rate, and where FP8 engines are sent bf16 or fp32, own slice / quantise rate: max over receivers of
    the bytes into the busiest GPU, as they come off the wire.
    """
    own = max((r.recv_gpu for r in case.receivers if r.quantises), default=0.0)
    return copy_in(case, incoming) + own / case.profile.value("refit_quantise_rate")


def copy_in(case: SyncCase, incoming: float) -> float:
    """Seconds to copy `incoming` bytes into place, ready as they are."""
    return incoming / case.profile.value("refit_load_rate")


def control(case: SyncCase) -> float:
    """Seconds of remote calls: one per tensor where the framework works so, else one per bucket."""
    if case.method.per_tensor:
        return case.tensors * case.profile.value("refit_rpc_s")
    return bucket_control(case)


def bucket_control(case: SyncCase) -> float:
    """Seconds of hand-shakes and device synchronisations, per bucket."""
    return max(1, ceil(case.model_bytes / case.bucket)) * case.profile.value("refit_per_bucket_s")


def host_read(case: SyncCase) -> float:
    """Seconds to lift the shards from pinned host memory; pipeline stages take turns."""
    if not case.method.from_host:
        return 0.0
    at_once = max(1, round(case.source.owners * case.source.held_by_stage))
    return case.model_bytes / (at_once * host_rate(case, case.source.side))


def host_rate(case: SyncCase, side: Side) -> float:
    """bytes/s per GPU over the host link, the node's memory shared by its GPUs; pinned."""
    value = case.profile.value
    return min(side.host_link, value("host_link_rate"), value("node_host_bandwidth") / min(side.gpus, side.host_gpus))


def _nvlink(case: SyncCase, side: Side) -> float:
    return side.nvlink * case.profile.value("nvlink_efficiency") if side.nvlink else case.nic_rate(side)


def _point_to_point(case: SyncCase, copies: int | None) -> Timed:
    """From shard to shard into so many instances of each kind (None: all)."""
    value = case.profile.value
    sent = sum((r.engines if copies is None else copies) * r.engine_bytes for r in case.receivers)
    if case.plan is not None and copies is None:
        wire = planned_wire(case, case.plan) * case.oversubscription
    elif case.colocated:
        wire = max(missing_wire(case, r) for r in case.receivers) * case.oversubscription
    else:
        into = max(r.recv_gpu / case.nic_rate(r.side) for r in case.receivers)
        out = case.source.send_gpu * (sent / case.model_bytes) / case.nic_rate(case.source.side)
        wire = max(into, out) * case.oversubscription
    wire = max(wire, each(case, lambda r: (r.engines if copies is None else copies) * r.engine_bytes))
    wire += round_trip(case)
    own = max(case.source.send_gpu, case.model_bytes / case.source.side.gpus)
    reading = case.read_bytes / case.model_bytes / value("refit_quantise_rate")
    gather = own * (1.0 / value("refit_load_rate") + reading)
    operations = max(r.tensors_gpu for r in case.receivers) * value("refit_p2p_op_s")
    rounds = max(1, ceil(case.recv_gpu / case.bucket))
    stages = {"gather": gather, "wire": wire + operations, "load": engine_load(case, case.recv_gpu)}
    parts = pipeline(stages, PIPELINED, rounds)
    return Timed({**parts, "fixed": value("refit_fixed_s")}, wire)


def planned_wire(case: SyncCase, plan: PlanBytes) -> float:
    """Seconds of the busiest link under the plan: NICs and NVLink work side by side."""
    into = min(r.side.nic for r in case.receivers) / case.source.side.nic
    nic = case.nic_rate(case.source.side)
    near = min(_nvlink(case, side) for side in (case.source.side, *(r.side for r in case.receivers)))
    return max(plan.out_nic / nic, plan.in_nic / (into * nic), max(plan.out_nvlink, plan.in_nvlink) / near)


def missing_wire(case: SyncCase, receiver: Receiver) -> float:
    """Co-located, by plan: what the node lacks over its NICs, what the GPU lacks over NVLink."""
    side = receiver.side
    into_node = receiver.missing_node / (side.rails * case.nic_rate(side)) if side.nodes > 1 else 0.0
    return max(into_node, receiver.missing_gpu / _nvlink(case, side))


def _host_wire(case: SyncCase) -> float:
    if case.colocated:
        lacking = max(0.0, case.model_bytes - case.source.held_node) if case.source.side.nodes > 1 else 0.0
        return lacking * case.oversubscription / (case.source.side.rails * case.nic_rate(case.source.side))
    out = case.model_bytes / (case.source.side.gpus * case.nic_rate(case.source.side))
    into = max(case.model_bytes / (r.side.rails * case.nic_rate(r.side)) for r in case.receivers)
    return max(max(out, into) * case.oversubscription, once(case, case.model_bytes)) + round_trip(case)
