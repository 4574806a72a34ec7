"""Work that streams memory: optimizer step, gradient accumulation, embedding, logits and loss."""

from __future__ import annotations

from rlsim.costs.training_case import ACTIVATION, Case, Floats
from rlsim.costs.training_layer import Gemm, one_gemm
from rlsim.costs.training_sharding import trained_parameters

STATE_BYTES = 4.0 * (3 + 3)
"""Adam in fp32: master weight and two moments read, and written."""
FORWARD_SHARE = 0.5
"""Passes over the logits without a backward: the cast, log-softmax and pick, but no gradient."""


def optimizer_seconds(case: Case, stage: int) -> float:
    """Optimizer step of one rank: bytes over its local shard / (HBM·efficiency), or on the host.

    Per parameter 24 B of fp32 states both ways, the gradient read twice (norm, then step), the bf16 weight written
    (fp32 storage is the master itself). On the host: gradient down and weight up over the host link in turn with the
    step, which streams the node's memory shared by its GPUs. On NVMe the states are read and written through the node's
    drives while it does (ZeRO-Infinity): the slower of the two.
    """
    local = local_parameters(case, stage)
    g = case.gradient_bytes
    states = local * (STATE_BYTES + 2 * g + ACTIVATION)
    if case.options.optimizer_device == "gpu":
        return states / (case.gpu.hbm_bandwidth * case.profile.value("optimizer_hbm_efficiency"))
    link = min(case.gpu.host_link_bandwidth, case.profile.value("host_link_rate"))
    step = states / (case.profile.value("node_host_bandwidth") / case.layout.gpus_per_node)
    if case.options.optimizer_device == "nvme":
        step = max(step, local * STATE_BYTES / (case.profile.value("nvme_rate") / case.layout.gpus_per_node))
    return local * (g + ACTIVATION) / link + step


def local_parameters(case: Case, stage: int) -> float:
    """Parameters whose optimizer states one rank of the stage keeps: its slice over the shard groups."""
    dense, experts = trained_parameters(case, stage)
    return dense / case.dense_group.size + experts / max(1, case.expert_group.size)


def accumulation_seconds(case: Case, dense: float, experts: float, kept: bool = False) -> tuple[float, float]:
    """(forward, backward) streaming of a unit's weights and gradients beside its GEMMs, whatever the tokens.

    Megatron adds each weight gradient to the main gradient: it reads and writes that once a micro-batch. FSDP2 and
    ZeRO-3 copy gathered weights into place (read and write) each time they gather them, and cast gradients into the
    reduction's buffer. `kept`: gathered once for both passes (embedding and head).
    """
    held = dense + experts
    if case.layout.shards_weights:
        forward = 2 * held * ACTIVATION
        backward = forward if case.options.reshard_after_forward and not kept else 0.0
        backward += 0.0 if case.frozen else held * (ACTIVATION + case.gradient_bytes)
    else:
        forward = 0.0
        backward = 0.0 if case.frozen else 2 * held * case.gradient_bytes
    return float(case.kernels.elementwise_seconds(forward, 0.0)), float(case.kernels.elementwise_seconds(backward, 0.0))


def head_seconds(case: Case, tokens: Floats, backward: bool) -> tuple[Floats, Floats, str]:
    """(GEMM, logits) seconds of the LM head and loss on the last stage, and the GEMM's provenance.

    GEMM [rows, H] x [H, V/tp] in bf16, three times with a backward. Then `logits_passes` over rows·V/tp fp32 values
    (cast, temperature, log-softmax, its gradient), half of them without a backward.
    """
    width = max(1, case.model.head_width // case.layout.tp)
    gemm = Gemm(width, case.model.hidden, case.rows, "column", precise=True)
    rows = tokens * gemm.share
    seconds, source = one_gemm(case, rows, gemm.n, gemm.k, "bf16")
    passes = case.profile.value("logits_passes") * (1.0 if backward else FORWARD_SHARE)
    times = (2.0 if case.frozen else 3.0) if backward else 1.0
    logits = case.kernels.elementwise_seconds(rows * width * 4.0 * passes, 0.0)
    return seconds * times, logits, source


def embedding_seconds(case: Case, tokens: Floats, backward: bool) -> Floats:
    """Embedding on the first stage: rows of H read and written, gradients scattered back."""
    size = tokens * case.rows * case.model.hidden * ACTIVATION * (6 if backward else 2)
    return case.kernels.elementwise_seconds(size, 0.0)
