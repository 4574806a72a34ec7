"""Seconds of one kernel call on one GPU, from measured tables, held against the physical floor."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import Any, Literal

import numpy as np

from rlsim.costs.kernels import links, ops
from rlsim.costs.kernels.grid import Grid
from rlsim.costs.kernels.ops import Source
from rlsim.costs.kernels.reference import reference_for
from rlsim.costs.kernels.roofline import fit_for
from rlsim.costs.kernels.tables import Floats, data_root
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

Provenance = Literal["measured", "scaled", "roofline"]
Timed = tuple[Floats, Provenance]
RANK: dict[str, int] = {"measured": 0, "scaled": 1, "roofline": 2}
EXPERT_POPULARITY = "power_law_1.01"
"""Routing in RL is uneven. The tables have even and power-law expert loads; 1.01 is the milder of the two
measured by all back ends and between the loads with and without expert replication that DeepSeek-V3
deployments report.
"""
ELEMENTWISE_SHARE = 0.80
ELEMENTWISE_LAUNCH = 3e-6
"""Norms, rotary, residual, activation: streaming kernels reach about 80% of HBM and cost some 3 µs at least."""


@dataclass(frozen=True)
class Priced:
    """Seconds of one call and where they come from."""

    seconds: float
    source: Provenance


def worst(*sources: Provenance) -> Provenance:
    """The least trustworthy of several provenances."""
    return max(sources, key=lambda s: RANK[s])


class Kernels:
    """Kernel times of one GPU under one engine's kernels (`vllm`, `sglang`, `trtllm`; None: PyTorch's, for training).

    Tables are read when first asked for. `replacements` lists what was not taken as measured, and why.
    """

    def __init__(self, gpu: Gpu, engine: str | None = None, roofline_only: bool = False) -> None:
        self.gpu = gpu
        self.engine = engine or "vllm"
        self.reference, self.system, self.own_tables = reference_for(gpu)
        self.use_tables = self.own_tables and not roofline_only and data_root() is not None
        self.same_rates = (
            dict(gpu.peak_flops) == dict(self.reference.peak_flops)
            and gpu.hbm_bandwidth == self.reference.hbm_bandwidth
        )
        self.covered = gpu.kernel_system is not None
        self._notes: dict[str, None] = {}
        self._sources: dict[Any, Source | None] = {}
        self._curves: dict[Any, tuple[Floats, Floats, Floats, bool]] = {}

    @property
    def replacements(self) -> tuple[str, ...]:
        """What was not taken as measured, in the order it was met."""
        return tuple(self._notes)

    # --- shared machinery -------------------------------------------------------------------------------------------
    def _source(self, key: Any, load: Callable[[], Source | None]) -> Source | None:
        if not self.use_tables:
            return None
        if key not in self._sources:
            source = load()
            if source is not None and source.note:
                self._notes[source.note] = None
            if source is None:
                self._notes[f"{key[0]} {key[1:]}: no table on {self.system}, scaled roofline"] = None
            self._sources[key] = source
        return self._sources[key]

    def _timed(self, source: Source | None, coordinates: tuple[Any, ...], work: Work, op: str, dtype: str) -> Timed:
        """`floor / efficiency` at the coordinates, or the scaled roofline where there is no table."""
        floor = work.floor(self.gpu, dtype)
        if source is None:
            system = self.system if self.covered else None
            return fit_for(system, op, dtype).seconds(work, self.gpu, dtype), "roofline"
        efficiency, inside, replaced = source.grid.at(*coordinates)
        seconds = np.maximum(floor / efficiency, floor)
        measured = source.exact and self.same_rates and self.covered and float(inside.mean()) >= 0.5
        provenance: Provenance = "measured" if measured else "scaled"
        if replaced.size and bool(replaced.all()):
            provenance = "roofline"
        return seconds, provenance

    def _fp8(self, dtype: str, always: bool = False) -> str:
        """The table of an FP8 format: "fp8" is block-scaled, "fp8_tensor" has one scale per tensor (or per row)."""
        if dtype == "fp8_tensor":
            return "fp8"
        return "fp8_block" if dtype == "fp8" and (always or self.use_tables) else dtype

    # --- GEMM -------------------------------------------------------------------------------------------------------
    def gemm_seconds(self, m: Any, n: int, k: int, dtype: str = "bf16") -> Timed:
        """[m, k] x [k, n] for an array of m. The shard's own n and k count: its efficiency is that of its shape."""
        m = np.asarray(m, dtype=np.float64)
        dtype = self._fp8(dtype)
        source = self._source(("gemm", dtype), lambda: ops.gemm_source(self.system, self.reference, dtype, self.engine))
        if source is None and dtype.startswith("fp8") and "fp8" not in self.gpu.peak_flops:
            dtype = "bf16"
            source = self._source(
                ("gemm", dtype), lambda: ops.gemm_source(self.system, self.reference, dtype, self.engine)
            )
        if source is None:
            return self._timed(None, (), gemm_work(m, n, k, dtype), "gemm", dtype)
        key = (n, k, dtype)
        if key not in self._curves:
            knots = source.grid.axes[0]
            efficiency, inside, replaced = source.grid.at(knots, float(n), float(k))
            self._curves[key] = (
                np.log(knots),
                np.log(efficiency),
                replaced.astype(np.float64),
                bool(inside.all()),
            )
        log_m, log_e, bad, inside_nk = self._curves[key]
        x = np.log(np.maximum(m, 1e-9))
        floor = gemm_work(m, n, k, dtype).floor(self.gpu, dtype)
        seconds = np.maximum(floor / np.exp(np.interp(x, log_m, log_e)), floor)
        measured = inside_nk and self.same_rates and self.covered
        if x.size and (x.max() > log_m[-1] + 1e-9 or x.min() < log_m[0] - 1e-9):
            measured = False
        provenance: Provenance = "measured" if measured else "scaled"
        if x.size and float(np.interp(x, log_m, bad).min()) >= 0.5:
            provenance = "roofline"
        return np.where(m > 0, seconds, 0.0), provenance

    def gemm(self, m: float, n: int, k: int, dtype: str = "bf16") -> Priced:
        """One [m, k] x [k, n]."""
        seconds, source = self.gemm_seconds(m, n, k, dtype)
        return Priced(float(seconds), source)

    # --- attention --------------------------------------------------------------------------------------------------
    def attention_prefill_seconds(
        self,
        lengths: Any,
        heads: int,
        kv_heads: int,
        head_dim: int,
        window: int | None = None,
        batch: Any = 1.0,
    ) -> Timed:
        """Forward of causal attention, seconds per sequence of each length, when `batch` such sequences run together.

        In a pack of T tokens take `batch = T / length`: what fills the chip is the pack, not the sequence.
        """
        shape = AttentionShape(heads, kv_heads, head_dim, head_dim, 2 * head_dim, window or 0)
        return self._prefill(("attention prefill", shape), shape, lengths, batch, "attention_prefill", False)

    def attention_prefill(
        self,
        tokens: float,
        length: float,
        heads: int,
        kv_heads: int,
        head_dim: int,
        window: int | None = None,
    ) -> Priced:
        """All `tokens / length` sequences of a packed forward."""
        batch = max(1.0, tokens / length)
        each, source = self.attention_prefill_seconds(length, heads, kv_heads, head_dim, window, batch)
        return Priced(float(each) * tokens / length, source)

    def mla_prefill_seconds(
        self, lengths: Any, heads: int, qk_dim: int = 192, v_dim: int = 128, batch: Any = 1.0
    ) -> Timed:
        """As `attention_prefill_seconds` for MLA in its expanded (not absorbed) form, core only."""
        shape = AttentionShape(heads, heads, qk_dim, v_dim, qk_dim + v_dim)
        return self._prefill(("mla prefill", shape), shape, lengths, batch, "mla_prefill", True)

    def _prefill(self, key: Any, shape: AttentionShape, lengths: Any, batch: Any, op: str, mla: bool) -> Timed:
        s = np.maximum(np.asarray(lengths, dtype=np.float64), 1.0)
        b = np.maximum(np.asarray(batch, dtype=np.float64), 1.0)
        look = ops.mla_source if mla else ops.attention_source
        source = self._source(key, lambda: look(self.system, self.reference, shape, "bf16", self.engine, False))
        seconds, provenance = self._timed(source, (b, s), prefill_work(b, s, shape), op, "bf16")
        return seconds / b, provenance

    def attention_decode_seconds(
        self,
        batch: Any,
        context: Any,
        heads: int,
        kv_heads: int,
        head_dim: int,
        kv_dtype: str = "bf16",
        window: int | None = None,
    ) -> Timed:
        """One decode step of attention for `batch` sequences with `context` cached tokens each (mean context)."""
        shape = AttentionShape(heads, kv_heads, head_dim, head_dim, 2 * head_dim, window or 0)
        return self._decode(
            ("attention decode", shape, kv_dtype), shape, batch, context, kv_dtype, "attention_decode", False
        )

    def mla_decode_seconds(
        self, batch: Any, context: Any, heads: int, kv_lora: int = 512, rope: int = 64, kv_dtype: str = "bf16"
    ) -> Timed:
        """As `attention_decode_seconds` for absorbed MLA: every head reads the same `kv_lora + rope` elements a
        token.
        """
        shape = AttentionShape(heads, 1, kv_lora + rope, kv_lora, kv_lora + rope)
        return self._decode(("mla decode", shape, kv_dtype), shape, batch, context, kv_dtype, "mla_decode", True)

    def _decode(
        self, key: Any, shape: AttentionShape, batch: Any, context: Any, kv_dtype: str, op: str, mla: bool
    ) -> Timed:
        b, c = np.broadcast_arrays(
            np.asarray(batch, dtype=np.float64), np.maximum(np.asarray(context, dtype=np.float64), 1.0)
        )
        look = ops.mla_source if mla else ops.attention_source
        source = self._source(key, lambda: look(self.system, self.reference, shape, kv_dtype, self.engine, True))
        size = 1.0 if kv_dtype == "fp8" else 2.0
        safe = np.maximum(b, 1.0)
        seconds, provenance = self._timed(source, (safe, c), decode_work(safe, c, shape, size), op, "bf16")
        return np.where(b > 0, seconds, 0.0), provenance

    def mla_absorb_seconds(self, tokens: Any, heads: int) -> Timed:
        """MLA's two absorbed products of a decode step for `heads` heads on this rank."""
        t = np.maximum(np.asarray(tokens, dtype=np.float64), 1.0)
        source = self._source(
            ("mla absorbed products",), lambda: ops.bmm_source(self.system, self.reference, self.engine)
        )
        seconds, provenance = self._timed(source, (t, float(heads)), bmm_work(t, heads), "gemm", "bf16")
        return np.where(np.asarray(tokens) > 0, seconds, 0.0), provenance

    # --- experts ----------------------------------------------------------------------------------------------------
    def moe_seconds(
        self,
        tokens: Any,
        shape: MoeShape,
        dtype: str = "bf16",
        dispatched: Literal["decode", "prefill"] | None = None,
        popularity: str = EXPERT_POPULARITY,
    ) -> Timed:
        """Expert GEMMs of the busiest rank when `tokens` (of all ranks) enter a group of moe_tp x moe_ep GPUs.

        `dispatched`: rows arrive by all-to-all, from decode or prefill kernels; None: every rank sees every token.
        """
        t = np.asarray(tokens, dtype=np.float64)
        dtype = self._fp8(dtype, always=True)
        key = ("experts", shape, dtype, popularity, dispatched)
        source = self._source(
            key,
            lambda: ops.moe_source(self.system, self.reference, shape, dtype, popularity, self.engine, dispatched),
        )
        safe = np.maximum(t, 1.0)
        work = moe_work(safe, shape, dtype, ops.exponent_of(popularity))
        seconds, provenance = self._timed(source, (safe,), work, "moe", dtype)
        return np.where(t > 0, seconds, 0.0), provenance

    def moe(
        self,
        tokens: float,
        hidden: int,
        inter: int,
        top_k: int,
        experts: int,
        moe_tp: int,
        moe_ep: int,
        dtype: str = "bf16",
    ) -> Priced:
        """Expert GEMMs of one MoE layer for `tokens` of the whole group; see `moe_seconds`."""
        shape = MoeShape(hidden, inter, top_k, experts, moe_tp, moe_ep)
        seconds, source = self.moe_seconds(tokens, shape, dtype, "prefill" if moe_ep > 1 else None)
        return Priced(float(seconds), source)

    # --- links ------------------------------------------------------------------------------------------------------
    def nccl_seconds(self, op: str, size: Any, gpus: int, domain: int | None = None) -> Timed:
        """all_gather / reduce_scatter / all_reduce / alltoall of `size` bytes (whole tensor) over `gpus` GPUs.

        Beyond one NVLink domain: inside each domain, then between them over all NICs; never tagged measured.
        """
        return self._collective(op, size, gpus, domain, custom=False)

    def all_reduce_seconds(self, size: Any, gpus: int, domain: int | None = None) -> Timed:
        """The faster of the engine's own all-reduce (graph) and NCCL's."""
        return self._collective("all_reduce", size, gpus, domain, custom=True)

    def _collective(self, op: str, size: Any, gpus: int, domain: int | None, custom: bool) -> Timed:
        s = np.asarray(size, dtype=np.float64)
        if gpus <= 1:
            return np.zeros(s.shape), "measured"
        per_node = min(domain or self.gpu.nvlink_domain, gpus)
        if per_node > 1:
            tables = [self._link_table(op, False)] + ([self._link_table(op, True)] if custom else [])
            inner_size = s * per_node / gpus if op == "alltoall" else s
            inner, source = links.in_domain(tables, op, inner_size, per_node, self.gpu, self.reference)
        else:
            inner, source = np.zeros(s.shape), "roofline"
        if gpus > per_node:
            inner = inner + links.across_nodes(op, s, gpus, per_node, self.gpu)
            source = "scaled" if source == "measured" else source
        if source == "measured" and not self.covered:
            source = "scaled"
        return np.where(s > 0, inner, 0.0), source  # type: ignore[return-value]

    def _link_table(self, op: str, custom: bool) -> dict[int, links.Curve]:
        if data_root() is None:
            return {}
        return _link_tables(self.system, op, self.engine if custom else None, custom)

    def nccl(self, op: str, size: float, gpus: int, domain: int | None = None) -> Priced:
        """One collective; see `nccl_seconds`."""
        seconds, source = self.nccl_seconds(op, size, gpus, domain)
        return Priced(float(seconds), source)

    def all_reduce(self, size: float, gpus: int, domain: int | None = None) -> Priced:
        """One all-reduce; see `all_reduce_seconds`."""
        seconds, source = self.all_reduce_seconds(size, gpus, domain)
        return Priced(float(seconds), source)

    def all_to_all_seconds(
        self,
        tokens: Any,
        shape: MoeShape,
        phase: Literal["decode", "prefill"] = "decode",
        domain: int | None = None,
        dispatch_bytes: float = 1.0,
    ) -> Timed:
        """Dispatch + combine of one MoE layer for `tokens` per rank (DeepEP: low-latency kernels in decode,
        normal in prefill).

        Other links than the reference GPU's add the difference of the floors over the share that is reached.
        """
        t = np.asarray(tokens, dtype=np.float64)
        ep = shape.moe_ep
        if ep <= 1:
            return np.zeros(t.shape), "measured"
        per_node = min(domain or self.gpu.nvlink_domain, ep)
        nodes = -(-ep // per_node)
        floor = links.all_to_all_floor(self.gpu, t, shape, phase, per_node, dispatch_bytes)
        found = None
        if data_root() is not None:
            system = self.system
            if phase == "decode":
                found = links.deepep_low_latency(system, shape.hidden, shape.top_k, shape.experts, nodes)
            else:
                found = links.deepep_normal(system, shape.hidden, shape.top_k, nodes)
        if found is None:
            fixed = links.LOW_LATENCY_FIXED if phase == "decode" else links.NORMAL_FIXED
            return np.where(t > 0, floor / links.NIC_SHARE + fixed, 0.0), "roofline"
        curve, exact = found
        seconds = curve.at(t)
        if dispatch_bytes > 1:
            seconds = seconds * (dispatch_bytes + 2) / 3
        reference = links.all_to_all_floor(self.reference, t, shape, phase, per_node, dispatch_bytes)
        seconds = seconds + (floor - reference) / links.NIC_SHARE
        exact = exact and self.covered and dispatch_bytes == 1 and ep == 8 * nodes
        exact = exact and bool(np.all(floor == reference))
        return np.where(t > 0, np.maximum(seconds, floor), 0.0), "measured" if exact else "scaled"

    # --- streaming --------------------------------------------------------------------------------------------------
    def elementwise_seconds(self, size: Any, launches: float = 1.0) -> Floats:
        """Kernels that only stream `size` bytes through HBM."""
        return (
            np.asarray(size, dtype=np.float64) / (self.gpu.hbm_bandwidth * ELEMENTWISE_SHARE)
            + launches * ELEMENTWISE_LAUNCH
        )


@cache
def _link_tables(system: str, op: str, backend: str | None, custom: bool) -> dict[int, links.Curve]:
    return links.custom_curves(system, backend) if custom else links.nccl_curves(system, op)


_KNOWN: dict[Any, Kernels] = {}


def kernels_for(gpu: Gpu, engine: str | None = None, roofline_only: bool = False) -> Kernels:
    """The `Kernels` of a GPU and engine, one object per process."""
    figures = tuple(sorted(gpu.peak_flops.items()))
    key = (
        gpu.name,
        figures,
        gpu.hbm_bandwidth,
        gpu.nvlink_bandwidth,
        gpu.nic_bandwidth,
        gpu.nvlink_domain,
        engine,
        roofline_only,
    )
    if key not in _KNOWN:
        _KNOWN[key] = Kernels(gpu, engine, roofline_only)
    return _KNOWN[key]


__all__ = ["Grid", "Kernels", "Priced", "kernels_for", "worst"]
