"""Every silent error, made on purpose as frameworks make it, is found and named."""

from __future__ import annotations

import pytest
import torch

from rlsim.architecture import ModelSpec
from rlsim.reshard.detect import Finding, detect
from rlsim.reshard.fp8 import dequantise, quantise

from . import brute
from .layouts import trainer
from .small_models import DENSE, MIXTRAL, MLA, MOE, checkpoint, gqa, model

P = "model.layers.0."


def random(m: ModelSpec, seed: int = 0) -> dict[str, torch.Tensor]:
    generator = torch.Generator().manual_seed(seed)
    return {name: torch.randn(x.shape, generator=generator) for name, x in checkpoint(m).items()}


def only(before: dict[str, torch.Tensor], after: dict[str, torch.Tensor], m: ModelSpec) -> Finding:
    report = detect(before, after, m)
    assert len(report.wrong) == 1, report.findings
    return report.wrong[0]


def test_equal_checkpoints_have_no_findings() -> None:
    hf = random(MOE)
    report = detect(hf, {name: x.clone() for name, x in hf.items()}, MOE)
    assert report.findings == ()
    assert report.equal == report.compared == len(hf)


def test_rounding_is_no_error() -> None:
    hf = random(DENSE)
    report = detect(hf, {name: x.to(torch.bfloat16) for name, x in hf.items()}, DENSE)
    assert not report.wrong
    assert all("rounded" in f.mistake for f in report.findings)


def megatron_shards(hf: dict[str, torch.Tensor], m: ModelSpec, tp: int, name: str) -> list[torch.Tensor]:
    layout = trainer(m, tp=tp)
    return [brute.megatron(hf, m, layout, t)[f"decoder.layers.0.{name}"] for t in range(tp)]


def test_interleave_forgotten() -> None:
    """Megatron's shards joined and split as [q | k | v]."""
    hf = random(DENSE)
    whole = torch.cat(megatron_shards(hf, DENSE, 2, "self_attention.linear_qkv.weight"))
    q, k, v = whole.split([32, 16, 16])
    after = hf | {P + "self_attn.q_proj.weight": q, P + "self_attn.k_proj.weight": k, P + "self_attn.v_proj.weight": v}
    found = only(hf, after, DENSE)
    assert "interleave forgotten" in found.mistake
    assert len(found.tensors) == 3


@pytest.mark.parametrize("tp", [2, 4])
def test_fused_then_split_qkv(tp: int) -> None:
    hf = random(DENSE)
    names = [P + f"self_attn.{x}_proj.weight" for x in "qkv"]
    shards = [s.split([32 // tp, 16 // tp, 16 // tp]) for s in torch.cat([hf[n] for n in names]).chunk(tp)]
    after = hf | {n: torch.cat([s[i] for s in shards]) for i, n in enumerate(names)}
    assert f"fused, then split: [q | k | v] was cut whole into TP = {tp}" in only(hf, after, DENSE).mistake


def test_gate_and_up_swapped() -> None:
    hf = random(MIXTRAL)
    w1, w3 = P + "block_sparse_moe.experts.3.w1.weight", P + "block_sparse_moe.experts.3.w3.weight"
    found = only(hf, hf | {w1: hf[w3], w3: hf[w1]}, MIXTRAL)
    assert found == Finding((w1, w3), "gate and up swapped")


def test_gate_and_up_split_whole() -> None:
    """Shards [gate_t; up_t] of TP = 4 joined and halved: the shapes are right, the numbers are not."""
    hf = random(DENSE)
    gate, up = torch.cat(megatron_shards(hf, DENSE, 4, "mlp.linear_fc1.weight")).chunk(2)
    after = hf | {P + "mlp.gate_proj.weight": gate, P + "mlp.up_proj.weight": up}
    assert "gate and up split whole: TP = 4" in only(hf, after, DENSE).mistake


def test_wrong_kv_replica() -> None:
    """An engine wider than the KV heads that took head t mod nkv instead of t div (T/nkv)."""
    hf = random(DENSE)
    name = P + "self_attn.k_proj.weight"
    heads = hf[name].reshape(4, 4, -1)
    found = only(hf, hf | {name: heads[[0, 2, 1, 3]].reshape(16, -1)}, DENSE)
    assert found.mistake == "wrong KV replica: k heads 1 ← 2, 2 ← 1"


def test_transposed_expert() -> None:
    """gpt-oss-like square experts: nothing but the numbers shows it."""
    m = model("square", gqa(4, 2, 4), hidden=16, intermediate=16)
    hf = random(m)
    name = P + "mlp.down_proj.weight"
    assert "transposed" in only(hf, hf | {name: hf[name].T.contiguous()}, m).mistake
    hf = random(MOE)
    name = "model.layers.1.mlp.experts.5.down_proj.weight"
    found = only(hf, hf | {name: hf[name].T.reshape(hf[name].shape).contiguous()}, MOE)
    assert found.tensors == (name,)
    assert "transposed" in found.mistake


def test_stale_tensors() -> None:
    """The version before, named where it is at hand and guessed where it is not."""
    hf = random(MLA)
    name = P + "self_attn.kv_b_proj.weight"
    old = {n: x + 0.01 * torch.randn(x.shape, generator=torch.Generator().manual_seed(7)) for n, x in hf.items()}
    after = hf | {name: old[name]}
    assert detect(hf, after, MLA, previous=old).wrong[0].mistake == "stale: it is the tensor of an earlier version"
    assert "probably stale" in only(hf, after, MLA).mistake


def test_vocabulary_shift() -> None:
    """TP = 2 pads 200 rows to 2 x 128; whoever joins 2 x 100 + padding between them shifts the second half."""
    hf = random(DENSE)
    name = "lm_head.weight"
    x = hf[name]
    shifted = torch.cat([x[:100], torch.zeros(28, x.shape[1]), x[100:172]])
    found = only(hf, hf | {name: shifted}, DENSE)
    assert found.mistake.startswith("vocabulary shifted by 28 rows from row 100 on")


def test_fp8_scale_misaligned() -> None:
    """A shard of 96 rows that takes the scale row of its number: rows 96 to 127 get another block's scale."""
    m = model("wide", gqa(4, 4, 64), hidden=256, intermediate=384)
    hf = random(m)
    name = P + "mlp.gate_proj.weight"
    values, scale = quantise(hf[name] * torch.arange(1, 385)[:, None])
    hf[name] = dequantise(values, scale)
    wrong = hf | {name: dequantise(values, scale.roll(1, 0))}
    assert "FP8 scale misaligned" in only(hf, wrong, m).mistake


def test_expert_of_another_rank_and_lost_tensors() -> None:
    hf = random(MOE)
    a, b = (f"model.layers.1.mlp.experts.{j}.down_proj.weight" for j in (2, 6))
    assert only(hf, hf | {a: hf[b]}, MOE).mistake == f"it is {b}"
    after = {n: x for n, x in hf.items() if n != a} | {"extra": hf[a]}
    assert {f.mistake for f in detect(hf, after, MOE).wrong} == {
        "missing after the conversion",
        "there is no such tensor before the conversion",
    }
    assert "all zeros" in only(hf, hf | {a: torch.zeros_like(hf[a])}, MOE).mistake
    assert (
        "joined in reverse order"
        in only(hf, hf | {a: torch.cat(list(reversed(hf[a].chunk(2, dim=1))), dim=1)}, MOE).mistake
    )
