"""Parameters, FLOPs and KV bytes against numbers on paper and published counts."""

from __future__ import annotations

import numpy as np
import pytest

from rlsim import catalog
from rlsim import model as accounting

# Published totals: the sizes that the model repositories list for their bf16 weights.
EXACT = {
    "Llama-3.1-8B": 8_030_261_248,
    "Llama-3.1-70B": 70_553_706_496,
    "Llama-3.1-405B": 405_853_388_800,
    "Llama-3.2-1B": 1_235_814_400,
    "Llama-3.2-3B": 3_212_749_824,
    "Llama-2-7b": 6_738_415_616,
    "Llama-2-13b": 13_015_864_320,
    "deepseek-llm-7b": 6_910_365_696,
    "Mistral-7B-v0.1": 7_241_732_096,
    "Mistral-7B-v0.3": 7_248_023_552,
    "Mixtral-8x7B": 46_702_792_704,
    "Mixtral-8x22B": 140_620_634_112,
    "gemma-2-2b": 2_614_341_888,
    "gemma-2-9b": 9_241_705_984,
    "gemma-2-27b": 27_227_128_320,
    "Qwen2.5-0.5B": 494_032_768,
    "Qwen2.5-1.5B": 1_543_714_304,
    "Qwen2.5-3B": 3_085_938_688,
    "Qwen2.5-7B": 7_615_616_512,
    "Qwen2.5-Math-7B": 7_615_616_512,
    "Qwen2-7B": 7_615_616_512,
    "Qwen2.5-14B": 14_770_033_664,
    "Qwen2.5-32B": 32_763_876_352,
    "Qwen2.5-72B": 72_706_203_648,
    "DeepSeek-R1-Distill-Qwen-1.5B": 1_777_088_000,
    "Qwen3-0.6B": 596_049_920,
    "Qwen3-1.7B": 1_720_574_976,
    "Qwen3-4B": 4_022_468_096,
    "Qwen3-8B": 8_190_735_360,
    "Qwen3-14B": 14_768_307_200,
    "Qwen3-32B": 32_762_123_264,
    "Qwen3-30B-A3B": 30_532_122_624,
    "Qwen3-235B-A22B": 235_093_634_560,
    "Qwen3-Coder-480B-A35B-Instruct": 480_154_875_392,
    "gpt-oss-20b": 20_914_757_184,
    "gpt-oss-120b": 116_829_156_672,
}


@pytest.mark.parametrize(("name", "count"), EXACT.items())
def test_published_totals(name: str, count: int) -> None:
    assert accounting.parameters(catalog.model(name)) == count


@pytest.mark.parametrize(
    ("name", "billions"),
    # Without MTP layers. GLM-4.5's repository lists 358.34 B with one:
    # two copies of 151552·5120 (1.55 B), a MoE layer (3.94 B) and eh_proj 2·5120² (0.05 B) leave 352.8 B.
    [
        ("DeepSeek-V3", 671.03),
        ("DeepSeek-R1", 671.03),
        ("Kimi-K2", 1026.4),
        ("GLM-4.5", 352.8),
        ("GLM-4.5-Air", 106.85),
    ],
)
def test_totals_without_mtp(name: str, billions: float) -> None:
    assert accounting.parameters(catalog.model(name)) == pytest.approx(billions * 1e9, rel=1e-3)


@pytest.mark.parametrize(
    ("name", "billions"),
    [("Qwen3-30B-A3B", 3.353), ("Qwen3-235B-A22B", 22.19), ("DeepSeek-V3", 37.55), ("Mixtral-8x7B", 12.88)],
)
def test_active(name: str, billions: float) -> None:
    assert accounting.active_parameters(catalog.model(name)) == pytest.approx(billions * 1e9, rel=1e-3)


def test_70b_in_bf16_is_141_gb() -> None:
    assert 2 * accounting.parameters(catalog.model("Llama-3.1-70B")) / 1e9 == pytest.approx(141.1, abs=0.05)


def test_dense_model_is_all_active() -> None:
    m = catalog.model("Qwen2.5-7B")
    assert accounting.active_parameters(m) == accounting.parameters(m)


def test_qwen25_7b_layer_by_hand() -> None:
    # q 3584·3584 = 12,845,056; k and v 2·3584·512 = 3,670,016; o 12,845,056; biases 3584 + 2·512 = 4,608.
    m = catalog.model("Qwen2.5-7B")
    assert accounting.attention_parameters(m) == 12_845_056 + 3_670_016 + 12_845_056 + 4_608
    assert accounting.mlp_parameters(m) == 3 * 3584 * 18944
    assert accounting.norm_parameters(m) == 2 * 3584
    assert accounting.embedding_parameters(m) == accounting.head_parameters(m) == 152064 * 3584


def test_qk_norm_adds_two_head_vectors() -> None:
    m = catalog.model("Qwen3-8B")
    assert accounting.norm_parameters(m) == 2 * 4096 + 2 * 128


def test_deepseek_v3_layer_by_hand() -> None:
    # q_a 7168·1536 = 11,010,048; q_b 1536·128·192 = 37,748,736; kv_a 7168·576 = 4,128,768;
    # kv_b 512·128·256 = 16,777,216; o 128·128·7168 = 117,440,512.
    m = catalog.model("DeepSeek-V3")
    assert accounting.attention_parameters(m) == 11_010_048 + 37_748_736 + 4_128_768 + 16_777_216 + 117_440_512
    assert accounting.norm_parameters(m) == 2 * 7168 + 1536 + 512
    assert accounting.expert_parameters(m) == accounting.shared_expert_parameters(m) == 3 * 7168 * 2048
    assert accounting.router_parameters(m) == 256 * 7168 + 256
    assert accounting.layer_parameters(m, 2)[1] == 0  # the first three layers are dense
    assert accounting.layer_parameters(m, 3)[1] == 256 * 3 * 7168 * 2048
    assert m.moe_layers == 58


