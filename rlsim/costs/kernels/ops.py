"""Look-up of each op in the tables: which rows, which knots, which floor. One function per op returns a `Source`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from rlsim.costs.kernels import tables
from rlsim.costs.kernels.grid import Grid, align, checked_grid
from rlsim.costs.kernels.roofline import fit_for
from rlsim.costs.kernels.tables import MILLI, Floats
from rlsim.costs.kernels.work import (
    AttentionShape,
    Gpu,
    MoeShape,
    Work,
    bmm_work,
    decode_work,
    gemm_work,
    moe_work,
    prefill_work,
)

TABLE_DTYPE = {
    "bf16": "bfloat16",
    "fp16": "bfloat16",
    "fp8": "fp8",
    "fp8_block": "fp8_block",
    "fp4": "nvfp4",
    "int4": "int4_wo",
    "mxfp4": "w4a16_mxfp4",
}


TRUSTED = 0.5
"""90th percentile of a fit's residuals below which its roofline may decide between back ends."""


@dataclass(frozen=True)
class Source:
    """A checked grid, the back end it is from, whether it is of the very shape asked for, and what was replaced."""

    grid: Grid
    backend: str
    exact: bool
    note: str | None


@dataclass(frozen=True)
class Raw:
    """Seconds on a grid as the table has them."""

    backend: str
    axes: list[Floats]
    seconds: Floats


def _mesh(axes: list[Floats]) -> list[Floats]:
    return list(np.meshgrid(*axes, indexing="ij"))


def check(
    raws: list[Raw], work: Work, gpu: Gpu, system: str, op: str, dtype: str, label: str, exact: bool = True
) -> Source:
    """The first of `raws` held against its floor on the reference GPU and against the others."""
    first = raws[0]
    floor = np.maximum(work.floor(gpu, dtype), 1e-12)
    fit = fit_for(system, op, dtype)
    fallback = fit.seconds(work, gpu, dtype)
    rivals = [align(first.axes, r.axes, r.seconds) for r in raws[1:]]
    result = checked_grid(first.axes, first.seconds, floor, rivals, fallback, fit.p90_error < TRUSTED)
    note = None
    if result.below_floor or result.disagreeing:
        note = (
            f"{label} ({system}, {first.backend}): {result.below_floor} of {result.measured} points below the floor, "
            f"{result.disagreeing} more than 2x off the other back ends, replaced by the scaled roofline"
        )
    return Source(result.grid, first.backend, exact, note)


def gemm_raws(system: str, dtype: str, preferred: str | None) -> list[Raw]:
    """[m, n, k] seconds of every back end that measured this format."""
    out = []
    for backend in tables.backends(system, "gemm", "gemm_perf", preferred):
        path = tables.versions(system, "gemm", backend, "gemm_perf")[0]
        rows = tables.read(path, ("m", "n", "k", "latency"), (("gemm_dtype", TABLE_DTYPE[dtype]),))
        if len(rows["m"]):
            axes, grid = tables.pivot(rows, ("m", "n", "k"), "latency")
            out.append(Raw(backend, axes, grid * MILLI))
    return out


def gemm_source(system: str, gpu: Gpu, dtype: str, preferred: str | None) -> Source | None:
    raws = gemm_raws(system, dtype, preferred)
    if not raws:
        return None
    m, n, k = _mesh(raws[0].axes)
    work = gemm_work(m, n, k, dtype)
    return check(raws, work, gpu, system, "gemm", dtype, f"GEMM {dtype}")


# --- attention ------------------------------------------------------------------------------------------------------
PREFILL = ("attention", "context_attention_perf", ("batch_size", "isl"))
DECODE = ("attention", "generation_attention_perf", ("batch_size", "step"))


