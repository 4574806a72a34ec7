"""Small models of every kind of architecture, and checkpoints whose every element is a number of its own."""

from __future__ import annotations

import torch

from rlsim.architecture import Attention, Experts, Layer, ModelSpec
from rlsim.reshard.engines import hf_side
from rlsim.reshard.plan import classes_of


def gqa(heads: int, kv_heads: int, head_dim: int, **more: bool) -> Attention:
    return Attention("gqa", heads, kv_heads, head_dim, head_dim, **more)


def model(name: str, attention: Attention, **more: object) -> ModelSpec:
    facts: dict[str, object] = {
        "architecture": "LlamaForCausalLM", "vocab": 200, "hidden": 24, "intermediate": 48, "tied": False,
        "experts": None, "layers": (Layer(),) * 2, "max_context": 512, "source": "test",
    }  # fmt: skip
    return ModelSpec(name=name, attention=attention, **{**facts, **more})  # type: ignore[arg-type]


DENSE = model("dense", gqa(8, 4, 4))
BIAS = model("bias", gqa(8, 2, 4, qkv_bias=True), architecture="Qwen2ForCausalLM", tied=True)
NORM = model("qk-norm", gqa(8, 4, 4, qk_norm=True), architecture="Qwen3ForCausalLM", layers=(Layer(),) * 4)
MOE = model(
    "moe", gqa(8, 4, 4), architecture="Qwen2MoeForCausalLM", layers=(Layer(), Layer(moe=True)),
    experts=Experts(8, 2, 16, shared_intermediate=32, shared_gate=True),
)  # fmt: skip
MIXTRAL = model(
    "mixtral", gqa(8, 4, 4), architecture="MixtralForCausalLM", layers=(Layer(moe=True),) * 2,
    experts=Experts(8, 2, 16),
)  # fmt: skip
MLA = model(
    "mla", Attention("mla", 8, 8, 6, 4, q_lora_rank=12, kv_lora_rank=10, qk_nope_dim=4, qk_rope_dim=2),
    architecture="DeepseekV3ForCausalLM", layers=(Layer(), Layer(moe=True), Layer(moe=True)),
    experts=Experts(8, 2, 16, shared_intermediate=16, router_bias=True),
)  # fmt: skip
GPT_OSS = model(
    "gpt-oss", gqa(8, 4, 4, qkv_bias=True, o_bias=True, sinks=True), architecture="GptOssForCausalLM",
    layers=(Layer(moe=True),) * 2, experts=Experts(8, 2, 16, router_bias=True, expert_bias=True),
)  # fmt: skip
ALL = (DENSE, BIAS, NORM, MOE, MIXTRAL, MLA, GPT_OSS)


def checkpoint(m: ModelSpec, dtype: torch.dtype = torch.int32) -> dict[str, torch.Tensor]:
    """A Hugging Face checkpoint; in int32 no two elements are equal, and none is zero."""
    found: dict[str, torch.Tensor] = {}
    at = 1
    for layer in range(-1, m.num_layers):
        for cls in classes_of(m, layer):
            for local in hf_side(cls, layer).local:
                size = local.rows * local.cols
                found[local.name] = torch.arange(at, at + size, dtype=torch.int32).reshape(local.shape).to(dtype)
                at += size
    return found
