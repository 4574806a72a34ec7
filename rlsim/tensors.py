"""The weight tensors of an architecture by their Hugging Face names: what a weight sync has to move."""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache
from math import prod
from typing import Literal, NamedTuple, TypeAlias

from rlsim.architecture import ModelSpec

Part: TypeAlias = Literal["embed", "attention", "mlp", "expert", "shared_expert", "router", "norm", "head"]


class TensorSpec(NamedTuple):
    """One tensor. `shape` is [out, in] for a projection; `layer` and `expert` are -1 where they do not apply.

    A checkpoint that fuses the experts of a layer into one tensor (gpt-oss) is listed by its slices,
    `name[expert]`, so that every architecture splits over expert-parallel ranks in the same way.
    """

    name: str
    shape: tuple[int, ...]
    layer: int
    part: Part
    expert: int = -1

    @property
    def size(self) -> int:
        """Elements."""
        return prod(self.shape)


Piece: TypeAlias = tuple[str, tuple[int, ...], Part]


@lru_cache(maxsize=16)
def tensors(m: ModelSpec) -> tuple[TensorSpec, ...]:
    """All tensors in the order of the checkpoint; their sizes sum to `parameters(m)` exactly."""
    found = [TensorSpec("model.embed_tokens.weight", (m.vocab, m.hidden), -1, "embed")]
    shared_by_all = [*_attention(m), *_norms(m)]
    dense = [*shared_by_all, *_mlp(m)]
    sparse = [*shared_by_all, *_router_and_shared(m)]
    experts = _experts(m)
    for i, layer in enumerate(m.layers):
        prefix = f"model.layers.{i}."
        found += [TensorSpec(prefix + n, shape, i, part) for n, shape, part in (sparse if layer.moe else dense)]
        if layer.moe:
            found += [TensorSpec(prefix + n, shape, i, "expert", e) for n, shape, e in experts]
    found.append(TensorSpec("model.norm.weight", (m.hidden,), -1, "norm"))
    if not m.tied:
        found.append(TensorSpec("lm_head.weight", (m.head_width, m.hidden), -1, "head"))
    return tuple(found)


def _attention(m: ModelSpec) -> Iterator[Piece]:
    a, H = m.attention, m.hidden
    name = "self_attn.{}.weight"
    if a.kind == "mla":
        qk = a.heads * (a.qk_nope_dim + a.qk_rope_dim)
        if a.q_lora_rank is None:
            yield name.format("q_proj"), (qk, H), "attention"
        else:
            yield name.format("q_a_proj"), (a.q_lora_rank, H), "attention"
            yield name.format("q_b_proj"), (qk, a.q_lora_rank), "attention"
        yield name.format("kv_a_proj_with_mqa"), (a.kv_lora_rank + a.qk_rope_dim, H), "attention"
        up = a.heads * (a.qk_nope_dim + a.v_head_dim)
        yield name.format("kv_b_proj"), (up, a.kv_lora_rank), "attention"
    else:
        widths = {
            "q_proj": a.heads * a.head_dim,
            "k_proj": a.kv_heads * a.head_dim,
            "v_proj": a.kv_heads * a.v_head_dim,
        }
        for projection, width in widths.items():
            yield name.format(projection), (width, H), "attention"
            if a.qkv_bias:
                yield f"self_attn.{projection}.bias", (width,), "attention"
    yield name.format("o_proj"), (H, a.heads * a.v_head_dim), "attention"
    if a.o_bias:
        yield "self_attn.o_proj.bias", (H,), "attention"
    if a.sinks:
        yield "self_attn.sinks", (a.heads,), "attention"


def _norms(m: ModelSpec) -> Iterator[Piece]:
    names = [
        "input_layernorm",
        "post_attention_layernorm",
        "pre_feedforward_layernorm",
        "post_feedforward_layernorm",
    ]
    for name in names[: m.layer_norms]:
        yield f"{name}.weight", (m.hidden,), "norm"
    a = m.attention
    if a.qk_norm:
        yield "self_attn.q_norm.weight", (a.head_dim,), "norm"
        yield "self_attn.k_norm.weight", (a.head_dim,), "norm"
    if a.kind == "mla":
        if a.q_lora_rank is not None:
            yield "self_attn.q_a_layernorm.weight", (a.q_lora_rank,), "norm"
        yield "self_attn.kv_a_layernorm.weight", (a.kv_lora_rank,), "norm"


def _mlp(m: ModelSpec) -> Iterator[Piece]:
    yield from _gated("mlp", m.hidden, m.intermediate, "mlp")


def _gated(prefix: str, hidden: int, width: int, part: Part) -> Iterator[Piece]:
    yield f"{prefix}.gate_proj.weight", (width, hidden), part
    yield f"{prefix}.up_proj.weight", (width, hidden), part
    yield f"{prefix}.down_proj.weight", (hidden, width), part


def _router_and_shared(m: ModelSpec) -> Iterator[Piece]:
    e = m.experts
    if e is None:
        return
    router = {"MixtralForCausalLM": "block_sparse_moe.gate", "GptOssForCausalLM": "mlp.router"}
    name = router.get(m.architecture, "mlp.gate")
    yield f"{name}.weight", (e.count, m.hidden), "router"
    if e.router_bias:
        bias = "bias" if m.architecture == "GptOssForCausalLM" else "e_score_correction_bias"
        yield f"{name}.{bias}", (e.count,), "router"
    if e.shared_intermediate:
        prefix = "mlp.shared_expert" if e.shared_gate else "mlp.shared_experts"
        yield from _gated(prefix, m.hidden, e.shared_intermediate, "shared_expert")
    if e.shared_gate:
        yield "mlp.shared_expert_gate.weight", (1, m.hidden), "shared_expert"


def _experts(m: ModelSpec) -> list[tuple[str, tuple[int, ...], int]]:
    """(name, shape, expert) of one MoE layer's routed experts."""
    e = m.experts
    if e is None:
        return []
    if m.architecture == "GptOssForCausalLM":
        fused: dict[str, tuple[int, ...]] = {
            "gate_up_proj": (m.hidden, 2 * e.intermediate),
            "down_proj": (e.intermediate, m.hidden),
        }
        if e.expert_bias:
            fused |= {"gate_up_proj_bias": (2 * e.intermediate,), "down_proj_bias": (m.hidden,)}
        return [(f"mlp.experts.{name}[{j}]", shape, j) for j in range(e.count) for name, shape in fused.items()]
    mixtral = m.architecture == "MixtralForCausalLM"
    prefix, names = (
        ("block_sparse_moe", ("w1", "w3", "w2")) if mixtral else ("mlp", ("gate_proj", "up_proj", "down_proj"))
    )
    shapes = ((e.intermediate, m.hidden), (e.intermediate, m.hidden), (m.hidden, e.intermediate))
    return [
        (f"{prefix}.experts.{j}.{name}.weight", shape, j)
        for j in range(e.count)
        for name, shape in zip(names, shapes, strict=True)
    ]