def _head_choice(rows: dict[str, Any], shape: AttentionShape) -> tuple[int, int, int, int] | None:
    """(heads, kv_heads, head_dim, window) of the measured shape nearest to the one wanted, by log distance, GQA
    ratio first.
    """
    keys = np.unique(
        np.stack([rows[c] for c in ("num_heads", "num_key_value_heads", "head_dim", "window_size")]), axis=1
    )
    if keys.shape[1] == 0:
        return None
    h, kv, d, w = keys.astype(np.float64)
    kv = np.where(kv == 0, h, kv)
    distance = (
        2 * np.abs(np.log(h / kv) - np.log(shape.heads / shape.kv_heads))
        + np.abs(np.log(kv / shape.kv_heads))
        + 4 * np.abs(np.log(d / shape.qk_dim))
        + 3 * np.abs(np.log((np.where(w == 0, 65536, w)) / (shape.window or 65536)))
    )
    best = keys[:, int(np.argmin(distance))]
    return int(best[0]), int(best[1]), int(best[2]), int(best[3])


def attention_source(
    system: str, gpu: Gpu, shape: AttentionShape, kv_dtype: str, preferred: str | None, decode: bool
) -> Source | None:
    """Grid over (batch, length or context) of the measured head shape nearest to `shape`."""
    family, file, axes_names = DECODE if decode else PREFILL
    raws: list[Raw] = []
    chosen: tuple[int, int, int, int] | None = None
    for backend in tables.backends(system, family, file, preferred):
        path = tables.versions(system, family, backend, file)[0]
        columns = ("num_heads", "num_key_value_heads", "head_dim", "window_size", *axes_names, "latency")
        where = (("attn_dtype", "bfloat16"), ("kv_cache_dtype", TABLE_DTYPE[kv_dtype]))
        rows = tables.read(path, columns, where)
        if not len(rows["latency"]):
            continue
        if chosen is None:
            chosen = _head_choice(rows, shape)
            if chosen is None:
                continue
        keep = np.ones(len(rows["latency"]), dtype=bool)
        for name, value in zip(columns, chosen, strict=False):
            keep &= rows[name] == value
        if not keep.any():
            continue
        picked = {name: rows[name][keep] for name in (*axes_names, "latency")}
        if decode:
            picked["step"] = picked["step"] + 1
        axes, grid = tables.pivot(picked, axes_names, "latency")
        raws.append(Raw(backend, axes, grid * MILLI))
    if not raws or chosen is None:
        return None
    heads, kv, dim, window = chosen
    table_shape = AttentionShape(heads, kv or heads, dim, dim, 2 * dim, window)
    b, c = _mesh(raws[0].axes)
    work = (
        decode_work(b, c, table_shape, 1.0 if kv_dtype == "fp8" else 2.0) if decode else prefill_work(b, c, table_shape)
    )
    exact = (heads, kv or heads, dim, window) == (shape.heads, shape.kv_heads, shape.qk_dim, shape.window)
    kind = "attention decode" if decode else "attention prefill"
    label = f"{kind} {heads}/{kv} heads of {dim}, kv {kv_dtype}" + (f", window {window}" if window else "")
    return check(raws, work, gpu, system, kind.replace(" ", "_"), "bf16", label, exact)


