"""Activation bytes of the training pass: what the forward keeps for the backward, layer by layer.

All figures are bytes per token on one rank: tokens are those of the rank after the CP and Ulysses split. bf16 (2 bytes)
unless said. Counted by the tensors that autograd keeps, after Korthikanti et al. 2022 (section 4), with flash attention
(no score matrix), gated MLPs and grouped heads.
"""

from __future__ import annotations

from dataclasses import dataclass

from rlsim.grids import TrainLayout
from rlsim.model import ModelSpec


@dataclass(frozen=True)
class LayerActivations:
    """Bytes per token of one layer on one rank.

    residual  the layer's input: all that full recompute keeps
    norms     norm inputs and outputs other than the residual
    heads     query, key, value (MLA: latents and up-projections) and attention output
    mlp       gate, up and their product, or the same of routed and shared experts with dispatch and combine
    gathered  a whole-sequence copy that sequence parallelism gathers, and its gradient: live only within a layer
    """

    residual: float
    norms: float
    heads: float
    mlp: float
    gathered: float

    @property
    def whole(self) -> float:
        """Kept without recompute."""
        return self.residual + self.norms + self.heads + self.mlp


def layer_activations(m: ModelSpec, layout: TrainLayout, moe: bool, imbalance: float = 1.0) -> LayerActivations:
    """Bytes per token of a dense or MoE layer.

    Residual 2H and norm tensors are split over TP only under sequence parallelism. Modules in eager Hugging Face
    code (FSDP2, ZeRO) also keep an fp32 copy per norm and the gate after its activation.
    """
    split = layout.tp if layout.sequence_parallel else 1
    hidden = 2.0 * m.hidden
    eager = layout.backend != "megatron"
    norms = (3 + (4 if eager else 0)) * hidden / split
    mlp = _experts(m, layout, split, imbalance) if moe else _gated(m.intermediate, layout.tp, eager)
    return LayerActivations(hidden / split, norms, _heads(m, layout.tp, split), mlp, 2 * hidden)


def kept_bytes(m: ModelSpec, a: LayerActivations, layout: TrainLayout, recompute: str) -> float:
    """Bytes per token that one layer keeps from its forward to its backward.

    full: the input. selective: Megatron recomputes the attention core, whose statistics alone are saved with flash
    attention; FSDP2 keeps the attention output and every second matrix product (torchtitan). none: everything.
    """
    if recompute == "full":
        return a.residual
    if recompute == "selective" and layout.backend == "fsdp2":
        return a.residual + (a.heads + a.mlp) / 2
    return a.whole


def working_bytes(a: LayerActivations, recompute: str) -> float:
    """Bytes per token live within one layer's backward: what is recomputed, the gathered input, and the gradients
    of the widest product (as large as half of what the MLP or attention keeps).
    """
    again = a.whole if recompute == "full" else 0.0
    return again + a.gathered + max(a.mlp, a.heads) / 2


def forward_bytes(a: LayerActivations) -> float:
    """Bytes per token live in a forward pass that keeps nothing: input, gathered copy, the widest part."""
    return 2 * a.residual + a.gathered / 2 + max(a.mlp, a.heads)


def _gated(width: int, tp: int, eager: bool) -> float:
    return 2.0 * (4 if eager else 3) * width / tp


def _heads(m: ModelSpec, tp: int, split: int) -> float:
    a = m.attention
    out = 2.0 * a.heads * a.v_head_dim / tp + 4.0 * a.heads / tp
    if a.kind == "gqa":
        return 2.0 * (a.heads * a.head_dim + a.kv_heads * (a.head_dim + a.v_head_dim)) / tp + out
    latents = 2.0 * ((a.q_lora_rank or 0) + a.kv_lora_rank + a.qk_rope_dim) / split
    up = 2.0 * a.heads * (2 * a.head_dim + a.qk_nope_dim + a.v_head_dim) / tp
    return latents + up + out


def _experts(m: ModelSpec, layout: TrainLayout, split: int, imbalance: float) -> float:
    """Routed experts: k copies of a token, the busiest rank `imbalance` times the mean.

    Kept: the experts' input and products, and their output as it comes back, for the gradient of the router's
    probabilities. The permuted copy that is sent away is not: a permutation and an all-to-all keep indices only.
    """
    e = m.experts
    if e is None:
        return 0.0
    eager = layout.backend != "megatron"
    copies = e.top_k / split
    received = imbalance * copies * layout.etp * (2.0 * m.hidden + _gated(e.intermediate, layout.etp, eager))
    returned = copies * 2.0 * m.hidden
    router = 8.0 * e.count / split
    return received + returned + router + _gated(e.shared_intermediate, layout.tp, eager)


# Pipeline ----------


def micro_batches_in_flight(layout: TrainLayout, stage: int, micro_batches: int) -> float:
    """Micro-batches whose activations a stage holds at once, in units of all its layers.

    1F1B: min(m, p − stage). Interleaved with v chunks, Megatron warms up with 2·(p − stage − 1) + (v − 1)·p passes
    of one chunk and holds one more; a chunk has 1/v of the stage's layers.
    """
    if layout.vpp == 1:
        return min(micro_batches, layout.pp - stage)
    warm_up = 2 * (layout.pp - stage - 1) + (layout.vpp - 1) * layout.pp + 1
    return min(micro_batches * layout.vpp, warm_up) / layout.vpp
