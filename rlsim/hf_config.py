"""A Hugging Face `config.json` read as a `ModelSpec`; unknown architectures are refused by name."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rlsim.architecture import Attention, Experts, Layer, ModelSpec
from rlsim.errors import UserError

GQA_DENSE = {
    "Gemma2ForCausalLM",
    "LlamaForCausalLM",
    "MistralForCausalLM",
    "Qwen2ForCausalLM",
    "Qwen3ForCausalLM",
}
GQA_MOE = {
    "Glm4MoeForCausalLM",
    "GptOssForCausalLM",
    "MixtralForCausalLM",
    "Qwen2MoeForCausalLM",
    "Qwen3MoeForCausalLM",
}
MLA = {"DeepseekV2ForCausalLM", "DeepseekV3ForCausalLM"}
MOST = 100_000_000
SUPPORTED = tuple(sorted(GQA_DENSE | GQA_MOE | MLA))


@dataclass(frozen=True)
class _Config:
    """The mapping with look-ups that name the file and the key in their errors."""

    values: Mapping[str, Any]
    file: str

    def integer(self, key: str, default: int | None = None) -> int:
        """A positive whole number; null counts as missing, as it does in transformers."""
        value = self.values.get(key)
        if value is None:
            if default is None:
                raise UserError("missing", file=self.file, key=key, fix="give the model's full config.json")
            return default
        if not isinstance(value, int) or isinstance(value, bool) or value < 0:
            raise UserError(f"{value!r} is not a whole number", file=self.file, key=key, fix="a positive integer")
        return value

    def positive(self, key: str, default: int | None = None, most: int = MOST) -> int:
        """A whole number of which there is at least one, and not more than any model has."""
        value = self.integer(key, default)
        if not 1 <= value <= most:
            raise UserError(f"{value} is not possible", file=self.file, key=key, fix=f"from 1 to {most:,}")
        return value

    def flag(self, key: str, default: bool = False) -> bool:
        value = self.values.get(key)
        return default if value is None else bool(value)


def load_config(path: Path) -> ModelSpec:
    """The model of a `config.json`, or of the directory that holds one."""
    file = path / "config.json" if path.is_dir() else path
    try:
        content = json.loads(file.read_text(encoding="utf-8"))
    except OSError as error:
        raise UserError("cannot read the model's config.json", file=str(file), key="model") from error
    except (json.JSONDecodeError, UnicodeDecodeError) as error:
        line = error.lineno if isinstance(error, json.JSONDecodeError) else None
        raise UserError(f"not JSON: {error}", file=str(file), line=line) from error
    except RecursionError:
        raise UserError("not a config.json: nested too deeply", file=str(file)) from None
    if not isinstance(content, dict):
        raise UserError("a config.json holds one mapping", file=str(file))
    folder = file.resolve().parent.name
    name = folder if file.name == "config.json" and folder else file.stem
    return model_from_config(content, name=name, source=str(file), file=str(file))


def model_from_config(config: Mapping[str, Any], name: str, source: str, file: str | None = None) -> ModelSpec:
    """The facts of a config.json as a `ModelSpec`.

    Follows what the modelling code of `transformers` builds from these keys (biases, norms, which layers
    are sparse or windowed, defaults of absent keys).
    """
    c = _Config(config, file or name)
    architecture = _architecture(c)
    _refuse_unmodelled(c)
    experts = None if architecture in GQA_DENSE else _experts(c, architecture)
    attention = _mla(c) if architecture in MLA else _gqa(c, architecture)
    return ModelSpec(
        name=name,
        architecture=architecture,
        vocab=c.positive("vocab_size"),
        hidden=c.positive("hidden_size"),
        intermediate=c.positive("intermediate_size"),
        tied=c.flag("tie_word_embeddings", default=architecture == "Gemma2ForCausalLM"),
        attention=attention,
        experts=experts,
        layers=_layers(c, architecture, experts),
        max_context=c.positive("max_position_embeddings"),
        source=source,
        quantisation=_quantisation(config.get("quantization_config")),
        layer_norms=4 if architecture == "Gemma2ForCausalLM" else 2,
    )


def _architecture(c: _Config) -> str:
    names = c.values.get("architectures")
    if not isinstance(names, list) or not names:
        raise UserError("missing", file=c.file, key="architectures", fix="one of " + ", ".join(SUPPORTED))
    name = str(names[0])
    if name not in SUPPORTED:
        raise UserError(
            f"architecture {name} is not modelled",
            file=c.file,
            key="architectures",
            fix="one of " + ", ".join(SUPPORTED),
        )
    return name


def _refuse_unmodelled(c: _Config) -> None:
    """Keys that would change the tensors in a way the accounting does not follow."""
    if c.flag("mlp_bias"):
        raise UserError("MLP biases are not modelled", file=c.file, key="mlp_bias")
    if c.flag("attention_bias") and c.values.get("kv_lora_rank"):
        raise UserError("attention biases with MLA are not modelled", file=c.file, key="attention_bias")


def _gqa(c: _Config, architecture: str) -> Attention:
    heads = c.positive("num_attention_heads")
    kv_heads = c.positive("num_key_value_heads", heads)
    hidden = c.positive("hidden_size")
    if heads == 0 or kv_heads == 0 or heads % kv_heads:
        raise UserError(
            f"{heads} query heads do not divide over {kv_heads} KV heads",
            file=c.file,
            key="num_key_value_heads",
        )
    head_dim = c.positive("head_dim", hidden // heads)
    biased = c.flag("attention_bias")
    qwen2 = architecture in {"Qwen2ForCausalLM", "Qwen2MoeForCausalLM"}
    return Attention(
        kind="gqa",
        heads=heads,
        kv_heads=kv_heads,
        head_dim=head_dim,
        v_head_dim=head_dim,
        qkv_bias=c.flag("qkv_bias", default=True) if qwen2 else biased,
        o_bias=biased and not qwen2 and architecture != "Glm4MoeForCausalLM",
        qk_norm=architecture in {"Qwen3ForCausalLM", "Qwen3MoeForCausalLM"}
        or (architecture == "Glm4MoeForCausalLM" and c.flag("use_qk_norm")),
        sinks=architecture == "GptOssForCausalLM",
    )


def _mla(c: _Config) -> Attention:
    heads = c.positive("num_attention_heads")
    nope, rope = c.positive("qk_nope_head_dim"), c.positive("qk_rope_head_dim")
    rank = c.values.get("q_lora_rank")
    return Attention(
        kind="mla",
        heads=heads,
        kv_heads=heads,
        head_dim=nope + rope,
        v_head_dim=c.positive("v_head_dim"),
        q_lora_rank=None if rank is None else c.positive("q_lora_rank"),
        kv_lora_rank=c.positive("kv_lora_rank"),
        qk_nope_dim=nope,
        qk_rope_dim=rope,
    )


def _experts(c: _Config, architecture: str) -> Experts | None:
    if architecture in {"MixtralForCausalLM", "GptOssForCausalLM"}:
        oss = architecture == "GptOssForCausalLM"
        return Experts(
            count=c.positive("num_local_experts"),
            top_k=c.positive("num_experts_per_tok"),
            intermediate=c.positive("intermediate_size"),
            router_bias=oss,
            expert_bias=oss,
        )
    qwen = architecture in {"Qwen2MoeForCausalLM", "Qwen3MoeForCausalLM"}
    key = "num_experts" if qwen else "n_routed_experts"
    if c.values.get(key) is None and architecture in MLA:
        return None
    width = c.positive("moe_intermediate_size")
    gated = architecture == "Qwen2MoeForCausalLM"
    shared = 0 if qwen else width * c.integer("n_shared_experts", 0)
    return Experts(
        count=c.positive(key),
        top_k=c.positive("num_experts_per_tok"),
        intermediate=width,
        shared_intermediate=c.positive("shared_expert_intermediate_size") if gated else shared,
        shared_gate=gated,
        router_bias=architecture == "Glm4MoeForCausalLM" or c.values.get("topk_method") == "noaux_tc",
    )


def _layers(c: _Config, architecture: str, experts: Experts | None) -> tuple[Layer, ...]:
    count = c.positive("num_hidden_layers", most=10_000)
    windows = _windows(c, architecture, count)
    return tuple(Layer(windows[i], experts is not None and _sparse(c, architecture, i)) for i in range(count))


def _sparse(c: _Config, architecture: str, layer: int) -> bool:
    """Whether a layer of a MoE model holds experts: after the first dense ones, every n-th, not on a list."""
    if architecture in {"Qwen2MoeForCausalLM", "Qwen3MoeForCausalLM"}:
        dense = c.values.get("mlp_only_layers") or []
        return layer not in dense and (layer + 1) % c.positive("decoder_sparse_step", 1) == 0
    if architecture in MLA | {"Glm4MoeForCausalLM"}:
        return layer >= c.integer("first_k_dense_replace", 0) and layer % c.positive("moe_layer_freq", 1) == 0
    return True


def _windows(c: _Config, architecture: str, count: int) -> list[int | None]:
    """Sliding window of each layer, None = full attention.

    `layer_types` decides where it is given. Else Gemma 2 and gpt-oss slide on even layers, Mistral and
    Mixtral on all, Qwen from `max_window_layers` on and only under `use_sliding_window`.
    """
    window = c.values.get("sliding_window")
    if window is None or (architecture.startswith("Qwen") and not c.flag("use_sliding_window")):
        return [None] * count
    size = c.positive("sliding_window")
    kinds = c.values.get("layer_types")
    if kinds is not None:
        if len(kinds) != count:
            raise UserError(f"{len(kinds)} entries for {count} layers", file=c.file, key="layer_types")
        return [size if kind == "sliding_attention" else None for kind in kinds]
    if architecture in {"Gemma2ForCausalLM", "GptOssForCausalLM"}:
        return [None if i % 2 else size for i in range(count)]
    if architecture in {"MistralForCausalLM", "MixtralForCausalLM"}:
        return [size] * count
    if architecture.startswith("Qwen"):
        first = c.integer("max_window_layers", 28)
        return [size if i >= first else None for i in range(count)]
    return [None] * count


def _quantisation(config: Mapping[str, Any] | None) -> str:
    """How the checkpoint's weights are stored, e.g. "fp8 e4m3, 128x128 blocks"; "" where nothing is said."""
    if not config:
        return ""
    text = " ".join(str(config[key]) for key in ("quant_method", "fmt") if config.get(key))
    block = config.get("weight_block_size")
    return text + (f", {'x'.join(str(n) for n in block)} blocks" if block else "")
