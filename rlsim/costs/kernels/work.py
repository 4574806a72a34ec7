"""Work of each kernel (FLOPs, bytes, parallel tiles) and the floor that no time may undercut.

`floor = max(FLOPs / dense peak, bytes / HBM bandwidth)`, with bytes = what must cross HBM once: weights and KV
cache always, activations in and out once.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from rlsim.costs.kernels.tables import Floats

ELEMENT_BYTES: Mapping[str, float] = {
    "bf16": 2.0,
    "fp16": 2.0,
    "fp8": 1.0,
    "fp8_block": 1.0,
    "fp4": 0.5,
    "int4": 0.5,
    "mxfp4": 0.53,
}
COMPUTE_DTYPE: Mapping[str, str] = {"fp16": "bf16", "fp8_block": "fp8", "int4": "bf16", "mxfp4": "bf16"}
TILE = 128


class Gpu(Protocol):
    """What a kernel cost needs of a GPU; `rlsim.catalog.GpuSpec` has it."""

    @property
    def name(self) -> str: ...
    @property
    def peak_flops(self) -> Mapping[str, float]: ...
    @property
    def hbm_bandwidth(self) -> float: ...
    @property
    def nvlink_bandwidth(self) -> float: ...
    @property
    def nic_bandwidth(self) -> float: ...
    @property
    def nvlink_domain(self) -> int: ...
    @property
    def kernel_system(self) -> str | None: ...
    @property
    def scaled_from(self) -> str | None: ...


def peak(gpu: Gpu, dtype: str) -> float:
    """Dense peak in FLOP/s; a format the GPU has no units for runs at the bf16 rate (weights are unpacked first)."""
    rates = gpu.peak_flops
    return float(rates.get(COMPUTE_DTYPE.get(dtype, dtype), rates["bf16"]))


@dataclass(frozen=True)
class Work:
    """FLOPs, HBM bytes and independent output tiles of a kernel call; arrays of one shape."""

    flops: Floats
    bytes: Floats
    tiles: Floats

    def floor(self, gpu: Gpu, dtype: str) -> Floats:
        """Seconds below which the call cannot end on this GPU."""
        return np.maximum(self.flops / peak(gpu, dtype), self.bytes / gpu.hbm_bandwidth)


def _f(x: Any) -> Floats:
    return np.asarray(x, dtype=np.float64)


def gemm_work(m: Any, n: Any, k: Any, dtype: str) -> Work:
    """[m, k] x [k, n]: `2mnk` FLOPs; inputs in `dtype`, output in bf16."""
    m, n, k = _f(m), _f(n), _f(k)
    size = ELEMENT_BYTES[dtype]
    activation = max(1.0, size)
    return Work(2 * m * n * k, size * n * k + activation * m * k + 2 * m * n, np.ceil(m / TILE) * np.ceil(n / TILE))


def bmm_work(tokens: Any, heads: Any, nope: int = 128, latent: int = 512) -> Work:
    """MLA's two absorbed products of a decode step: per head [t, nope] x [nope, latent] and [t, latent] x
    [latent, nope].
    """
    t, h = _f(tokens), _f(heads)
    return Work(
        4 * t * h * nope * latent, 4 * h * nope * latent + 4 * t * h * (nope + latent), 2 * h * np.ceil(t / TILE) * 2
    )


def prefill_work(batch: Any, length: Any, shape: AttentionShape) -> Work:
    """`batch` sequences of `length` new tokens, causal, each token seeing at most `window` of them.

    Pairs of a sequence: `s(s+1)/2`, or `w·s - w(w-1)/2` for s > w. FLOPs `2·heads·(d_qk + d_v)` per pair.
    """
    b, s = _f(batch), _f(length)
    w = np.minimum(s, shape.window) if shape.window else s
    pairs = w * (w + 1) / 2 + (s - w) * w
    flops = 2 * b * shape.heads * (shape.qk_dim + shape.v_dim) * pairs
    row = 2.0 * (shape.heads * (shape.qk_dim + shape.v_dim) + shape.kv_heads * (shape.qk_dim + shape.v_dim))
    return Work(flops, b * s * row, b * shape.heads * np.ceil(s / TILE))


def decode_work(batch: Any, context: Any, shape: AttentionShape, kv_bytes: float) -> Work:
    """One new token for each of `batch` sequences with `context` cached tokens: K and V read once."""
    b, c = _f(batch), _f(context)
    c = np.minimum(c, shape.window) if shape.window else c
    flops = 2 * b * shape.heads * (shape.qk_dim + shape.v_dim) * c
    cache = b * c * shape.kv_heads * shape.cache_dim * kv_bytes
    return Work(
        flops,
        cache + 2 * b * shape.heads * (shape.qk_dim + shape.v_dim),
        b * shape.kv_heads * np.ceil(c / TILE),
    )


@dataclass(frozen=True)
class AttentionShape:
    """Heads of one rank. `cache_dim` = elements cached per token and KV head (GQA: d_k + d_v, absorbed MLA:
    r_kv + d_rope).
    """

    heads: int
    kv_heads: int
    qk_dim: int
    v_dim: int
    cache_dim: int
    window: int = 0


def zipf_touched(tokens: Any, experts: int, top_k: int, exponent: float) -> Floats:
    """Experts that at least one token reaches when popularity falls as rank^-exponent (0: uniform,
    `E(1-(1-k/E)^t)`).
    """
    rank = np.arange(1, experts + 1, dtype=np.float64) ** -exponent
    chance = np.minimum(top_k * rank / rank.sum(), 1.0)
    t = _f(tokens)[..., None]
    return np.asarray((1 - (1 - chance) ** t).sum(axis=-1))


@dataclass(frozen=True)
class MoeShape:
    """Routed experts of a layer as sharded over one expert group. `gated`: three matrices an expert."""

    hidden: int
    inter: int
    top_k: int
    experts: int
    moe_tp: int = 1
    moe_ep: int = 1

    @property
    def expert_elements(self) -> float:
        """Weight elements of one expert on one rank."""
        return 3.0 * self.hidden * self.inter / self.moe_tp


def moe_work(tokens: Any, shape: MoeShape, dtype: str, exponent: float) -> Work:
    """Expert GEMMs of the mean expert-parallel rank when `tokens` enter the whole group: the busiest rank has
    no less.
    """
    t = _f(tokens)
    rows = t * shape.top_k / shape.moe_ep
    touched = zipf_touched(t, shape.experts, shape.top_k, exponent) / shape.moe_ep
    weights = touched * shape.expert_elements * ELEMENT_BYTES[dtype]
    local = max(1.0, shape.experts / shape.moe_ep)
    tiles = np.maximum(np.minimum(touched, local), np.ceil(rows / TILE)) * np.ceil(
        2 * shape.inter / shape.moe_tp / TILE
    )
    return Work(2 * rows * shape.expert_elements, weights + t / shape.moe_ep * shape.hidden * 4.0, tiles)
