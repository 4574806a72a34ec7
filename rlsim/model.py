"""Exact accounting of an architecture: parameters, FLOPs, KV-cache bytes.

Symbols as in the papers: L layers, H hidden, V vocabulary, nh / nkv query / KV heads, d head size, I MLP
width, E experts of which k are active, r_q / r_kv MLA's latent ranks, s sequence length. Parameters are
counts, FLOPs are multiply and add counted apart, bytes are plain bytes.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from rlsim.architecture import Attention, Experts, Layer, ModelSpec
from rlsim.tensors import TensorSpec, tensors

__all__ = [
    "Attention",
    "Experts",
    "Layer",
    "ModelSpec",
    "TensorSpec",
    "active_parameters",
    "attention_flops",
    "attention_matmul_weights",
    "attention_parameters",
    "decode_attention_flops",
    "embedding_parameters",
    "expert_parameters",
    "final_norm_parameters",
    "forward_flops",
    "head_parameters",
    "kv_bytes",
    "kv_bytes_per_token_layer",
    "layer_parameters",
    "matmul_weights_per_token",
    "mlp_parameters",
    "norm_parameters",
    "parameters",
    "router_parameters",
    "shared_expert_parameters",
    "tensors",
]

Lengths: TypeAlias = "Sequence[int] | Sequence[float] | NDArray[np.int64] | NDArray[np.float64]"


# Parameters ----------


def parameters(m: ModelSpec) -> int:
    """All parameters: V·H + head + final norm + the layers with all their experts, without MTP layers."""
    layers = sum(sum(layer_parameters(m, i)) for i in range(m.num_layers))
    return embedding_parameters(m) + head_parameters(m) + final_norm_parameters(m) + layers


def active_parameters(m: ModelSpec) -> int:
    """Parameters one token uses: everything but the E − k experts that its router does not choose.

    Both embeddings are counted, as model cards do.
    """
    if m.experts is None:
        return parameters(m)
    idle = (m.experts.count - m.experts.top_k) * expert_parameters(m)
    return parameters(m) - m.moe_layers * idle


def attention_parameters(m: ModelSpec) -> int:
    """Projections, biases and sinks of one layer's attention (its q/k and latent norms are in
    `norm_parameters`).

    GQA: H·nh·d + 2·H·nkv·d + nh·d·H. MLA: `attention_matmul_weights`. Biases: (nh + 2·nkv)·d and H. Sinks:
    nh.
    """
    a = m.attention
    total = attention_matmul_weights(m)
    if a.qkv_bias:
        total += a.heads * a.head_dim + a.kv_heads * (a.head_dim + a.v_head_dim)
    if a.o_bias:
        total += m.hidden
    if a.sinks:
        total += a.heads
    return total


def attention_matmul_weights(m: ModelSpec) -> int:
    """Weights of one layer's attention that a token is multiplied with.

    GQA: H·nh·d + 2·H·nkv·d + nh·d·H. MLA: q_a H·r_q, q_b r_q·nh·(d_nope+d_rope) (or q H·nh·(d_nope+d_rope)),
    kv_a H·(r_kv+d_rope), kv_b r_kv·nh·(d_nope+d_v), o nh·d_v·H. The absorbed decode form multiplies a token
    with the two halves of kv_b on the query and output side instead, which is the same number.
    """
    a, H = m.attention, m.hidden
    out = a.heads * a.v_head_dim * H
    if a.kind == "gqa":
        return H * a.heads * a.head_dim + H * a.kv_heads * (a.head_dim + a.v_head_dim) + out
    qk = a.heads * (a.qk_nope_dim + a.qk_rope_dim)
    query = H * qk if a.q_lora_rank is None else H * a.q_lora_rank + a.q_lora_rank * qk
    latent = H * (a.kv_lora_rank + a.qk_rope_dim)
    return query + latent + a.kv_lora_rank * a.heads * (a.qk_nope_dim + a.v_head_dim) + out


def mlp_parameters(m: ModelSpec) -> int:
    """Gated MLP of one dense layer: gate, up, down = 3·H·I."""
    return 3 * m.hidden * m.intermediate


def expert_parameters(m: ModelSpec) -> int:
    """ONE routed expert: 3·H·I_moe, with gpt-oss's biases 2·I_moe + H. 0 for a dense model."""
    e = m.experts
    if e is None:
        return 0
    bias = 2 * e.intermediate + m.hidden if e.expert_bias else 0
    return 3 * m.hidden * e.intermediate + bias


def shared_expert_parameters(m: ModelSpec) -> int:
    """The shared experts of one MoE layer together: 3·H·I_shared (+ H for their gate)."""
    e = m.experts
    if e is None:
        return 0
    return 3 * m.hidden * e.shared_intermediate + (m.hidden if e.shared_gate else 0)


def router_parameters(m: ModelSpec) -> int:
    """Router of one MoE layer: H·E (+ E for a bias or score correction)."""
    e = m.experts
    if e is None:
        return 0
    return m.hidden * e.count + (e.count if e.router_bias else 0)


def norm_parameters(m: ModelSpec) -> int:
    """Norm vectors of one layer: 2·H (4·H in Gemma 2), 2·d with q/k-norm, r_q + r_kv with MLA."""
    a = m.attention
    latent = (a.q_lora_rank or 0) + a.kv_lora_rank if a.kind == "mla" else 0
    return m.layer_norms * m.hidden + (2 * a.head_dim if a.qk_norm else 0) + latent


