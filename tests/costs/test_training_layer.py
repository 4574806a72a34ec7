"""Compute of one layer: GEMM shapes of a shard, FLOPs, attention, streaming."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from rlsim.costs import training_layer as layers
from rlsim.costs import training_sharding as sharding
from rlsim.model import attention_matmul_weights, mlp_parameters
from rlsim.slices import train_params
from tests.costs.systems import DEEPSEEK_V3, LLAMA_70B, QWEN_7B
from tests.costs.training_double import FLOPS, STREAM, FlatKernels, case

TOKENS = np.array([8192.0])


def test_a_shard_has_its_own_shapes() -> None:
    # Llama 70B at TP 8: 8 query heads and 1 KV head of 128, MLP 28672/8 wide.
    qkv, out, gate_up, down = layers.dense_gemms(case(LLAMA_70B), case(LLAMA_70B).model.layers[0])
    assert (qkv.n, qkv.k) == (8 * 128 + 2 * 128, 8192)
    assert (out.n, out.k) == (8192, 8 * 128)
    assert (gate_up.n, gate_up.k) == (2 * 3584, 8192)
    assert (down.n, down.k) == (8192, 3584)


def test_shards_of_a_layer_do_all_its_flops() -> None:
    c = case(LLAMA_70B)
    gemms = layers.dense_gemms(c, c.model.layers[0])
    seconds, sources = layers.gemm_seconds(c, gemms, TOKENS)
    weights = attention_matmul_weights(c.model) + mlp_parameters(c.model)
    assert float(seconds[0]) == pytest.approx(2 * 8192 * weights / 8 / FLOPS)
    assert sources == {"measured": 1.0}


def test_latent_projections_run_on_the_ranks_own_rows() -> None:
    c = case(DEEPSEEK_V3)
    plain = [g for g in layers.attention_gemms(c) if g.side == "plain"]
    assert [(g.n, g.share) for g in plain] == [(1536, 1 / 4), (512 + 64, 1 / 4)]


def test_power_limits_the_rate() -> None:
    # 0.8·700 W / 1.4 pJ = 400 TFLOP/s, below the double's 500; FP8 takes half the energy.
    slow = case(QWEN_7B, flop_joules_hopper=1.4e-12)
    assert layers.sustained_flops(slow, "bf16") == pytest.approx(400e12)
    assert layers.sustained_flops(slow, "fp8") == pytest.approx(800e12)
    seconds, _ = layers.one_gemm(slow, TOKENS, 4096, 4096, "bf16")
    assert float(seconds[0]) == pytest.approx(2 * 8192 * 4096 * 4096 / 400e12)


def test_experts_do_their_share_of_the_rows() -> None:
    c = case(DEEPSEEK_V3)
    # 32 ranks bring 8192/4 rows of 8 experts each to 256 experts of 3·7168·2048 weights, 8 on this rank.
    # Each expert's 2048 rows end in a tile of 128 that is half empty.
    rows = 32 * 2048 * 8 / 256
    seconds, _ = layers.expert_seconds(c, TOKENS)
    assert float(seconds[0]) == pytest.approx(2 * (rows + 64) * 8 * 3 * 7168 * 2048 / FLOPS)
    hot, _ = layers.expert_seconds(case(DEEPSEEK_V3, expert_imbalance=1.5), TOKENS)
    assert float(hot[0]) / float(seconds[0]) == pytest.approx((1.5 * rows + 64) / (rows + 64))


def test_experts_with_hardly_a_row_still_read_their_weights() -> None:
    c = case(DEEPSEEK_V3)
    # 1 token: 8 experts of 3·7168·2048 bf16 weights at 3.35 TB/s, 0.21 ms; half a tile each is 0.09 ms of GEMMs
    seconds, _ = layers.expert_seconds(c, np.array([1.0]))
    assert float(seconds[0]) == pytest.approx(8 * 3 * 7168 * 2048 * 2 / 3.35e12)


def test_a_cast_in_the_table_is_not_counted_again() -> None:
    class Casting(FlatKernels):
        """FP8 GEMMs at twice the rate, and 3 bytes per input element at 2 TB/s for its cast."""

        def gemm_seconds(self, m: Any, n: int, k: int, dtype: str = "bf16") -> Any:
            seconds, source = super().gemm_seconds(m, n, k, dtype)
            return (seconds, source) if dtype == "bf16" else (seconds / 2 + 3.0 * np.asarray(m) * k / STREAM, source)

    c = replace(case(QWEN_7B, gemm_derate=1.0), kernels=Casting())
    seconds, _ = layers.one_gemm(c, TOKENS, 4096 + layers.THIN, 4096, "fp8_tensor")
    # what is left is the GEMM at 1,000 TFLOP/s but for the thin one's own half
    assert float(seconds[0]) == pytest.approx(2 * 8192 * (4096 + 2 * 128) * 4096 / 1000e12)


def test_a_lower_power_limit_lowers_the_clock() -> None:
    # 500 W of 700: sqrt(5/7) of the rate, in GEMMs and attention
    c = case(QWEN_7B, flop_joules_hopper=1.4e-12)
    low = replace(c, gpu=replace(c.gpu, watts=500.0))
    assert layers.sustained_flops(low, "bf16") == pytest.approx(400e12 * (5 / 7) ** 0.5)
    assert layers.powered_peak(low) == pytest.approx(989.5e12 * (5 / 7) ** 0.5)
    slow = replace(c, gpu=replace(c.gpu, watts=500.0, peak_flops={"bf16": 148e12, "fp8": 296e12}))
    assert layers.powered_peak(slow) == 148e12


def test_pytorchs_ring_works_in_blocks() -> None:
    pairs = np.array([8192.0**2 / 2])
    c = case(QWEN_7B, "trainer.backend=fsdp2", "trainer.cp=2", ring_attention_factor=1.5)
    whole = case(QWEN_7B, "trainer.backend=fsdp2", "trainer.cp=2", ring_attention_factor=1.0)
    ratio = layers.attention_seconds(c, TOKENS, pairs) / layers.attention_seconds(whole, TOKENS, pairs)
    assert float(ratio[0]) == pytest.approx(1.5)


def test_attention_is_its_flops_at_the_profiles_efficiency() -> None:
    c = case(LLAMA_70B, attention_forward_efficiency=0.5, attention_backward_efficiency=0.4)
    pairs = np.array([8192.0**2 / 2])
    seconds = layers.attention_seconds(c, TOKENS, pairs)
    assert float(seconds[0]) == pytest.approx(2 * 8 * 256 * 8192**2 / 2 / (989e12 * 0.5))
    assert layers.attention_backward_factor(c) == pytest.approx(2.5 * 0.5 / 0.4)


def test_held_weights_follow_tp_and_ep() -> None:
    c = case(DEEPSEEK_V3)
    dense, experts = layers.held_parameters(c, c.model.layers[10])
    assert experts == 256 * 3 * 7168 * 2048 / 32
    assert dense < experts


def test_latent_down_projections_are_whole_on_every_rank() -> None:
    """DeepSeek-V3 at TP 4. Whole: q_a 7168·1536, kv_a 7168·576, norms 2·7168 + 1536 + 512, router 7168·256 + 256.
    A quarter: q_b 1536·128·192, kv_b 512·128·256, o 128·128·7168, the shared expert 3·7168·2048.
    """
    c = case(DEEPSEEK_V3)
    dense, _ = layers.held_parameters(c, c.model.layers[10])
    whole = 7168 * (1536 + 576) + 2 * 7168 + 1536 + 512 + 7168 * 256 + 256
    split = 1536 * 128 * 192 + 512 * 128 * 256 + 128 * 128 * 7168 + 3 * 7168 * 2048
    assert dense == whole + split / 4
    # the stage has nothing but four such layers
    assert sharding.stage_parameters(c, 5)[0] == train_params(c.model, c.layout, 5).dense == 4 * dense


def test_eager_layers_stream_more() -> None:
    c = case(QWEN_7B)
    more = case(QWEN_7B, elementwise_eager=3.0)
    layer = c.model.layers[0]
    assert layers.streamed_bytes(more, layer) == pytest.approx(3 * layers.streamed_bytes(c, layer))


def test_narrow_heads_are_less_efficient() -> None:
    # 64 wide: 1.5·64/128 = 3/4 of the efficiency of 128 wide
    wide = case(QWEN_7B)
    a = wide.model.attention
    narrow = replace(wide, model=replace(wide.model, attention=replace(a, head_dim=64, v_head_dim=64)))
    pairs = np.array([8192.0**2 / 2])
    whole, half = (float(layers.attention_seconds(c, TOKENS, pairs)[0]) for c in (wide, narrow))
    assert half / whole == pytest.approx(0.5 / 0.75)
