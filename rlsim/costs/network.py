"""Seconds on the links between a pool's GPUs: collectives, all-to-alls and point-to-point sends.

Inside an NVLink domain: measured NCCL tables. Across domains: latency + bytes over bandwidth, where a group uses the
NICs of all its members in a node, and so all groups of the node together use all its NICs.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Literal, Protocol, TypeAlias

import numpy as np
import numpy.typing as npt

from rlsim.catalog.profiles import Profile
from rlsim.system import Pool

Floats: TypeAlias = npt.NDArray[np.float64]
Provenance = Literal["measured", "scaled", "roofline"]
Timed: TypeAlias = tuple[Floats, Provenance]
Op = Literal["all_gather", "reduce_scatter", "all_reduce"]


class LinkKernels(Protocol):
    """The measured collectives that this module asks for; `rlsim.costs.kernels.Kernels` has them."""

    def nccl_seconds(self, op: str, size: Any, gpus: int, domain: int | None = None) -> Timed: ...


@dataclass(frozen=True)
class Group:
    """Members of one communicator: `size` GPUs, of which `local` share an NVLink domain."""

    size: int
    local: int

    @property
    def domains(self) -> int:
        """NVLink domains that the group touches."""
        return -(-self.size // self.local)


@dataclass(frozen=True)
class Topology:
    """A pool's links. `nic` and `nvlink` are datasheet bytes/s per GPU in one direction."""

    kernels: LinkKernels
    nic: float
    nvlink: float
    domain: int
    nic_efficiency: float
    nvlink_efficiency: float
    latency: float

    def group(self, size: int, stride: int) -> Group:
        """Communicator of `size` ranks that stand `stride` ranks apart; ranks fill one NVLink domain after another."""
        local = max(1, min(size, self.domain // stride))
        return Group(size, local)

    def collective(self, op: Op, size: float | Floats, group: Group) -> Timed:
        """Seconds of one collective. `size`: bytes of the whole tensor (gathered, to be scattered, or reduced).

        Across D domains every domain takes in size·(D-1)/D bytes (twice that for an all-reduce) through the NICs of its
        members; the ring is as slow as the slower of its NVLink and its NIC hops:
        max(NVLink part, size·(D-1)/D / (local·nic·efficiency)) + latency·log2(D).
        """
        s = np.asarray(size, dtype=np.float64)
        if group.size <= 1:
            return np.zeros(s.shape), "measured"
        inner, source = self._inside(op, s, group)
        if group.domains == 1:
            return inner, source
        turns = 2.0 if op == "all_reduce" else 1.0
        volume = turns * s * (group.domains - 1) / group.domains
        outer = volume / (group.local * self.nic * self.nic_efficiency)
        total = np.maximum(inner, outer) + turns * math.log2(group.domains) * self.latency
        return np.where(s > 0, total, 0.0), "scaled" if source == "measured" else source

    def _inside(self, op: Op, s: Floats, group: Group) -> Timed:
        if group.local == 1:
            return np.zeros(s.shape), "roofline"
        return self.kernels.nccl_seconds(op, s, group.local, group.local)

    def all_to_all(self, sent: float | Floats, group: Group) -> Timed:
        """Every rank sends `sent` bytes in all, the same to each member, itself included.

        NVLink and NIC work at the same time: max(sent·(local-1)/n / nvlink, sent·(n-local)/n / nic) + latency.
        """
        s = np.asarray(sent, dtype=np.float64)
        if group.size <= 1:
            return np.zeros(s.shape), "measured"
        near = s * (group.local - 1) / group.size
        far = s * (group.size - group.local) / group.size
        if group.domains == 1:
            return self.kernels.nccl_seconds("alltoall", s, group.size, group.size)
        seconds = np.maximum(near / (self.nvlink * self.nvlink_efficiency), far / (self.nic * self.nic_efficiency))
        return np.where(s > 0, seconds + self.latency, 0.0), "roofline"

    def send(self, size: float | Floats, stride: int) -> Floats:
        """Seconds for one rank to hand `size` bytes to the rank `stride` further on, all ranks doing so at once.

        Within a domain over NVLink, else each rank through its own NIC.
        """
        s = np.asarray(size, dtype=np.float64)
        near = stride < self.domain
        rate = self.nvlink * self.nvlink_efficiency if near else self.nic * self.nic_efficiency
        return np.where(s > 0, s / rate + (self.latency / 2 if near else self.latency), 0.0)


def topology(pool: Pool, profile: Profile, kernels: LinkKernels, oversubscription: float = 1.0) -> Topology:
    """The links of a pool. `oversubscription` > 1: the fabric above the nodes carries that much less than the NICs."""
    return Topology(
        kernels=kernels,
        nic=pool.nic / oversubscription,
        nvlink=pool.gpu.nvlink_bandwidth,
        domain=max(1, pool.nvlink_domain),
        nic_efficiency=profile.value("nic_efficiency"),
        nvlink_efficiency=profile.value("nvlink_efficiency"),
        latency=profile.value("collective_latency_s"),
    )
