"""The GPUs of the catalog: datasheet figures, each with its source, nothing derated."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

from ruamel.yaml import YAML

from rlsim.catalog.names import nearest
from rlsim.errors import UserError

FILE = Path(__file__).parent / "gpus.yaml"
FIGURES = (
    "hbm_bytes",
    "hbm_bandwidth",
    "nvlink_bandwidth",
    "nvlink_domain",
    "nic_bandwidth",
    "host_link_bandwidth",
    "host_memory_bytes",
    "price_per_hour",
    "watts",
)


@dataclass(frozen=True)
class GpuSpec:
    """SI units. Bandwidths of links are per GPU and one direction; peaks are dense (no sparsity).

    peak_flops           FLOP/s by dtype: "bf16", "fp8", "fp4" on tensor cores, "fp32" outside them
    nvlink_bandwidth     bytes/s to the other GPUs of the scale-up domain (NVLink, Infinity Fabric or PCIe)
    nvlink_domain        GPUs in that domain
    nic_bandwidth        bytes/s of the GPU's share of its node's network cards
    host_link_bandwidth  bytes/s between the GPU and host memory
    host_memory_bytes    of one node of `gpus_per_node` GPUs
    price_per_hour       $ per GPU-hour, a default to be overridden
    kernel_system        the GPU's own measured kernel tables, None where there are none
    scaled_from          without own tables: the GPU whose tables or fitted efficiencies stand in
    sources              where each figure is from, by field ("peak_flops.bf16" for a peak)
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


def gpus() -> tuple[str, ...]:
    """Names of the catalog's GPUs."""
    return tuple(_catalog())


def gpu(name: str) -> GpuSpec:
    """A GPU by its name or one of its written-out aliases, in any case ("H100-SXM", "h100", "h100-80gb")."""
    catalog = _catalog()
    wanted = name.strip().lower().replace("_", "-").replace(" ", "-").removeprefix("nvidia-").removeprefix("amd-")
    found = wanted if wanted in catalog else _aliases().get(wanted)
    if found is None:
        close = nearest(wanted, [*catalog, *_aliases()])
        raise UserError(
            f"no GPU {name!r} in the catalog",
            key="cluster.gpu",
            fix=f"{close}; the catalog has {', '.join(catalog)}" if close else "one of " + ", ".join(catalog),
        )
    return catalog[found]


@cache
def _content() -> dict[str, dict[str, Any]]:
    content: dict[str, dict[str, Any]] = YAML(typ="safe").load(FILE.read_text(encoding="utf-8"))
    return content


@cache
def _aliases() -> dict[str, str]:
    return {alias: name for name, entry in _content().items() for alias in entry["aliases"]}


@cache
def _catalog() -> dict[str, GpuSpec]:
    return {name: _spec(name, entry) for name, entry in _content().items()}


def _spec(name: str, entry: Mapping[str, Any]) -> GpuSpec:
    peaks = entry["peak_flops"]
    sources = {f"peak_flops.{dtype}": figure["source"] for dtype, figure in peaks.items()}
    sources |= {key: entry[key]["source"] for key in FIGURES}
    figures = {key: float(entry[key]["value"]) for key in FIGURES if key != "nvlink_domain"}
    return GpuSpec(
        name=name,
        peak_flops={dtype: float(figure["value"]) for dtype, figure in peaks.items()},
        nvlink_domain=int(entry["nvlink_domain"]["value"]),
        gpus_per_node=int(entry["gpus_per_node"]),
        kernel_system=entry.get("tables"),
        scaled_from=entry.get("scaled_from"),
        sources=sources,
        **figures,
    )
