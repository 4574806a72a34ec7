"""Kernel times: floors, provenance, replacements, scaling to GPUs without tables."""

import dataclasses

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rlsim import catalog
from rlsim.costs.kernels import AttentionShape, Kernels, MoeShape, kernels_for
from rlsim.costs.kernels.work import decode_work, gemm_work, moe_work, prefill_work

GPUS = ("h100-sxm", "h800", "h20")
quick = settings(max_examples=60, deadline=None)


def h100(engine: str | None = None) -> Kernels:
    return kernels_for(catalog.gpu("h100-sxm"), engine)


@quick
@given(
    gpu=st.sampled_from(GPUS),
    m=st.integers(1, 100_000),
    n=st.integers(16, 200_000),
    k=st.integers(16, 30_000),
    dtype=st.sampled_from(["bf16", "fp8"]),
)
def test_no_gemm_is_below_its_floor(gpu: str, m: int, n: int, k: int, dtype: str) -> None:
    spec = catalog.gpu(gpu)
    seconds = kernels_for(spec).gemm(m, n, k, dtype).seconds
    assert seconds >= float(gemm_work(m, n, k, dtype).floor(spec, dtype)) * (1 - 1e-9)


@quick
@given(
    gpu=st.sampled_from(GPUS),
    batch=st.integers(1, 2048),
    context=st.integers(1, 200_000),
    kv=st.sampled_from([1, 2, 4, 8]),
    ratio=st.sampled_from([1, 4, 5, 7, 8]),
    window=st.sampled_from([None, 128]),
)
def test_no_attention_is_below_its_floor(
    gpu: str, batch: int, context: int, kv: int, ratio: int, window: int | None
) -> None:
    spec = catalog.gpu(gpu)
    k = kernels_for(spec)
    shape = AttentionShape(kv * ratio, kv, 128, 128, 256, window or 0)
    decode, _ = k.attention_decode_seconds(batch, context, kv * ratio, kv, 128, "bf16", window)
    assert float(decode) >= float(decode_work(batch, context, shape, 2.0).floor(spec, "bf16")) * (1 - 1e-9)
    prefill, _ = k.attention_prefill_seconds(context, kv * ratio, kv, 128, window)
    assert float(prefill) >= float(prefill_work(1, context, shape).floor(spec, "bf16")) * (1 - 1e-9)


@quick
@given(
    gpu=st.sampled_from(GPUS),
    tokens=st.integers(1, 300_000),
    ep=st.sampled_from([1, 8, 32]),
    dtype=st.sampled_from(["bf16", "fp8"]),
    dispatched=st.sampled_from([None, "decode", "prefill"]),
)
def test_no_expert_gemm_is_below_its_floor(gpu: str, tokens: int, ep: int, dtype: str, dispatched: str | None) -> None:
    spec = catalog.gpu(gpu)
    shape = MoeShape(7168, 2048, 8, 256, 1, ep)
    seconds, _ = kernels_for(spec).moe_seconds(tokens, shape, dtype, dispatched)  # type: ignore[arg-type]
    assert float(seconds) >= float(moe_work(tokens, shape, dtype, 1.01).floor(spec, dtype)) * (1 - 1e-9)


@quick
@given(
    gpu=st.sampled_from(GPUS),
    op=st.sampled_from(["all_reduce", "all_gather", "reduce_scatter", "alltoall"]),
    size=st.floats(1e3, 1e10),
    gpus=st.sampled_from([2, 4, 8, 16, 64]),
)
def test_no_collective_is_below_its_links(gpu: str, op: str, size: float, gpus: int) -> None:
    spec = catalog.gpu(gpu)
    seconds = kernels_for(spec).nccl(op, size, gpus).seconds
    share = 1.0 if op == "all_reduce" else 0.5
    assert seconds >= share * size * min(1.0, 8 / gpus) / spec.nvlink_bandwidth * (1 - 1e-9)
    if gpus > 8 and op != "alltoall":
        assert seconds >= 0.5 * size / 8 / spec.nic_bandwidth


def test_measured_points_come_back_as_measured() -> None:
    # [32768, 12288] x [12288, 65536] bf16 on H100 under vLLM: 60.324042 ms in the table
    priced = h100("vllm").gemm(32768, 65536, 12288)
    assert priced.source == "measured"
    assert priced.seconds == pytest.approx(60.324042e-3, rel=1e-6)


def test_interpolation_passes_between_its_knots() -> None:
    k = h100()
    below, at, above = (k.gemm(4096, n, 8192).seconds for n in (6144, 6600, 7168))
    assert below < at < above