def mla_source(
    system: str, gpu: Gpu, shape: AttentionShape, kv_dtype: str, preferred: str | None, decode: bool
) -> Source | None:
    """Attention core of MLA over (batch, length or context), without the projections.

    Decode: the absorbed form. Prefill: TensorRT-LLM's table, since SGLang's is the absorbed form too (3.4x the
    FLOPs), which no engine uses for long prompts; the two are not rivals.
    """
    file, axes_names = (
        ("generation_mla_perf", ("batch_size", "step")) if decode else ("context_mla_perf", ("batch_size", "isl"))
    )
    order = tables.backends(system, "mla", file, preferred if decode else "trtllm")
    if not decode:
        order = tuple(b for b in order if b == "trtllm")
    raws: list[Raw] = []
    heads = 0
    for backend in order:
        path = tables.versions(system, "mla", backend, file)[0]
        rows = tables.read(
            path,
            ("num_heads", *axes_names, "latency"),
            (("mla_dtype", "bfloat16"), ("kv_cache_dtype", TABLE_DTYPE[kv_dtype])),
        )
        if not len(rows["latency"]):
            continue
        if not heads:
            have = np.unique(rows["num_heads"])
            heads = int(have[np.argmin(np.abs(np.log(have / shape.heads)))])
        keep = rows["num_heads"] == heads
        if not keep.any():
            continue
        picked = {name: rows[name][keep] for name in (*axes_names, "latency")}
        if decode:
            picked["step"] = picked["step"] + 1
        axes, grid = tables.pivot(picked, axes_names, "latency")
        raws.append(Raw(backend, axes, grid * MILLI))
    if not raws:
        return None
    b, c = _mesh(raws[0].axes)
    if decode:
        work = decode_work(b, c, AttentionShape(heads, 1, 576, 512, 576), 1.0 if kv_dtype == "fp8" else 2.0)
    else:
        work = prefill_work(b, c, AttentionShape(heads, heads, 192, 128, 320))
    op = "mla_decode" if decode else "mla_prefill"
    return check(raws, work, gpu, system, op, "bf16", f"{op} {heads} heads, kv {kv_dtype}", heads == shape.heads)


def bmm_source(system: str, gpu: Gpu, preferred: str | None) -> Source | None:
    """MLA's absorbed products (query into the latent space, latent back to values), both, over (tokens, heads)."""
    raws: list[Raw] = []
    for backend in tables.backends(system, "mla_bmm", "mla_bmm_perf", preferred):
        path = tables.versions(system, "mla_bmm", backend, "mla_bmm_perf")[0]
        halves = []
        for op in ("mla_gen_pre", "mla_gen_post"):
            where = (("op_name", op), ("bmm_dtype", "bfloat16"))
            rows = tables.read(path, ("num_tokens", "num_heads", "latency"), where)
            if len(rows["latency"]):
                halves.append(tables.pivot(rows, ("num_tokens", "num_heads"), "latency"))
        if len(halves) == 2:
            (axes, first), (other_axes, second) = halves
            both = first + align(axes, other_axes, second)
            raws.append(Raw(backend, axes, both * MILLI))
    if not raws:
        return None
    tokens, heads = _mesh(raws[0].axes)
    work = bmm_work(tokens, heads)
    return check(raws, work, gpu, system, "gemm", "bf16", "MLA absorbed products")


# --- experts --------------------------------------------------------------------------------------------------------
SHAPE_COLUMNS = ("hidden_size", "inter_size", "topk", "num_experts", "moe_tp_size", "moe_ep_size")


def exponent_of(distribution: str) -> float:
    """Zipf exponent of a table's expert popularity: `balanced`/`uniform` 0, `power_law_1.01` 1.01."""
    return float(distribution.rsplit("_", 1)[1]) if distribution.startswith("power_law") else 0.0


def moe_rows(system: str, backend: str, file: str, dtype: str, distribution: str) -> dict[str, Any]:
    """Rows of all versions of a back end, newest first; a shape is taken from the newest file that has it."""
    columns = (*SHAPE_COLUMNS, "num_tokens", "latency")
    merged: dict[str, list[Any]] = {c: [] for c in columns}
    seen: set[tuple[int, ...]] = set()
    for path in tables.versions(system, "moe", backend, file):
        rows = tables.read(path, columns, (("moe_dtype", TABLE_DTYPE[dtype]), ("distribution", distribution)))
        if not len(rows["latency"]):
            continue
        keys = np.stack([rows[c].astype(np.int64) for c in SHAPE_COLUMNS], axis=1)
        unique, inverse = np.unique(keys, axis=0, return_inverse=True)
        fresh = np.array([tuple(k.tolist()) not in seen for k in unique])
        seen.update(tuple(k.tolist()) for k in unique)
        keep = fresh[inverse.ravel()]
        for c in columns:
            merged[c].append(rows[c][keep])
    return {c: np.concatenate(v) if v else np.zeros(0) for c, v in merged.items()}


