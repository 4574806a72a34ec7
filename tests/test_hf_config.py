"""Reading config.json: what absent keys mean, and what is refused."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from rlsim.errors import UserError
from rlsim.hf_config import model_from_config
from rlsim.model import attention_parameters, parameters, shared_expert_parameters

LLAMA: dict[str, Any] = {
    "architectures": ["LlamaForCausalLM"],
    "vocab_size": 100,
    "hidden_size": 16,
    "intermediate_size": 32,
    "num_hidden_layers": 4,
    "num_attention_heads": 4,
    "max_position_embeddings": 128,
}


def read(**changes: Any) -> Any:
    return model_from_config({**LLAMA, **changes}, name="toy", source="test")


def test_defaults_of_absent_keys() -> None:
    m = read()
    assert (m.attention.kv_heads, m.attention.head_dim, m.tied) == (4, 4, False)
    # 2·100·16 + 16 + 4·(4·16² + 3·16·32 + 2·16)
    assert parameters(m) == 3200 + 16 + 4 * (1024 + 1536 + 32)


def test_null_counts_as_absent() -> None:
    assert read(head_dim=None, num_key_value_heads=None) == read()


def test_gemma_ties_by_default() -> None:
    m = read(architectures=["Gemma2ForCausalLM"], sliding_window=8)
    assert m.tied
    assert m.layer_norms == 4


@pytest.mark.parametrize(
    ("architecture", "biases"),
    # hidden 16, 4 heads of 4, 2 KV heads: q 16, k and v 8 each, o 16
    [("LlamaForCausalLM", 48), ("Qwen3ForCausalLM", 48), ("Qwen2ForCausalLM", 32)],
)
def test_attention_bias(architecture: str, biases: int) -> None:
    m = read(architectures=[architecture], num_key_value_heads=2, attention_bias=True)
    assert attention_parameters(m) == 2 * 256 + 2 * 128 + biases


def test_qwen_window_needs_its_switch() -> None:
    off = read(architectures=["Qwen2ForCausalLM"], sliding_window=8, use_sliding_window=False, max_window_layers=2)
    on = read(architectures=["Qwen2ForCausalLM"], sliding_window=8, use_sliding_window=True, max_window_layers=2)
    assert [layer.window for layer in off.layers] == [None] * 4
    assert [layer.window for layer in on.layers] == [None, None, 8, 8]


def test_qwen_moe_layers() -> None:
    m = read(
        architectures=["Qwen2MoeForCausalLM"],
        num_experts=8,
        num_experts_per_tok=2,
        moe_intermediate_size=8,
        shared_expert_intermediate_size=24,
        decoder_sparse_step=2,
        mlp_only_layers=[3],
    )
    assert [layer.moe for layer in m.layers] == [False, True, False, False]
    assert shared_expert_parameters(m) == 3 * 16 * 24 + 16


def test_deepseek_v2_lite_has_no_query_rank() -> None:
    m = read(
        architectures=["DeepseekV2ForCausalLM"],
        q_lora_rank=None,
        kv_lora_rank=8,
        qk_nope_head_dim=4,
        qk_rope_head_dim=2,
        v_head_dim=4,
        n_routed_experts=8,
        n_shared_experts=2,
        num_experts_per_tok=2,
        moe_intermediate_size=8,
        first_k_dense_replace=1,
    )
    # q 16·4·6, kv_a 16·10, kv_b 8·4·8, o 4·4·16
    assert attention_parameters(m) == 384 + 160 + 256 + 256
    assert m.experts is not None
    assert (m.experts.shared_intermediate, m.experts.router_bias) == (16, False)
    assert [layer.moe for layer in m.layers] == [False, True, True, True]


def test_unknown_architecture_lists_the_known() -> None:
    with pytest.raises(UserError, match=r"MambaForCausalLM is not modelled.*LlamaForCausalLM"):
        read(architectures=["MambaForCausalLM"])


@pytest.mark.parametrize(
    ("changes", "key"),
    [
        ({"architectures": None}, "architectures"),
        ({"hidden_size": None}, "hidden_size"),
        ({"num_hidden_layers": "four"}, "num_hidden_layers"),
        ({"num_key_value_heads": 3}, "num_key_value_heads"),
        ({"num_attention_heads": 0}, "num_attention_heads"),
        ({"vocab_size": 0}, "vocab_size"),
        ({"vocab_size": 10**30}, "vocab_size"),
        ({"num_hidden_layers": 0}, "num_hidden_layers"),
        ({"num_hidden_layers": 10**8}, "num_hidden_layers"),
        ({"hidden_size": -1}, "hidden_size"),
        ({"mlp_bias": True}, "mlp_bias"),
        ({"architectures": ["MistralForCausalLM"], "sliding_window": 8, "layer_types": []}, "layer_types"),
    ],
)
def test_mistakes_name_the_key(changes: dict[str, Any], key: str) -> None:
    with pytest.raises(UserError) as caught:
        read(**changes)
    assert caught.value.key == key


def test_quantisation_note() -> None:
    block = {"quant_method": "fp8", "fmt": "e4m3", "weight_block_size": [128, 128]}
    assert read(quantization_config=block).quantisation == "fp8 e4m3, 128x128 blocks"


def test_from_a_directory(tmp_path: Path) -> None:
    from rlsim import catalog

    folder = tmp_path / "toy-llama"
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps(LLAMA))
    by_folder, by_file = catalog.model(str(folder)), catalog.model(str(folder / "config.json"))
    assert by_folder == by_file
    assert by_folder.name == "toy-llama"


def test_broken_files(tmp_path: Path) -> None:
    from rlsim import catalog

    broken = tmp_path / "config.json"
    broken.write_text('{\n  "architectures": [\n')
    with pytest.raises(UserError, match="not JSON"):
        catalog.model(str(broken))
    broken.write_text('{"a": ' + "[" * 100_000 + "]" * 100_000 + "}")
    with pytest.raises(UserError, match="nested too deeply"):
        catalog.model(str(broken))
    broken.write_text("[]")
    with pytest.raises(UserError, match="mapping"):
        catalog.model(str(broken))
    with pytest.raises(UserError, match="cannot read"):
        catalog.model(str(tmp_path / "absent.json"))