def test_gemm_is_vectorised_over_m() -> None:
    k = h100()
    many, _ = k.gemm_seconds(np.array([1.0, 100.0, 5000.0]), 4608, 3584)
    assert many.tolist() == [k.gemm(m, 4608, 3584).seconds for m in (1, 100, 5000)]


def test_same_chip_with_slower_links_is_scaled() -> None:
    fast, slow = h100("sglang"), kernels_for(catalog.gpu("h800"), "sglang")
    assert slow.gemm(4096, 8192, 8192).seconds == fast.gemm(4096, 8192, 8192).seconds
    assert slow.gemm(4096, 8192, 8192).source == "scaled"
    assert slow.all_reduce(1e9, 8).seconds > 1.5 * fast.all_reduce(1e9, 8).seconds
    # latency does not grow with a slower link
    assert slow.all_reduce(1e4, 8).seconds == pytest.approx(fast.all_reduce(1e4, 8).seconds, rel=0.05)


def test_uncovered_gpu_is_roofline_on_its_own_peaks() -> None:
    h20 = kernels_for(catalog.gpu("h20"))
    big = h20.gemm(8192, 8192, 8192)
    assert big.source == "roofline"
    # 2·8192³ = 1.1 TFLOP at 148 TFLOP/s dense: 7.4 ms at the peak
    assert 7.4e-3 < big.seconds < 7.4e-3 / 0.65
    thin = h20.gemm(1, 8192, 8192)
    # 134 MB of weights at 4 TB/s: 34 µs
    assert 33e-6 < thin.seconds < 60e-6


def test_an_overridden_bandwidth_scales_the_table() -> None:
    spec = catalog.gpu("h100-sxm")
    half = kernels_for(dataclasses.replace(spec, hbm_bandwidth=spec.hbm_bandwidth / 2))
    thin = half.gemm(1, 8192, 8192)
    assert thin.source == "scaled"
    assert thin.seconds == pytest.approx(2 * h100().gemm(1, 8192, 8192).seconds, rel=1e-6)


def test_what_was_replaced_is_reported() -> None:
    k = Kernels(catalog.gpu("h100-sxm"), "vllm")
    # vLLM's fp8 table has about 90 µs for [64, 2048] x [2048, 7168]; the other two back ends have 10 µs
    priced = k.gemm(64, 7168, 2048, "fp8")
    assert priced.source == "roofline"
    assert priced.seconds < 20e-6
    assert any("GEMM fp8" in text and "scaled roofline" in text for text in k.replacements)


def test_missing_expert_table_falls_back_to_another_back_end() -> None:
    # DeepSeek-V3's experts in bf16 were not measured under vLLM on H100, under TensorRT-LLM they were
    shape = MoeShape(7168, 2048, 8, 256, 1, 32)
    seconds, source = h100("vllm").moe_seconds(4096, shape, "bf16", "prefill")
    assert source == "measured"
    assert 0.1e-3 < float(seconds) < 3e-3


def test_mla_decode_holds_the_hbm_floor_everywhere() -> None:
    for gpu in ("h100-sxm", "h200"):
        spec = catalog.gpu(gpu)
        for engine in ("vllm", "sglang", "trtllm"):
            b, c = np.meshgrid([1.0, 64.0, 1024.0], [512.0, 8192.0, 131072.0], indexing="ij")
            seconds, _ = kernels_for(spec, engine).mla_decode_seconds(b, c, 128)
            floor = decode_work(b, c, AttentionShape(128, 1, 576, 512, 576), 2.0).floor(spec, "bf16")
            assert (seconds >= floor).all()
            assert (seconds[floor > 1e-3] < 2 * floor[floor > 1e-3]).all()


def test_decode_all_to_all_is_near_the_published_one() -> None:
    # DeepEP low latency, EP 32, 128 tokens: 155 + 273 µs (README)
    seconds, source = h100("sglang").all_to_all_seconds(128, MoeShape(7168, 2048, 8, 256, 1, 32), "decode")
    assert source == "measured"
    assert float(seconds) == pytest.approx(428e-6, rel=0.2)


def test_tensor_parallel_over_two_nodes_is_not_measured() -> None:
    inside, across = h100().all_reduce(1e6, 8), h100().all_reduce(1e6, 16)
    assert inside.source == "measured"
    assert across.source == "scaled"
    assert across.seconds > inside.seconds


def test_roofline_only() -> None:
    k = kernels_for(catalog.gpu("h100-sxm"), roofline_only=True)
    assert k.gemm(4096, 8192, 8192).source == "roofline"
    measured = h100().gemm(4096, 8192, 8192).seconds
    assert k.gemm(4096, 8192, 8192).seconds == pytest.approx(measured, rel=0.25)
