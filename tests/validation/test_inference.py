"""Inference converters: the engine of the record; no rate above what FLOPs allow."""

from __future__ import annotations

import pytest

from validation.published import inference, records
from validation.published.records import SkipError

RECORDS = {r.id: r for r in records.load() if r.source == "inference_only"}


def test_tensorrt_llm_engines() -> None:
    dep, _ = (inference.convert(RECORDS[id_])[0] for id_ in ("trtllm-qwen3-235b-a22b-h200-dep4-fp8",) * 2)
    system, engine = inference.surface(dep)
    layout = system.rollout[0].layout
    assert (layout.attn_dp, layout.attn_tp, layout.moe_ep, engine.ranks) == (4, 1, 4, 4)
    assert dep.ask == ("requests", 3000, 1000, 1000)


@pytest.mark.parametrize("id_", ["trtllm-llama-3.3-70b-h100-tp2-fp8", "deepseek-profile-decode", "sglang-ep-prefill"])
def test_rates_respect_physics(id_: str) -> None:
    for case in inference.convert(RECORDS[id_]):
        rate, ceiling = inference.price(case)
        assert 0 < rate < ceiling
        assert case.measured < ceiling


@pytest.mark.parametrize("id_", ["sglang-ep-decode-mtp", "vllm-wide-ep-h200"])
def test_what_is_not_modelled_or_not_said(id_: str) -> None:
    with pytest.raises(SkipError):
        inference.convert(RECORDS[id_])


def test_balanced_experts_are_faster() -> None:
    (case,) = inference.convert(RECORDS["sglang-ep-decode"])
    _, balanced = inference.surface(case)
    assert balanced.ranks == 64
    assert balanced.joint[-1] > balanced.joint[64] > 0
