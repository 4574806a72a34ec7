"""Blocks `model`, `framework` and `cluster`: what runs, on what."""

from __future__ import annotations

from typing import Annotated, Literal, Self

from pydantic import model_validator

from rlsim.scenario.block import Block, Bytes, Listed, Price, Rate, Seconds, from_scalar, item, needed
from rlsim.scenario.quantity import MistakeError

PoolName = str


class Lora(Block):
    """Low-rank adapters instead of full fine-tuning."""

    rank: int = needed("LoRA rank", ge=1)
    targets: str | Annotated[tuple[str, ...], Listed] = item(
        "all-linear", "LoRA targets: all-linear or a list of modules"
    )
    sync: Literal["adapter", "merged"] = item("adapter", "LoRA sync: send the adapters, or merged full weights")


class ModelRef(Block):
    """`model: NAME` is short for `model: {base: NAME}`."""

    base: str = needed("model: catalog id, or path to a Hugging Face config.json (or its folder)", min_length=1)
    lora: Lora | None = item(None, "LoRA: adapters on the base model; default full fine-tuning")

    _short = model_validator(mode="before")(from_scalar("base", str))


class Framework(Block):
    """`framework: NAME` is short for `framework: {name: NAME}`."""

    name: Literal["generic", "verl", "nemo-rl", "openrlhf", "slime", "areal", "trl", "roll"] = item(
        "generic", "framework: chooses calibration profile, sync method and offload order"
    )
    version: str | None = item(
        None, 'framework version: quoted text, for example "0.6"; profiles know no versions yet, so it is only noted'
    )

    _short = model_validator(mode="before")(from_scalar("name", str))


class Pool(Block):
    """GPUs of one kind, for clusters of several kinds."""

    gpu: str = needed("GPU type of the pool: catalog name")
    gpus: int = needed("GPUs of the pool", unit="GPUs", ge=1)
    gpus_per_node: int = item(8, "GPUs per node of the pool", unit="GPUs", ge=1)
    nvlink_domain: int | None = item(None, "NVLink domain of the pool: default the catalog's", unit="GPUs", ge=1)
    nic: Rate | None = item(None, "NIC of the pool: per GPU, one direction; default the catalog's", gt=0)
    host_link: Rate | None = item(None, "host link of the pool: per GPU, one direction; default the catalog's", gt=0)
    nvlink: Rate | None = item(None, "NVLink of the pool: per GPU, one direction; default the catalog's", gt=0)
    hbm: Bytes | None = item(None, "HBM size per GPU of the pool; default the catalog's", gt=0)
    hbm_bandwidth: Rate | None = item(None, "HBM bandwidth per GPU of the pool; default the catalog's", gt=0)
    host_memory: Bytes | None = item(None, "host memory per node of the pool; default the catalog's", gt=0)
    gpu_hour: Price | None = item(
        None, "price of a GPU-hour of the pool: default costs.gpu_hour, which holds for every pool, then the catalog's"
    )


class Link(Block):
    """Bandwidth between two pools."""

    between: Annotated[tuple[PoolName, PoolName], Listed] = needed("pools joined by the link")
    bandwidth: Rate = needed("bandwidth of the link: one direction, all GPUs together", gt=0)
    latency: Seconds = item(0.0, "latency of the link: one way")


class Cluster(Block):
    """The GPUs there are. Figures left out are the catalog's; each may be overridden on its own."""

    gpu: str = item("", "GPU type: catalog name, for example h100-sxm; needed unless there are pools")
    gpus: int = item(0, "GPUs of the cluster: needed unless there are pools", unit="GPUs", ge=1)
    gpus_per_node: int = item(8, "GPUs per node", unit="GPUs", ge=1)
    nvlink_domain: int | None = item(None, "NVLink domain: GPUs that reach each other by NVLink", unit="GPUs", ge=1)
    nic: Rate | None = item(None, "NIC bandwidth: per GPU, one direction", gt=0)
    host_link: Rate | None = item(None, "host link bandwidth: GPU to host memory, per GPU, one direction", gt=0)
    nvlink: Rate | None = item(None, "NVLink bandwidth: per GPU, one direction", gt=0)
    hbm: Bytes | None = item(None, "HBM size per GPU", gt=0)
    hbm_bandwidth: Rate | None = item(None, "HBM bandwidth per GPU", gt=0)
    host_memory: Bytes | None = item(None, "host memory per node", gt=0)
    pools: dict[PoolName, Pool] | None = item(None, "pools: GPUs of several kinds, by name, instead of gpu and gpus")
    links: Annotated[tuple[Link, ...], Listed] = item((), "links between pools")
    oversubscription: float = item(1.0, "oversubscription of the network above the nodes: 1 = full bisection", ge=1)

    @property
    def total_gpus(self) -> int:
        """All GPUs there are, of every pool."""
        return sum(pool.gpus for pool in self.pools.values()) if self.pools else self.gpus

    @model_validator(mode="after")
    def _complete(self) -> Self:
        if self.pools:
            if self.gpu or self.gpus:
                raise MistakeError("both pools and gpu, gpus are given", "pools alone, or gpu and gpus alone")
        elif not self.gpu or not self.gpus:
            missing = "gpu" if not self.gpu else "gpus"
            raise MistakeError(f"{missing} is missing", "for example {gpu: h100-sxm, gpus: 64}")
        return self
