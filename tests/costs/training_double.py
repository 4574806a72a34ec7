"""Kernels with round rates, and trainers priced with them."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from rlsim.costs.training import TrainingCosts
from rlsim.costs.training_case import Case, case_of
from rlsim.system import System
from tests.costs.systems import system

FLOPS = 500e12
LINK = 100e9
STREAM = 2e12


class FlatKernels:
    """GEMMs at 500 TFLOP/s, collectives at 100 GB/s of the whole tensor, streaming at 2 TB/s; no latency."""

    def gemm_seconds(self, m: Any, n: int, k: int, dtype: str = "bf16") -> Any:
        return 2.0 * np.asarray(m, dtype=np.float64) * n * k / FLOPS, "measured"

    def nccl_seconds(self, op: str, size: Any, gpus: int, domain: int | None = None) -> Any:
        turns = 2.0 if op == "all_reduce" else 1.0
        return turns * np.asarray(size, dtype=np.float64) / LINK, "measured"

    def all_to_all_seconds(
        self, tokens: Any, shape: Any, phase: str = "decode", domain: int | None = None, dispatch_bytes: float = 1.0
    ) -> Any:
        t = np.asarray(tokens, dtype=np.float64)
        return t * shape.hidden * (dispatch_bytes + 2.0) / LINK, "scaled"

    def elementwise_seconds(self, size: Any, launches: float = 1.0) -> Any:
        return np.asarray(size, dtype=np.float64) / STREAM


ROUND = {
    "gemm_derate": 1.0,
    "flop_joules_hopper": 1e-13,
    "gpu_speed_spread": 0.0,
    "nic_efficiency": 1.0,
    "nvlink_efficiency": 1.0,
    "collective_latency_s": 0.0,
    "elementwise_fused": 1.0,
    "elementwise_eager": 1.0,
    "moe_layer_floor_s": 0.0,
    "moe_layer_sync_s": 0.0,
    "layer_floor_s": 0.0,
    "update_fixed_s": 0.0,
    "logprob_fixed_s": 0.0,
    "microbatch_host_s": 0.0,
    "overlap_sm_share": 0.0,
    "expert_imbalance": 1.0,
}


def rounded(text: str, *overrides: str, **values: float) -> System:
    """A system whose profile has round figures and no fixed costs, some values set."""
    plain = system(text, *overrides)
    return replace(plain, profile=plain.profile.with_values(**{**ROUND, **values}))


def case(text: str, *overrides: str, **values: float) -> Case:
    """The trainer of such a system on flat kernels."""
    return case_of(rounded(text, *overrides, **values), FlatKernels())


def costs(text: str, *overrides: str, **values: float) -> TrainingCosts:
    """Prices of such a trainer on flat kernels."""
    return TrainingCosts(rounded(text, *overrides, **values), FlatKernels())
