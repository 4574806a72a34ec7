"""What the tensors of a layer are called in Megatron-Core and in the engines, and which are fused into one.

Sources: Megatron-Core `self_attention.linear_qkv`, `mlp.linear_fc1` and so on; vLLM and SGLang `qkv_proj`,
`gate_up_proj`, `experts.w13_weight`, `fused_qkv_a_proj`.
"""

from __future__ import annotations

from typing import NamedTuple

from rlsim.model import ModelSpec
from rlsim.shards import WeightClass


class Slot(NamedTuple):
    """A local tensor and the place of a logical one in it, among those stacked along its rows."""

    tensor: str
    place: int = 0


MEGATRON = {
    "self_attn.o_proj": "self_attention.linear_proj",
    "self_attn.q_a_proj": "self_attention.linear_q_down_proj",
    "self_attn.q_b_proj": "self_attention.linear_q_up_proj",
    "self_attn.kv_a_proj_with_mqa": "self_attention.linear_kv_down_proj",
    "self_attn.kv_b_proj": "self_attention.linear_kv_up_proj",
    "mlp.shared_expert_gate": "mlp.shared_experts.gate",
    "mlp.gate": "mlp.router",
    "mlp.router": "mlp.router",
    "block_sparse_moe.gate": "mlp.router",
}
MEGATRON_VECTORS = {
    "post_attention_layernorm.weight": "pre_mlp_layernorm.weight",
    "self_attn.q_norm.weight": "self_attention.q_layernorm.weight",
    "self_attn.k_norm.weight": "self_attention.k_layernorm.weight",
    "self_attn.q_a_layernorm.weight": "self_attention.linear_q_up_proj.layer_norm_weight",
    "self_attn.kv_a_layernorm.weight": "self_attention.linear_kv_up_proj.layer_norm_weight",
    "self_attn.sinks": "self_attention.core_attention.softmax_offset",
    "mlp.gate.e_score_correction_bias": "mlp.router.expert_bias",
    "mlp.shared_expert_gate.weight": "mlp.shared_experts.gate_weight",
}
OUTSIDE_MEGATRON = {
    "model.embed_tokens.weight": "embedding.word_embeddings.weight",
    "model.norm.weight": "decoder.final_layernorm.weight",
    "lm_head.weight": "output_layer.weight",
}
GATED = {"gate_proj": 0, "up_proj": 1, "w1": 0, "w3": 1}
DOWN = ("down_proj", "w2")


def megatron_slot(cls: WeightClass, m: ModelSpec) -> Slot:
    """Where Megatron-Core keeps a logical tensor; experts' names get their local number from the layout."""
    name, moe = cls.name, cls.place == "moe"
    if name in OUTSIDE_MEGATRON:
        return Slot(OUTSIDE_MEGATRON[name])
    stem, _, kind = name.rpartition(".")
    if cls.part == "expert":
        return _megatron_expert(name)
    if m.attention.kind == "gqa" and cls.rule in ("q", "k", "v"):
        return Slot(f"self_attention.linear_qkv.{kind}", "qkv".index(cls.rule))
    if name == "input_layernorm.weight" and m.attention.kind == "gqa":
        return Slot("self_attention.linear_qkv.layer_norm_weight")
    if name == "post_attention_layernorm.weight" and not moe:
        return Slot("mlp.linear_fc1.layer_norm_weight")
    if name in MEGATRON_VECTORS:
        return Slot(MEGATRON_VECTORS[name])
    if stem == "self_attn.q_proj":
        return Slot(f"self_attention.linear_q_proj.{kind}")
    if stem in MEGATRON:
        return Slot(f"{MEGATRON[stem]}.{kind}")
    block, _, projection = stem.rpartition(".")
    block = block.replace("shared_expert", "shared_experts").replace("shared_expertss", "shared_experts")
    if projection in GATED:
        return Slot(f"{block}.linear_fc1.{kind}", GATED[projection])
    if projection in DOWN:
        return Slot(f"{block}.linear_fc2.{kind}")
    return Slot(name)


def _megatron_expert(name: str) -> Slot:
    """`{}` stands for the local number of the expert."""
    if "gate_up_proj_bias" in name or "down_proj_bias" in name:
        return Slot(f"mlp.experts.linear_fc{1 if 'gate_up' in name else 2}.bias{{}}")
    if "gate_up_proj" in name:
        return Slot("mlp.experts.linear_fc1.weight{}")
    projection = name.removesuffix(".weight").rpartition(".")[2].partition("[")[0]
    if projection in GATED:
        return Slot("mlp.experts.linear_fc1.weight{}", GATED[projection])
    return Slot("mlp.experts.linear_fc2.weight{}")


def engine_slot(cls: WeightClass, m: ModelSpec, engine: str) -> Slot:
    """Where vLLM and SGLang keep a logical tensor; all experts of a rank are one tensor."""
    name = cls.name
    stem, _, kind = name.rpartition(".")
    if cls.part == "expert":
        block = "block_sparse_moe.experts" if "block_sparse_moe" in name else "mlp.experts"
        suffix = "bias" if "bias" in name else "weight"
        if "gate_up_proj" in name:
            return Slot(f"{block}.w13_{suffix}")
        projection = name.removesuffix(".weight").rpartition(".")[2].partition("[")[0]
        if projection in GATED:
            return Slot(f"{block}.w13_{suffix}", GATED[projection])
        return Slot(f"{block}.w2_{suffix}")
    if m.attention.kind == "gqa" and cls.rule in ("q", "k", "v"):
        return Slot(f"self_attn.qkv_proj.{kind}", "qkv".index(cls.rule))
    if m.attention.kind == "mla" and m.attention.q_lora_rank is not None and "_a_proj" in stem:
        fused = "fused_qkv_a_proj_with_mqa" if engine == "sglang" else "fused_qkv_a_proj"
        return Slot(f"self_attn.{fused}.{kind}", 0 if "q_a_proj" in stem else 1)
    block, _, projection = stem.rpartition(".")
    if projection in GATED and cls.part in ("mlp", "shared_expert"):
        return Slot(f"{block}.gate_up_proj.{kind}", GATED[projection])
    return Slot(name)
