"""The trainer as its cost models see it: model, layout, GPU, links, options and calibration profile in one place."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from statistics import NormalDist
from typing import TYPE_CHECKING, Any, Literal, Protocol, TypeAlias

import numpy as np
import numpy.typing as npt

from rlsim.architecture import Layer
from rlsim.catalog import GpuSpec
from rlsim.catalog.profiles import Profile
from rlsim.costs.kernels.work import MoeShape
from rlsim.costs.network import Group, LinkKernels, Timed, Topology, topology
from rlsim.dtypes import BYTES
from rlsim.layout import TrainLayout
from rlsim.model import ModelSpec

if TYPE_CHECKING:
    from rlsim.scenario.schema import Lora, Trainer
    from rlsim.system import System

Floats: TypeAlias = npt.NDArray[np.float64]
ACTIVATION = 2.0
"""Bytes of an activation or gathered weight: bf16."""


class TrainingKernels(LinkKernels, Protocol):
    """The kernel times that training asks for; `rlsim.costs.kernels.Kernels` has them."""

    def gemm_seconds(self, m: Any, n: int, k: int, dtype: str = "bf16") -> Timed: ...

    def all_to_all_seconds(
        self,
        tokens: Any,
        shape: MoeShape,
        phase: Literal["decode", "prefill"] = "decode",
        domain: int | None = None,
        dispatch_bytes: float = 1.0,
    ) -> Timed: ...

    def elementwise_seconds(self, size: Any, launches: float = 1.0) -> Floats: ...


@dataclass(frozen=True)
class Case:
    """Everything that the seconds of a trainer pass depend on, but for the samples' lengths.

    `lora`: the adapters; None: every weight is trained.
    """

    model: ModelSpec
    layout: TrainLayout
    gpu: GpuSpec
    kernels: TrainingKernels
    links: Topology
    options: Trainer
    profile: Profile
    framework: str
    lora: Lora | None

    # --- rows of the work ---------------------------------------------------------------------------------------
    @property
    def rows(self) -> float:
        """Rows of a tensor-parallel GEMM per token of the data-parallel rank: 1/(cp·ulysses)."""
        return 1.0 / self.layout.sequence_split

    @property
    def rows_local(self) -> float:
        """Rows that one rank holds between the parallel regions: with SP also divided by tp."""
        return self.rows / (self.layout.tp if self.layout.sequence_parallel else 1)

    @property
    def gradient_bytes(self) -> float:
        """Bytes of one accumulated gradient element."""
        return BYTES[self.options.grad_dtype]

    @property
    def eager(self) -> bool:
        """Plain PyTorch (FSDP2, ZeRO), not Megatron's and Transformer Engine's fused kernels."""
        return self.layout.backend != "megatron"

    @property
    def frozen(self) -> bool:
        """LoRA: the base weights get no gradients."""
        return self.lora is not None

    @cached_property
    def slowest(self) -> float:
        """Compute time of the slowest of N equal GPUs over the mean: 1 + spread·(mean of the largest of N normals).

        Chips of one model differ in the clock they hold at their power limit, and every step waits for all of them.
        Blom's approximation of the largest: the (N - 0.375)/(N + 0.25) quantile.
        """
        n = self.layout.gpus
        if n == 1:
            return 1.0
        return 1.0 + self.profile.value("gpu_speed_spread") * NormalDist().inv_cdf((n - 0.375) / (n + 0.25))

    # --- communicators (ranks count tp first, then cp/ulysses, dp, pp; experts etp, ep, edp) ------------------------
    @property
    def tp_group(self) -> Group:
        return self.links.group(self.layout.tp, 1)

    @property
    def etp_group(self) -> Group:
        return self.links.group(self.layout.etp, 1)

    @property
    def ep_group(self) -> Group:
        return self.links.group(self.layout.ep, self.layout.etp)

    @property
    def dense_group(self) -> Group:
        """Ranks that share gradients or shards of a dense weight."""
        sharded = self.layout.shard if self.layout.shards_weights else self.layout.dense_replicas
        return self.links.group(sharded, self.layout.tp)

    @property
    def expert_group(self) -> Group:
        """Ranks that share gradients or shards of an expert weight."""
        if self.layout.shards_weights:
            return self.links.group(self.layout.expert_shard, self.layout.etp * self.layout.ep)
        return self.links.group(self.layout.edp, self.layout.etp * self.layout.ep)

    def kinds(self) -> tuple[tuple[Layer, ...], npt.NDArray[np.float64]]:
        """Distinct kinds of layers, and how many of each every pipeline stage holds [stages, kinds]."""
        layers: Sequence[Layer] = self.model.layers
        kinds = tuple(dict.fromkeys(layers))
        counts = np.zeros((self.layout.pp, len(kinds)))
        for stage, held in enumerate(self.layout.stages):
            for layer in held:
                counts[stage, kinds.index(layers[layer])] += 1
        return kinds, counts


def case_of(system: System, kernels: TrainingKernels) -> Case:
    """The trainer of a resolved system."""
    scenario = system.scenario
    return Case(
        model=system.model,
        layout=system.trainer,
        gpu=system.trainer_pool.gpu,
        kernels=kernels,
        links=topology(system.trainer_pool, system.profile, kernels, scenario.cluster.oversubscription),
        options=scenario.trainer,
        profile=system.profile,
        framework=scenario.framework.name,
        lora=scenario.model.lora,
    )