def _moe_distance(shapes: Floats, shape: MoeShape) -> Floats:
    want = np.array(
        [shape.hidden, shape.inter, shape.top_k, shape.experts, shape.moe_tp, shape.moe_ep], dtype=np.float64
    )
    weight = np.array([1.0, 1.0, 1.0, 0.7, 1.0, 1.0])
    gap = np.abs(np.log(shapes / want)) @ weight
    local = np.abs(np.log((shapes[:, 1] / shapes[:, 4]) / (shape.inter / shape.moe_tp)))
    return np.asarray(gap + local)


def moe_source(
    system: str,
    gpu: Gpu,
    shape: MoeShape,
    dtype: str,
    distribution: str,
    preferred: str | None,
    dispatched: str | None,
) -> Source | None:
    """Expert GEMMs over the tokens that enter the group.

    `dispatched` None: every rank sees all tokens (tensor parallel, or expert parallel closed by an all-reduce): the
    back end's own fused table. `decode`/`prefill`: each rank receives its rows by all-to-all: SGLang's DeepEP tables
    where they have the shape, else TensorRT-LLM's; vLLM's and SGLang's fused tables pad for rows of other ranks there
    (up to 10x more time). These are different kernels, so one is no check on another.
    """
    places: list[tuple[str, str]] = []
    if dispatched:
        wide = "wideep_generation_moe_perf" if dispatched == "decode" else "wideep_context_moe_perf"
        places = [("sglang", wide), ("trtllm", "moe_perf")]
    places += [
        (b, "moe_perf")
        for b in tables.backends(system, "moe", "moe_perf", preferred)
        if not dispatched or b != "trtllm"
    ]
    exact: list[Raw] = []
    nearest: tuple[float, Raw, MoeShape] | None = None
    for backend, file in places:
        if dispatched and exact:
            break
        wanted = distribution
        if file.startswith("wideep") and distribution == "balanced":
            wanted = "uniform"
        rows = moe_rows(system, backend, file, dtype, wanted)
        if not len(rows["latency"]):
            continue
        keys = np.unique(np.stack([rows[c].astype(np.float64) for c in SHAPE_COLUMNS], axis=1), axis=0)
        distance = _moe_distance(keys, shape)
        best = int(np.argmin(distance))
        keep = np.all(np.stack([rows[c] == v for c, v in zip(SHAPE_COLUMNS, keys[best], strict=True)]), axis=0)
        axes, grid = tables.pivot({c: rows[c][keep] for c in ("num_tokens", "latency")}, ("num_tokens",), "latency")
        raw = Raw(backend, axes, grid * MILLI)
        if distance[best] < 1e-9:
            exact.append(raw)
        elif nearest is None or distance[best] < nearest[0] - 1e-9:
            found = MoeShape(*(int(v) for v in keys[best]))
            nearest = (float(distance[best]), raw, found)
    width = f"{shape.hidden}x{shape.inter}, {shape.top_k} of {shape.experts}"
    name = f"experts {width}, tp {shape.moe_tp} ep {shape.moe_ep} {dtype}"
    if exact:
        work = moe_work(exact[0].axes[0], shape, dtype, exponent_of(distribution))
        return check(exact, work, gpu, system, "moe", dtype, name)
    if nearest is None or nearest[0] > 3.0:
        return None
    _, raw, found = nearest
    work = moe_work(raw.axes[0], found, dtype, exponent_of(distribution))
    source = check([raw], work, gpu, system, "moe", dtype, name, exact=False)
    per_expert = found.top_k / found.experts * shape.experts / shape.top_k
    axis = (source.grid.axes[0] * per_expert,)
    like = f"{found.hidden}x{found.inter}, {found.top_k} of {found.experts}, tp {found.moe_tp} ep {found.moe_ep}"
    note = f"{name}: not measured, efficiency of {like} ({raw.backend}) at equal rows per expert"
    return Source(Grid(axis, source.grid.efficiency, source.grid.replaced), raw.backend, False, note)
