"""FP8 in blocks of 128 x 128: scales, the grid of shards, and the order of quantising and slicing."""

from __future__ import annotations

import pytest
import torch

from rlsim import catalog
from rlsim.errors import UserError
from rlsim.reshard.fp8 import check_grid, dequantise, quantise, scale_rows
from rlsim.reshard.plan import plan_between

from .layouts import engines, trainer


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


def test_deepseek_fits_the_grid() -> None:
    m = catalog.model("deepseek-ai/DeepSeek-V3")
    source = trainer(m, tp=1, ep=8, etp=1)
    check_grid(plan_between(m, source, engines(m, attn_tp=16, moe_ep=16), wire_bytes=1.0))
