"""Fit the scaled roofline on the measured tables: `python -m rlsim.costs.fit_roofline` rewrites
`data/roofline.json`.

One fit per (system, op, format) on that system's valid points, and one joint fit (`hopper`) on H100 and H200,
which differ in HBM only, so that FLOP and byte efficiencies part. Valid: not below the floor.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import asdict, replace

import numpy as np
from scipy.optimize import least_squares

from rlsim.costs.kernels import ops, tables
from rlsim.costs.kernels.reference import covered_systems
from rlsim.costs.kernels.roofline import FITS, PRIOR, Fit
from rlsim.costs.kernels.tables import MILLI, Floats
from rlsim.costs.kernels.work import (
    AttentionShape,
    Gpu,
    MoeShape,
    Work,
    decode_work,
    gemm_work,
    moe_work,
    peak,
    prefill_work,
)

HEADS = ((64, 8), (32, 8), (16, 2), (8, 1), (4, 1), (32, 4), (8, 8), (28, 4), (16, 4))
POINTS = 3000
JOINT = ("h100_sxm", "h200_sxm")
Sample = tuple[Work, Floats, Gpu]


def gemm_samples(system: str, gpu: Gpu, dtype: str) -> Iterator[Sample]:
    """vLLM's fp8 points are left out: up to 90 µs whatever the shape, which is not the kernel's time."""
    raws = ops.gemm_raws(system, dtype, "vllm")
    if dtype != "bf16":
        raws = [r for r in raws if r.backend != "vllm"] or raws
    for raw in raws:
        m, n, k = np.meshgrid(*raw.axes, indexing="ij")
        yield gemm_work(m, n, k, dtype), raw.seconds, gpu


def attention_samples(system: str, gpu: Gpu, decode: bool) -> Iterator[Sample]:
    family, file, (batch, length) = ops.DECODE if decode else ops.PREFILL
    for backend in tables.backends(system, family, file, None):
        path = tables.versions(system, family, backend, file)[0]
        columns = ("num_heads", "num_key_value_heads", "head_dim", "window_size", batch, length, "latency")
        rows = tables.read(path, columns, (("attn_dtype", "bfloat16"), ("kv_cache_dtype", "bfloat16")))
        for heads, kv in HEADS:
            keep = (rows["num_heads"] == heads) & (rows["num_key_value_heads"] == kv)
            keep &= (rows["head_dim"] == 128) & (rows["window_size"] == 0)
            shape = AttentionShape(heads, kv, 128, 128, 256)
            b, s, t = rows[batch][keep], rows[length][keep], rows["latency"][keep] * MILLI
            work = decode_work(b, s + 1, shape, 2.0) if decode else prefill_work(b, s, shape)
            yield work, t, gpu


def mla_samples(system: str, gpu: Gpu, decode: bool) -> Iterator[Sample]:
    file, length = ("generation_mla_perf", "step") if decode else ("context_mla_perf", "isl")
    for backend in tables.backends(system, "mla", file, None):
        if not decode and backend != "trtllm":
            continue
        path = tables.versions(system, "mla", backend, file)[0]
        columns = ("num_heads", "batch_size", length, "latency")
        rows = tables.read(path, columns, (("mla_dtype", "bfloat16"), ("kv_cache_dtype", "bfloat16")))
        for heads in (128, 64, 32, 16):
            keep = rows["num_heads"] == heads
            b, s, t = rows["batch_size"][keep], rows[length][keep], rows["latency"][keep] * MILLI
            if decode:
                yield decode_work(b, s + 1, AttentionShape(heads, 1, 576, 512, 576), 2.0), t, gpu
            else:
                yield prefill_work(b, s, AttentionShape(heads, heads, 192, 128, 320)), t, gpu


def moe_samples(system: str, gpu: Gpu, dtype: str) -> Iterator[Sample]:
    for backend in tables.backends(system, "moe", "moe_perf", None):
        rows = ops.moe_rows(system, backend, "moe_perf", dtype, "power_law_1.01")
        if not len(rows["latency"]):
            continue
        keys = np.stack([rows[c].astype(np.int64) for c in ops.SHAPE_COLUMNS], axis=1)
        for key in np.unique(keys, axis=0):
            shape = MoeShape(*(int(v) for v in key))
            if shape.hidden < 2048 or shape.top_k > 10 or shape.moe_tp * shape.moe_ep > 64:
                continue
            if shape.moe_ep > 1 and backend != "trtllm":
                continue
            keep = np.all(keys == key, axis=1)
            yield moe_work(rows["num_tokens"][keep], shape, dtype, 1.01), rows["latency"][keep] * MILLI, gpu


def samples(system: str, gpu: Gpu, op: str, dtype: str) -> list[Sample]:
    """All samples of an op on a system."""
    if op == "gemm":
        return list(gemm_samples(system, gpu, dtype))
    if op.startswith("attention"):
        return list(attention_samples(system, gpu, op.endswith("decode")))
    if op.startswith("mla"):
        return list(mla_samples(system, gpu, op.endswith("decode")))
    return list(moe_samples(system, gpu, dtype))


def fit(parts: list[Sample], dtype: str) -> Fit | None:
    """Robust least squares on log time over at most `POINTS` points of each system, weighted alike."""
    flops, size, tiles, seconds, peaks, hbm, floor = ([] for _ in range(7))
    for work, t, gpu in parts:
        low = work.floor(gpu, dtype)
        ok = (np.isfinite(t) & (t >= low)).ravel()
        flops.append(work.flops.ravel()[ok])
        size.append(work.bytes.ravel()[ok])
        tiles.append(np.broadcast_to(work.tiles, t.shape).ravel()[ok])
        seconds.append(t.ravel()[ok])
        floor.append(low.ravel()[ok])
        peaks.append(np.full(int(ok.sum()), peak(gpu, dtype)))
        hbm.append(np.full(int(ok.sum()), gpu.hbm_bandwidth))
    if not parts or sum(len(x) for x in seconds) < 40:
        return None
    f, b, u, t, p, h, low = (np.concatenate(x) for x in (flops, size, tiles, seconds, peaks, hbm, floor))
    pick = np.random.default_rng(0).permutation(len(t))[:POINTS]
    f, b, u, t, p, h, low = (x[pick] for x in (f, b, u, t, p, h, low))

    def model(x: Floats) -> Floats:
        launch, e_f, e_b, overlap, width, power = np.exp(x)
        use = np.minimum(1.0, np.maximum(u, 1.0) / width) ** power
        compute, memory = f / (p * e_f * use), b / (h * e_b * use)
        big = np.maximum(np.maximum(compute, memory), 1e-30)
        busy = big * ((compute / big) ** overlap + (memory / big) ** overlap) ** (1 / overlap)
        return np.asarray(np.maximum(launch + busy, low))

    start = np.log([8e-6, 0.6, 0.7, 3.0, 100.0, 0.3])
    bounds = (np.log([1e-6, 0.02, 0.05, 1.0, 4.0, 1e-3]), np.log([200e-6, 1.0, 1.0, 12.0, 1000.0, 1.2]))
    found = least_squares(lambda x: np.log(model(x) / t), start, bounds=bounds, loss="soft_l1", f_scale=0.15)
    error = np.abs(model(found.x) / t - 1)
    launch, e_f, e_b, overlap, width, power = (float(f"{v:.4g}") for v in np.exp(found.x))
    result = Fit(launch, e_f, e_b, overlap, width, power)
    return replace(
        result,
        points=len(t),
        median_error=round(float(np.median(error)), 3),
        p90_error=round(float(np.quantile(error, 0.9)), 3),
    )


OPS = (
    ("gemm", "bf16"),
    ("gemm", "fp8"),
    ("gemm", "fp8_block"),
    ("attention_prefill", "bf16"),
    ("attention_decode", "bf16"),
    ("mla_prefill", "bf16"),
    ("mla_decode", "bf16"),
    ("moe", "bf16"),
    ("moe", "fp8_block"),
    ("moe", "mxfp4"),
)


def main() -> None:
    """Fit everything and write the data file."""
    covered = covered_systems()
    fits: dict[str, dict[str, dict[str, float]]] = {"hopper": {}}
    for op, dtype in OPS:
        joint: list[Sample] = []
        for system, gpu in covered.items():
            parts = samples(system, gpu, op, dtype)
            joint += parts if system in JOINT else []
            result = fit(parts, dtype)
            if result is not None:
                fits.setdefault(system, {})[f"{op}/{dtype}"] = asdict(result)
        result = fit(joint, dtype) or PRIOR
        fits["hopper"][f"{op}/{dtype}"] = asdict(result)
        print(op, dtype, result)
    content = {
        "tables": f"aiconfigurator-core {tables.tables_version()}",
        "model": "see rlsim/costs/kernels/roofline.py",
        "fits": fits,
    }
    FITS.write_text(json.dumps(content, indent=1) + "\n")


if __name__ == "__main__":
    main()
