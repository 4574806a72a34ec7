"""FP8 in blocks of 128 x 128: scales, the grid of shards, and the order of quantising and slicing."""

from __future__ import annotations

import pytest
import torch

from rlsim import catalog
from rlsim.errors import UserError
from rlsim.reshard.execute import execute
from rlsim.reshard.fp8 import check_grid, dequantise, quantise, quantised_engine, scale_rows
from rlsim.reshard.plan import plan_between
from rlsim.reshard.state import shard

from .layouts import engines, trainer
from .small_models import Experts, Layer, checkpoint, gqa, model


def test_scales_of_blocks() -> None:
    """One block of ones and one of fours: scales 1/448 and 4/448, values 448 in both; nothing is lost."""
    x = torch.ones(128, 256)
    x[:, 128:] = 4.0
    values, scale = quantise(x)
    assert scale.shape == (1, 2)
    assert torch.allclose(scale, torch.tensor([[1 / 448, 4 / 448]]))
    assert (values.float() == 448).all()
    assert torch.allclose(dequantise(values, scale), x)


def test_error_of_a_value_is_below_a_sixteenth() -> None:
    """e4m3 has three bits of mantissa: rounding is off by at most 2^-4 of the value, for those not tiny in a block."""
    x = torch.randn(200, 300, generator=torch.Generator().manual_seed(1))
    values, scale = quantise(x)
    assert scale.shape == (2, 3)
    back = dequantise(values, scale)
    big = x.abs() > 0.1
    assert ((back - x).abs()[big] <= x.abs()[big] / 16 + 1e-6).all()


def test_power_of_two_scales() -> None:
    scale = quantise(torch.randn(128, 128, generator=torch.Generator().manual_seed(2)), power_of_two=True)[1]
    assert float(torch.log2(scale)) == round(float(torch.log2(scale)))


def test_golden_scale_rows() -> None:
    """q_a 1,536 rows and kv_a 576 rows fused: 12 + 5 = 17 rows of scales."""
    assert (scale_rows(1536), scale_rows(576), scale_rows(1536 + 576)) == (12, 5, 17)


def test_quantise_after_slice_is_slice_after_quantise_on_the_grid() -> None:
    x = torch.randn(512, 256, generator=torch.Generator().manual_seed(3))
    whole, scales = quantise(x)
    values, scale = quantise(x[128:384])
    assert torch.equal(values.view(torch.uint8), whole[128:384].view(torch.uint8))
    assert torch.equal(scale, scales[1:3])
    off, _ = quantise(x[96:192])  # off the grid: rows 96 to 127 belong to another block
    assert not torch.equal(off.view(torch.uint8), whole[96:192].view(torch.uint8))


def test_shards_off_the_grid_are_refused() -> None:
    """Qwen3-30B-A3B: experts of width 768 at TP 8 are 96 rows; TP 2, 3, 6 or EP would do."""
    m = catalog.model("Qwen/Qwen3-30B-A3B")
    source = trainer(m, tp=2, ep=4, etp=1, gpus=8)
    with pytest.raises(UserError, match="cut into 96 rows, off the grid of 128 x 128") as caught:
        check_grid(plan_between(m, source, engines(m, attn_tp=8), wire_bytes=1.0))
    assert "moe_tp one of 1, 2, 3, 6" in str(caught.value)
    check_grid(plan_between(m, source, engines(m, attn_tp=4, moe_ep=4), wire_bytes=1.0))


def test_bf16_in_fp8_out() -> None:
    """Gathered in bf16, quantised on the way: the bytes of cutting the quantised checkpoint, scales included."""
    m = model("wide", gqa(8, 8, 64), hidden=256, intermediate=512, layers=(Layer(moe=True),) * 2, tied=True,
              architecture="MixtralForCausalLM", experts=Experts(4, 2, 256))  # fmt: skip
    generator = torch.Generator().manual_seed(5)
    hf = {name: torch.randn(x.shape, generator=generator).bfloat16() for name, x in checkpoint(m).items()}
    source, target = trainer(m, tp=2, ep=4, etp=1, gpus=4), engines(m, attn_tp=2)
    plan = plan_between(m, source, target, wire_bytes=1.0)
    states = execute(plan, [shard(hf, m, source, rank) for rank in range(4)])
    for rank, state in enumerate(states):
        found = quantised_engine(state, plan, rank)
        for name, x in state.items():
            if "proj" not in name and "experts" not in name:
                assert torch.equal(found[name], x)  # norms, router and embedding stay bf16
        p = "model.layers.1.block_sparse_moe.experts"
        for j in range(4):
            w1, w3, w2 = (hf[f"{p}.{j}.{w}.weight"] for w in ("w1", "w3", "w2"))
            rows = slice(rank * 128, (rank + 1) * 128)
            for part, whole, cut in ((slice(0, 128), w1, (rows,)), (slice(128, 256), w3, (rows,))):
                values, scales = quantise(whole)
                assert torch.equal(found[f"{p}.w13_weight"][j][part].view(torch.uint8), values[cut].view(torch.uint8))
                at = part.start // 128
                assert torch.equal(found[f"{p}.w13_weight_scale_inv"][j][at : at + 1], scales[rank : rank + 1])
            values, scales = quantise(w2)
            assert torch.equal(found[f"{p}.w2_weight"][j].view(torch.uint8), values[:, rows].view(torch.uint8))
            assert torch.equal(found[f"{p}.w2_weight_scale_inv"][j], scales[:, rank : rank + 1])


def test_deepseek_fits_the_grid() -> None:
    m = catalog.model("deepseek-ai/DeepSeek-V3")
    source = trainer(m, tp=1, ep=8, etp=1)
    check_grid(plan_between(m, source, engines(m, attn_tp=16, moe_ep=16), wire_bytes=1.0))