def final_norm_parameters(m: ModelSpec) -> int:
    """The norm before the LM head: H."""
    return m.hidden


def embedding_parameters(m: ModelSpec) -> int:
    """Embedding table: V·H."""
    return m.vocab * m.hidden


def head_parameters(m: ModelSpec) -> int:
    """Head: V·H (a value or reward head 1·H), 0 where it is tied to the embedding."""
    return 0 if m.tied else m.head_width * m.hidden


def layer_parameters(m: ModelSpec, layer: int) -> tuple[int, int]:
    """(dense, experts) parameters of one layer: what expert parallelism leaves whole, and all E experts."""
    dense = attention_parameters(m) + norm_parameters(m)
    if not m.layers[layer].moe or m.experts is None:
        return dense + mlp_parameters(m), 0
    dense += router_parameters(m) + shared_expert_parameters(m)
    return dense, m.experts.count * expert_parameters(m)


# FLOPs ----------


def matmul_weights_per_token(m: ModelSpec) -> int:
    """A_mm: weights that one token is multiplied with. A forward pass costs 2·A_mm FLOPs per token.

    Attention projections, the MLP or k experts with shared experts and router, and the LM head once (tied
    or not); the embedding table, norms and biases never.
    """
    dense_layers = m.num_layers - m.moe_layers
    total = m.num_layers * attention_matmul_weights(m) + dense_layers * mlp_parameters(m) + m.head_width * m.hidden
    if m.experts is not None:
        e = m.experts
        width = e.top_k * e.intermediate + e.shared_intermediate
        gate = m.hidden if e.shared_gate else 0
        total += m.moe_layers * (3 * m.hidden * width + m.hidden * e.count + gate)
    return total


def attention_flops(m: ModelSpec, lengths: Lengths, absorbed: bool = False) -> float:
    """Forward attention FLOPs (scores and values) of whole sequences, all layers.

    Per layer and sequence 2·nh·(d_qk + d_v)·pairs with pairs = s²/2 (causal), or w·s − w²/2 under a window
    w < s. Packed sequences attend within themselves, so `lengths` are those of the single sequences.
    `absorbed`: MLA as decode runs it, on the latents: d_qk = r_kv + d_rope, d_v = r_kv.
    """
    s = np.asarray(lengths, dtype=np.float64)
    pairs = 0.0
    for window, layers in m.windows:
        reach = s if window is None else np.minimum(s, window)
        pairs += layers * float(np.sum(reach * s - reach * reach / 2))
    return 2.0 * m.attention.heads * _score_and_value_dims(m, absorbed) * pairs


def decode_attention_flops(m: ModelSpec, contexts: Lengths) -> float:
    """Attention FLOPs of one decode iteration, all layers: 2·nh·(d_qk + d_v)·context per sequence, absorbed
    for MLA.

    A window layer reads no more than its window.
    """
    c = np.asarray(contexts, dtype=np.float64)
    read = sum(layers * _seen(c, window) for window, layers in m.windows)
    return 2.0 * m.attention.heads * _score_and_value_dims(m, absorbed=True) * read


def forward_flops(m: ModelSpec, lengths: Lengths) -> float:
    """One forward pass over whole sequences: 2·A_mm·Σs + `attention_flops`."""
    tokens = float(np.sum(np.asarray(lengths, dtype=np.float64)))
    return 2.0 * matmul_weights_per_token(m) * tokens + attention_flops(m, lengths)


def _score_and_value_dims(m: ModelSpec, absorbed: bool) -> int:
    """d_qk + d_v of one head."""
    a = m.attention
    if absorbed and a.kind == "mla":
        return 2 * a.kv_lora_rank + a.qk_rope_dim
    return a.head_dim + a.v_head_dim


# KV cache ----------


def kv_bytes_per_token_layer(m: ModelSpec, dtype_bytes: float, attn_tp: int = 1) -> float:
    """KV bytes that one token leaves on ONE attention-TP rank in one layer.

    GQA: max(1, nkv/attn_tp)·(d + d_v)·bytes; beyond nkv ranks heads are replicated. MLA: (r_kv +
    d_rope)·bytes, the latent being shared by all heads and so not divided.
    """
    a = m.attention
    if a.kind == "mla":
        return (a.kv_lora_rank + a.qk_rope_dim) * dtype_bytes
    return -(-a.kv_heads // attn_tp) * (a.head_dim + a.v_head_dim) * dtype_bytes


def kv_bytes(
    m: ModelSpec,
    contexts: Lengths,
    layers: Iterable[int] | None = None,
    dtype_bytes: float = 2.0,
    attn_tp: int = 1,
) -> float:
    """KV bytes on one attention-TP rank for sequences of these contexts, in the given layers (default: all).

    Σ over layers and sequences of min(context, window)·`kv_bytes_per_token_layer`.
    """
    c = np.asarray(contexts, dtype=np.float64)
    chosen = m.layers if layers is None else tuple(m.layers[i] for i in layers)
    held = {window: _seen(c, window) for window in {layer.window for layer in chosen}}
    return sum(held[layer.window] for layer in chosen) * kv_bytes_per_token_layer(m, dtype_bytes, attn_tp)


def _seen(contexts: NDArray[np.float64], window: int | None) -> float:
    """Σ of the tokens that a layer keeps and reads: the context, at most the window."""
    return float(np.sum(contexts if window is None else np.minimum(contexts, window)))
