"""What no trainer can undercut: model FLOPs at peak, and the bytes of its local shard at full HBM bandwidth."""

from __future__ import annotations

from rlsim.costs.training_case import ACTIVATION, Case
from rlsim.costs.training_memorybound import STATE_BYTES, local_parameters
from rlsim.costs.training_packing import Ints
from rlsim.model import attention_flops, forward_flops


def model_flops(case: Case, lengths: Ints, train: bool) -> float:
    """FLOPs of the whole batch without recompute: the forward, three times it for an update.

    LoRA: the frozen weights' gradient GEMMs are not done, so twice the GEMMs and three times the attention.
    """
    forward = forward_flops(case.model, lengths)
    if not train:
        return forward
    return 2.0 * forward + attention_flops(case.model, lengths) if case.frozen else 3.0 * forward


def floor_seconds(case: Case, flops: float, train: bool) -> float:
    """max(FLOPs / (GPUs·peak of the training precision), optimizer states through HBM once)."""
    peaks = case.gpu.peak_flops
    peak = max(peaks["bf16"], peaks.get(case.options.precision, 0.0))
    compute = flops / (case.layout.gpus * peak)
    if not train or case.options.optimizer_device != "gpu":
        return compute
    stages = range(case.layout.pp)
    states = max(local_parameters(case, s) for s in stages) * (STATE_BYTES + ACTIVATION)
    return max(compute, states / case.gpu.hbm_bandwidth)
