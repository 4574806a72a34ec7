"""One GPU of the catalog: datasheet figures, each with its source, nothing derated."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True)
class GpuSpec:
    """SI units. Bandwidths of links are per GPU and one direction; peaks are dense (no sparsity).

    peak_flops           FLOP/s by dtype: "bf16", "fp8", "fp4" on tensor cores, "fp32" outside them
    nvlink_bandwidth     B/s to the other GPUs of the scale-up domain (NVLink, Infinity Fabric or PCIe)
    nvlink_domain        GPUs in that domain
    nic_bandwidth        B/s of the GPU's share of the node's network cards
    host_link_bandwidth  B/s between GPU and host memory
    host_memory_bytes    of one node of `gpus_per_node` GPUs
    price_per_hour       $ per GPU-hour, a default to be overridden
    kernel_system        directory of measured kernel tables, None where there are none
    scaled_from          the GPU whose tables are scaled instead
    """

    name: str
    peak_flops: Mapping[str, float] = field(hash=False)
    hbm_bytes: float
    hbm_bandwidth: float
    nvlink_bandwidth: float
    nvlink_domain: int
    nic_bandwidth: float
    host_link_bandwidth: float
    host_memory_bytes: float
    price_per_hour: float
    watts: float
    gpus_per_node: int = 8
    kernel_system: str | None = None
    scaled_from: str | None = None
    sources: Mapping[str, str] = field(hash=False, default_factory=dict)
