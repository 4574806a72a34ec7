"""What an architecture consists of: the facts of a Hugging Face `config.json` that cost time or memory."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Literal


@dataclass(frozen=True)
class Attention:
    """One attention block. "gqa" uses heads, kv_heads and head_dim; "mla" the latent ranks and q/k parts too.

    For MLA `head_dim` is the query and key size of a head (qk_nope_dim + qk_rope_dim) and kv_heads = heads.
    `qk_norm`: query and key heads are normalised (a vector of head_dim for each); `sinks`: one learnt logit
    per query head (gpt-oss).
    """

    kind: Literal["gqa", "mla"]
    heads: int
    kv_heads: int
    head_dim: int
    v_head_dim: int
    q_lora_rank: int | None = None
    kv_lora_rank: int = 0
    qk_nope_dim: int = 0
    qk_rope_dim: int = 0
    qkv_bias: bool = False
    o_bias: bool = False
    qk_norm: bool = False
    sinks: bool = False


@dataclass(frozen=True)
class Experts:
    """The mixture of one MoE layer. `shared_intermediate` is the width of all its shared experts together.

    `router_bias`: a value per expert (gpt-oss's bias, DeepSeek's score correction); `expert_bias`: biases
    in the experts' projections (gpt-oss); `shared_gate`: a sigmoid gate on the shared expert (Qwen2-MoE).
    """

    count: int
    top_k: int
    intermediate: int
    shared_intermediate: int = 0
    shared_gate: bool = False
    router_bias: bool = False
    expert_bias: bool = False


@dataclass(frozen=True)
class Layer:
    """`window`: sliding-window length in tokens, None = full attention; `moe`: experts instead of the MLP."""

    window: int | None = None
    moe: bool = False


@dataclass(frozen=True)
class ModelSpec:
    """A decoder-only transformer.

    `intermediate` is the dense MLP's width; `tied`: the LM head is the embedding table; `layer_norms`: norm
    vectors of length H in a layer; `quantisation`: how the published checkpoint stores its weights, "" for
    plain bf16; `outputs`: width of a head that is not the vocabulary's (1: a value or a reward). Layers for multi-token
    prediction are left out: they take no part in an RL step by default.
    """

    name: str
    architecture: str
    vocab: int
    hidden: int
    intermediate: int
    tied: bool
    attention: Attention
    experts: Experts | None
    layers: tuple[Layer, ...]
    max_context: int
    source: str
    quantisation: str = ""
    layer_norms: int = 2
    outputs: int | None = None

    @property
    def num_layers(self) -> int:
        return len(self.layers)

    @property
    def head_width(self) -> int:
        """Rows of the head: the vocabulary, or the outputs of a value or reward head."""
        return self.vocab if self.outputs is None else self.outputs

    @cached_property
    def moe_layers(self) -> int:
        """Number of layers that hold experts."""
        return sum(layer.moe for layer in self.layers)

    @cached_property
    def windows(self) -> tuple[tuple[int | None, int], ...]:
        """(sliding-window length, number of layers with it), None = full attention."""
        return tuple(Counter(layer.window for layer in self.layers).items())


def value_model(m: ModelSpec) -> ModelSpec:
    """The same decoder with a head of one output per token: a critic or a reward model."""
    return replace(m, outputs=1, tied=False)