def test_gpt_oss_biases_and_sinks() -> None:
    # q, k, v biases 64·64 + 2·8·64 = 5,120; o bias 2,880; 64 sinks; expert biases 2·2880 + 2880.
    m = catalog.model("gpt-oss-20b")
    assert accounting.attention_parameters(m) == 2 * 2880 * 4096 + 2 * 2880 * 512 + 5_120 + 2_880 + 64
    assert accounting.expert_parameters(m) == 3 * 2880 * 2880 + 3 * 2880


def test_tied_head_costs_no_parameters_but_flops() -> None:
    m = catalog.model("Qwen2.5-0.5B")
    assert accounting.head_parameters(m) == 0
    # A layer: q, o 2·896² and k, v 2·896·128, MLP 3·896·4864; the head 151936·896.
    layer = 2 * 896 * 896 + 2 * 896 * 128 + 3 * 896 * 4864
    assert accounting.matmul_weights_per_token(m) == 24 * layer + 151936 * 896


@pytest.mark.parametrize("name", ["Llama-3.1-70B", "Mixtral-8x7B"])
def test_matmul_weights_are_active_weights_without_table_norms_and_biases(name: str) -> None:
    m = catalog.model(name)
    norms = m.num_layers * accounting.norm_parameters(m) + accounting.final_norm_parameters(m)
    expected = accounting.active_parameters(m) - accounting.embedding_parameters(m) - norms
    assert accounting.matmul_weights_per_token(m) == expected


def test_causal_attention_flops() -> None:
    # Llama-8B, one sequence of 8192: 2·32·(128 + 128)·8192²/2 = 5.4976e11 per layer, 32 layers.
    m = catalog.model("Llama-3.1-8B")
    assert accounting.attention_flops(m, [8192]) == pytest.approx(32 * 5.49755813888e11)
    # Packed: the same tokens as four sequences cost a quarter.
    assert accounting.attention_flops(m, [2048] * 4) == pytest.approx(accounting.attention_flops(m, [8192]) / 4)


def test_forward_flops() -> None:
    m = catalog.model("Llama-3.1-8B")
    lengths = np.array([100, 1000, 3000])
    expected = 2 * accounting.matmul_weights_per_token(m) * 4100 + accounting.attention_flops(m, lengths)
    assert accounting.forward_flops(m, lengths) == pytest.approx(expected)


def test_window_limits_attention() -> None:
    # gpt-oss-20b: 12 layers see 128 tokens (128·1000 − 128²/2 = 119,808 pairs), 12 all (1000²/2 = 500,000).
    m = catalog.model("gpt-oss-20b")
    assert m.windows == ((128, 12), (None, 12))
    assert accounting.attention_flops(m, [1000]) == pytest.approx(2 * 64 * 128 * 12 * (119_808 + 500_000))
    assert accounting.decode_attention_flops(m, [1000]) == pytest.approx(2 * 64 * 128 * 12 * (128 + 1000))


def test_mla_absorbed_form() -> None:
    # Plain: d_qk + d_v = 192 + 128; absorbed: (512 + 64) + 512.
    m = catalog.model("DeepSeek-V3")
    plain, absorbed = (
        accounting.attention_flops(m, [4096]),
        accounting.attention_flops(m, [4096], absorbed=True),
    )
    assert plain == pytest.approx(61 * 2 * 128 * 320 * 4096**2 / 2)
    assert absorbed / plain == pytest.approx(1088 / 320)
    assert accounting.decode_attention_flops(m, [1000]) == pytest.approx(61 * 2 * 128 * 1088 * 1000)


@pytest.mark.parametrize(
    ("name", "tp", "expected"),
    [
        ("Llama-3.1-70B", 1, 2 * 8 * 128 * 2),
        ("Llama-3.1-70B", 8, 2 * 1 * 128 * 2),
        ("Llama-3.1-70B", 16, 2 * 1 * 128 * 2),  # KV heads are replicated beyond 8 ranks
        ("Qwen2.5-7B", 8, 2 * 1 * 128 * 2),  # 4 KV heads on 8 ranks
        ("DeepSeek-V3", 1, 576 * 2),
        ("DeepSeek-V3", 8, 576 * 2),  # the latent is not divided
    ],
)
def test_kv_bytes_per_token_layer(name: str, tp: int, expected: int) -> None:
    assert accounting.kv_bytes_per_token_layer(catalog.model(name), 2.0, tp) == expected


def test_kv_bytes_stop_at_the_window() -> None:
    # gpt-oss-20b, 10,000 and 50 tokens: full layers keep 10,050, window layers 178; 2·8·64·2 = 2,048 B each.
    m = catalog.model("gpt-oss-20b")
    assert accounting.kv_bytes(m, [10_000, 50]) == 12 * 2048 * (10_050 + 178)
    assert accounting.kv_bytes(m, [10_000, 50], layers=[0]) == 2048 * 178
    assert accounting.kv_bytes(m, [10_000, 50], layers=[1], dtype_bytes=1.0, attn_tp=8) == 128 * 10_050


def test_gemma_and_mistral_windows() -> None:
    assert catalog.model("gemma-2-2b").windows == ((4096, 13), (None, 13))
    assert catalog.model("gemma-2-2b").layers[0].window == 4096
    assert catalog.model("Mistral-7B-v0.1").windows == ((4096, 32),)
    assert catalog.model("Qwen2.5-7B").windows == ((None, 28),)
