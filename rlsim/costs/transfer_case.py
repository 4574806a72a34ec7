"""One weight synchronisation as numbers: who holds, who needs, over which links; no strategy yet."""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil

from rlsim.catalog.profiles import Profile
from rlsim.costs.transfer_methods import Method


@dataclass(frozen=True)
class Side:
    """The GPUs at one end of the transfer.

    `node`: GPUs that share NICs and NVLink: a node, or the whole NVLink domain where it is larger.
    `host_gpus`: GPUs that share one host's memory. `nic`, `nvlink`, `host_link`: bytes/s per GPU, one
    direction, as the datasheet has them; `hbm` bytes/s.
    """

    gpus: int
    node: int
    host_gpus: int
    nic: float
    nvlink: float
    hbm: float
    host_link: float

    @property
    def nodes(self) -> int:
        return ceil(self.gpus / self.node)

    @property
    def rails(self) -> int:
        """GPUs, hence NICs, of one fully used node."""
        return min(self.gpus, self.node)


@dataclass(frozen=True)
class Source:
    """The trainer as a sender.

    side           its GPUs
    held_gpu       bytes of weights on the busiest trainer GPU, wire dtype
    held_node      distinct bytes of the model on one trainer node
    send_gpu       bytes that leave the busiest trainer GPU for one full copy when replicas share the work
    held_by_stage  share of the model that one pipeline stage holds (1/pp for even stages)
    owners         distinct ranks that hold one replica of the model together (1 = every rank holds all of it)
    element_wise   parameters are split element by element (FSDP, ZeRO-3) and gathered tensor by tensor
    """

    side: Side
    held_gpu: float
    held_node: float
    send_gpu: float
    held_by_stage: float
    owners: int
    element_wise: bool = False


@dataclass(frozen=True)
class Crossing:
    """A link that the weights cross to another pool: bytes/s of all GPUs together, one direction; seconds one way."""

    pool: str
    bandwidth: float
    latency: float = 0.0


@dataclass(frozen=True)
class Receiver:
    """One kind of rollout engine as a receiver.

    side            all GPUs of these engines
    engines         instances, each of which needs a whole copy
    gpus_per_engine GPUs of one instance
    recv_gpu        bytes into the busiest GPU
    recv_node       distinct bytes that one node needs, at least
    engine_bytes    bytes into all GPUs of one instance, replicated slices counted for each GPU
    missing_gpu     of recv_gpu what does not lie on that GPU already (co-located)
    missing_node    of recv_node what does not lie on that node already (co-located)
    tensors_gpu     tensors of which one GPU keeps a slice
    quantises       FP8 engines that are sent more than FP8: each GPU quantises its own slice as it loads
    crossing        the link from the trainer's pool to theirs; None: one network, as fast as its NICs
    """

    side: Side
    engines: int
    gpus_per_engine: int
    recv_gpu: float
    recv_node: float
    engine_bytes: float
    missing_gpu: float
    missing_node: float
    tensors_gpu: float
    quantises: bool = False
    crossing: Crossing | None = None


@dataclass(frozen=True)
class PlanBytes:
    """Bytes of the point-to-point plan on the busiest GPU's links, all engines served.

    in_nic: where kinds of engines have unlike NICs, as if all had the slowest: bytes · slowest / own.
    """

    out_nic: float
    out_nvlink: float
    in_nic: float
    in_nvlink: float


@dataclass(frozen=True)
class SyncCase:
    """A weight synchronisation, ready for every strategy.

    model_bytes   one whole model in the dtype on the wire
    read_bytes    one whole model in the dtype it is quantised from (0: nothing is quantised at the source)
    tensors       tensors of the checkpoint (Hugging Face names)
    bucket        bytes sent together
    mlp_share     share of the bytes in FFN projections and routed experts
    plan          what the plan puts on the links; None: replicas of a slice share its sends evenly
    colocated     trainer and engines share the GPUs
    oversubscription  factor by which the fabric above the nodes is thinner than the NICs
    width         bytes of one value on the wire
    changed       share of the values that a step changes, where a delta sync may send just these (None: adapters are
                  few and change whole); encoding: how it writes them, "index" or "zstd"
    grace         seconds that running engines stand still before weights move
    rebuild       the process group between the roles is built anew at every sync
    """

    model_bytes: float
    read_bytes: float
    tensors: int
    bucket: float
    colocated: bool
    oversubscription: float
    source: Source
    receivers: tuple[Receiver, ...]
    method: Method
    profile: Profile
    mlp_share: float = 0.0
    plan: PlanBytes | None = None
    width: float = 2.0
    changed: float | None = 0.02
    encoding: str = "index"
    rebuild: bool = False
    grace: float = 0.0

    @property
    def rounds(self) -> int:
        """Items that go through the pipeline: buckets, or tensors where they go one by one."""
        return self.tensors if self.method.per_tensor else max(1, ceil(self.model_bytes / self.bucket))

    @property
    def engines(self) -> int:
        return sum(r.engines for r in self.receivers)

    @property
    def receiving_gpus(self) -> int:
        return sum(r.engines * r.gpus_per_engine for r in self.receivers)

    @property
    def delivered(self) -> float:
        """Bytes into all engines together, replicas counted."""
        return sum(r.engines * r.engine_bytes for r in self.receivers)

    @property
    def recv_gpu(self) -> float:
        """Bytes into the busiest engine GPU."""
        return max(r.recv_gpu for r in self.receivers)

    def nic_rate(self, side: Side) -> float:
        """bytes/s that one NIC of a side gives in a weight transfer."""
        return side.nic * self.profile.value("sync_nic_efficiency")
