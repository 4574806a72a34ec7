"""One iteration of a rollout engine, op by op: decode of `b` sequences per attention rank, and prefill of a
chunk.

Per layer of one rank (T tensor-parallel attention ranks, H hidden): norms, qkv [b, H] x [H, (nh + 2·nkv)·d /
T], rotary and cache write, attention over the cache, o, all-reduce; then gate/up, activation, down, all-reduce,
or router and experts. MLA decodes in the absorbed form and prefills in the expanded one. Head: LM head over
V/T, gather of the logits, sampling.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

import numpy as np

from rlsim.architecture import ModelSpec
from rlsim.costs.kernels import EXPERT_POPULARITY, Kernels, MoeShape
from rlsim.costs.kernels.kernels import Provenance
from rlsim.costs.kernels.links import NIC_SHARE
from rlsim.costs.kernels.tables import Floats
from rlsim.dtypes import BYTES

ACTIVATION_BYTES = 2.0
SAMPLING_PASSES = 14.0
"""Bytes per logit: bf16 -> fp32 conversion (6), and sampling in fp32 (about two passes)."""
LOGPROB_PASSES = 8.0
"""Bytes per logit more when log-probs are returned: log-softmax in fp32, read and written once."""
P2P_LATENCY = 15e-6
"""Send and receive of a micro-batch between pipeline stages, beside its bytes."""


Phase = Literal["decode", "prefill"]


@dataclass(frozen=True)
class EngineShape:
    """Geometry of one engine; `domain`: GPUs behind one NVLink switch; `head_tp`: ranks that split the LM head, by
    default the attention-TP group's.
    """

    model: ModelSpec
    attn_tp: int
    attn_dp: int
    pp: int
    moe_tp: int
    moe_ep: int
    dtype: str
    kv_dtype: str
    domain: int
    return_logprobs: bool = False
    popularity: str = EXPERT_POPULARITY
    head_tp: int | None = None

    @property
    def head_ranks(self) -> int:
        return self.attn_tp if self.head_tp is None else self.head_tp

    @property
    def shares_head(self) -> bool:
        """Attention-DP ranks split one LM head between them, so each sees the rows of all."""
        return self.head_ranks > self.attn_tp

    @property
    def heads(self) -> int:
        return -(-self.model.attention.heads // self.attn_tp)

    @property
    def kv_heads(self) -> int:
        return max(1, self.model.attention.kv_heads // self.attn_tp)

    @property
    def dispatched(self) -> bool:
        """Tokens travel to the experts' ranks: attention is data parallel."""
        return self.attn_dp > 1

    @property
    def moe_shape(self) -> MoeShape | None:
        e = self.model.experts
        if e is None:
            return None
        return MoeShape(self.model.hidden, e.intermediate, e.top_k, e.count, self.moe_tp, self.moe_ep)


@dataclass
class Tally:
    """Seconds by op, broadcast to one shape, with the provenance of each."""

    shape: tuple[int, ...]
    parts: dict[str, Floats] = field(default_factory=dict)
    sources: dict[Provenance, Floats] = field(default_factory=dict)

    def add(self, name: str, seconds: Floats, source: Provenance, times: float = 1.0) -> None:
        value = np.broadcast_to(np.asarray(seconds, dtype=np.float64) * times, self.shape)
        self.parts[name] = self.parts.get(name, np.zeros(self.shape)) + value
        self.sources[source] = self.sources.get(source, np.zeros(self.shape)) + value

    @property
    def total(self) -> Floats:
        return np.asarray(np.sum([np.zeros(self.shape), *self.parts.values()], axis=0))


def _column(values: Floats, shape: tuple[int, ...]) -> Floats:
    return values[:, None] if len(shape) == 2 else values


def _gemm(k: Kernels, tally: Tally, name: str, m: Floats, n: int, width: int, dtype: str, times: float) -> None:
    """A projection, with the quantisation of its input where weights are fp8."""
    seconds, source = k.gemm_seconds(m, n, width, dtype)
    tally.add(name, _column(seconds, tally.shape), source, times)
    if dtype.startswith("fp8"):
        tally.add("quantise", _column(k.elementwise_seconds(m * width * 3.0), tally.shape), "roofline", times)


def _stream(k: Kernels, tally: Tally, size: Floats, launches: float, times: float) -> None:
    tally.add("elementwise", _column(k.elementwise_seconds(size, launches), tally.shape), "roofline", times)


def _all_reduce(k: Kernels, tally: Tally, s: EngineShape, m: Floats, gpus: int, times: float) -> None:
    if gpus > 1:
        seconds, source = k.all_reduce_seconds(m * s.model.hidden * ACTIVATION_BYTES, gpus, s.domain)
        tally.add("all-reduce", _column(seconds, tally.shape), source, times)


def token_ops(k: Kernels, s: EngineShape, m: Floats, tally: Tally, decode: bool) -> None:
    """Everything but attention over the cache, the routed experts and the head, for `m` tokens of one rank, all
    layers.
    """
    model, a = s.model, s.model.attention
    layers, h = model.num_layers, model.hidden
    dense = layers - model.moe_layers
    _stream(k, tally, m * h * 4 * ACTIVATION_BYTES * 2, 2, layers)
    if a.kind == "mla":
        nope, rope = a.qk_nope_dim, a.qk_rope_dim
        rank_q = a.q_lora_rank or 0
        _gemm(k, tally, "qkv", m, rank_q + a.kv_lora_rank + rope, h, s.dtype, layers)
        _gemm(k, tally, "qkv", m, s.heads * (nope + rope), rank_q or h, s.dtype, layers)
        if decode:
            seconds, source = k.mla_absorb_seconds(m, s.heads)
            tally.add("qkv", _column(seconds, tally.shape), source, layers)
        else:
            _gemm(k, tally, "qkv", m, s.heads * (nope + a.v_head_dim), a.kv_lora_rank, s.dtype, layers)
        _stream(k, tally, m * (rank_q + a.kv_lora_rank + s.heads * rope) * 4.0, 2, layers)
        _gemm(k, tally, "o", m, h, s.heads * a.v_head_dim, s.dtype, layers)
    else:
        _gemm(k, tally, "qkv", m, (s.heads + 2 * s.kv_heads) * a.head_dim, h, s.dtype, layers)
        _stream(k, tally, m * (s.heads + 2 * s.kv_heads) * a.head_dim * 4.0, 2 if a.qk_norm else 1, layers)
        _gemm(k, tally, "o", m, h, s.heads * a.head_dim, s.dtype, layers)
    _all_reduce(k, tally, s, m, s.attn_tp, layers)
    if dense:
        _mlp(k, s, m, tally, model.intermediate, dense)
        _all_reduce(k, tally, s, m, s.attn_tp, dense)
    e = model.experts
    if e is not None and model.moe_layers:
        seconds, source = k.gemm_seconds(m, e.count, h, "bf16")
        tally.add("router", _column(seconds, tally.shape), source, model.moe_layers)
        _stream(k, tally, m * e.count * 8.0, 2, model.moe_layers)
        if e.shared_intermediate:
            _mlp(k, s, m, tally, e.shared_intermediate, model.moe_layers)
            if s.dispatched:
                _all_reduce(k, tally, s, m, s.attn_tp, model.moe_layers)


def _mlp(k: Kernels, s: EngineShape, m: Floats, tally: Tally, width: int, times: float) -> None:
    inner = -(-width // s.attn_tp)
    _gemm(k, tally, "mlp", m, 2 * inner, s.model.hidden, s.dtype, times)
    _stream(k, tally, m * inner * 3 * ACTIVATION_BYTES, 1, times)
    _gemm(k, tally, "mlp", m, s.model.hidden, inner, s.dtype, times)


def head_ops(k: Kernels, s: EngineShape, b: Floats, tally: Tally) -> None:
    """Embedding, final norm, LM head (bf16), logits gathered over the tensor-parallel ranks, sampling.

    A head that attention-DP ranks share is not here but in `shared_head_ops`; each rank samples its own rows.
    """
    vocab, h = s.model.vocab, s.model.hidden
    _stream(k, tally, b * h * 6 * ACTIVATION_BYTES, 2, 1)
    _all_reduce(k, tally, s, b, s.attn_tp, 1)
    if not s.shares_head:
        _head(k, s, b, tally)
    passes = SAMPLING_PASSES + (LOGPROB_PASSES if s.return_logprobs else 0.0)
    seconds = k.elementwise_seconds(b * vocab * passes, 4)
    tally.add("sampling", _column(seconds, tally.shape), "roofline")


def shared_head_ops(k: Kernels, s: EngineShape, total: Floats, tally: Tally) -> None:
    """LM head split over all ranks of a stage under attention-DP (SGLang without `--enable-dp-lm-head`).

    Hidden states of all ranks gathered, `total·H·2` bytes; [total, H] x [H, V/ranks]; logits gathered, `total·V·2`.
    """
    if not s.shares_head:
        return
    size = total * s.model.hidden * ACTIVATION_BYTES
    seconds, source = k.nccl_seconds("all_gather", size, s.head_ranks, s.domain)
    tally.add("lm head", _column(seconds, tally.shape), source)
    _head(k, s, total, tally)


def _head(k: Kernels, s: EngineShape, rows: Floats, tally: Tally) -> None:
    """[rows, H] x [H, V/ranks] in bf16, and the gather of rows·V logits."""
    vocab, ranks = s.model.vocab, s.head_ranks
    seconds, source = k.gemm_seconds(rows, -(-vocab // ranks), s.model.hidden, "bf16")
    tally.add("lm head", _column(seconds, tally.shape), source)
    if ranks > 1:
        seconds, source = k.nccl_seconds("all_gather", rows * vocab * ACTIVATION_BYTES, ranks, s.domain)
        tally.add("lm head", _column(seconds, tally.shape), source)


def expert_ops(k: Kernels, s: EngineShape, total: Floats, tally: Tally, decode: bool) -> None:
    """Routed experts of all MoE layers when `total` tokens enter the engine.

    Where nothing is dispatched every rank sees all tokens, and the partial sums are reduced. Dispatched without expert
    parallelism, the moe_tp GPUs gather all tokens before, and scatter the sums after.
    """
    shape, layers = s.moe_shape, s.model.moe_layers
    if shape is None or not layers:
        return
    phase: Phase | None = _phase(decode) if s.dispatched and shape.moe_ep > 1 else None
    seconds, source = k.moe_seconds(total, shape, s.dtype, phase, s.popularity)
    tally.add("experts", _column(seconds, tally.shape), source, layers)
    if not s.dispatched:
        _all_reduce(k, tally, s, total, shape.moe_tp * shape.moe_ep, layers)
    elif shape.moe_ep == 1:
        _gather_and_scatter(k, s, total, shape.moe_tp, tally)


def dispatch_ops(k: Kernels, s: EngineShape, tokens: Floats, tally: Tally, decode: bool) -> None:
    """All-to-all of all MoE layers, paced by the attention rank with the most tokens, which has `tokens`.

    Each of the moe_tp groups of moe_ep GPUs takes in all tokens of the engine: tokens·moe_tp/attn_tp from each GPU of
    that rank. The moe_tp GPUs that hold slices of the same experts gather their tokens before, and scatter the sums
    after.
    """
    shape, layers = s.moe_shape, s.model.moe_layers
    if shape is None or not layers or not s.dispatched or shape.moe_ep == 1:
        return
    per_gpu = tokens * shape.moe_tp / s.attn_tp
    wire = 1.0 if s.dtype.startswith("fp8") else 2.0
    seconds, source = k.all_to_all_seconds(per_gpu, shape, _phase(decode), max(1, s.domain // shape.moe_tp), wire)
    tally.add("all-to-all", _column(seconds, tally.shape), source, layers)
    _gather_and_scatter(k, s, per_gpu, shape.moe_tp, tally)


def _phase(decode: bool) -> Phase:
    return "decode" if decode else "prefill"


def _gather_and_scatter(k: Kernels, s: EngineShape, tokens: Floats, gpus: int, tally: Tally) -> None:
    """All-gather and reduce-scatter of `tokens` rows of H over `gpus` neighbours, in all MoE layers."""
    if gpus == 1:
        return
    for op in ("all_gather", "reduce_scatter"):
        seconds, source = k.nccl_seconds(op, tokens * s.model.hidden * ACTIVATION_BYTES, gpus, s.domain)
        tally.add("gather and scatter", _column(seconds, tally.shape), source, s.model.moe_layers)


def attention_decode(k: Kernels, s: EngineShape, b: Floats, c: Floats, tally: Tally) -> None:
    """Attention over the cache for every (batch, mean context); window layers see at most their window."""
    a = s.model.attention
    batch, context = b[:, None], c[None, :]
    for window, count in s.model.windows:
        if a.kind == "mla":
            seconds, source = k.mla_decode_seconds(batch, context, s.heads, a.kv_lora_rank, a.qk_rope_dim, s.kv_dtype)
        else:
            seconds, source = k.attention_decode_seconds(
                batch, context, s.heads, s.kv_heads, a.head_dim, s.kv_dtype, window
            )
        tally.add("attention", seconds, source, count)


def decode_rank(k: Kernels, s: EngineShape, b: Floats, c: Floats) -> Tally:
    """[len(b), len(c)] seconds of one attention rank's own part of a decode iteration (all pipeline stages)."""
    tally = Tally((len(b), len(c)))
    token_ops(k, s, b, tally, decode=True)
    attention_decode(k, s, b, c, tally)
    head_ops(k, s, b, tally)
    if not s.dispatched:
        expert_ops(k, s, b, tally, decode=True)
    if s.pp > 1:
        tally.add("pipeline hops", pipeline_hops(k, s, b)[:, None], "roofline")
    return tally


def pipeline_hops(k: Kernels, s: EngineShape, b: Floats) -> Floats:
    """Seconds of one pass of `b` sequences from stage to stage and back to the first: pp hops of b·H rows.

    Ranks stand pp·attn_tp·attn_dp in a row. A stage that fills a domain: every hop leaves it, over each rank's own NIC;
    smaller ones: as many hops leave a domain as the engine has domains.
    """
    width = s.attn_tp * s.attn_dp
    domains = -(-s.pp * width // s.domain)
    far = 0 if domains == 1 else min(s.pp, domains)
    size = b * s.model.hidden * ACTIVATION_BYTES
    near_rate, far_rate = k.gpu.nvlink_bandwidth, k.gpu.nic_bandwidth * NIC_SHARE
    return np.asarray(s.pp * P2P_LATENCY + size * ((s.pp - far) / near_rate + far / far_rate))


def decode_joint(k: Kernels, s: EngineShape, total: Floats) -> Tally:
    """Seconds of the part that all attention ranks run together, against the engine's batch."""
    tally = Tally((len(total),))
    if s.dispatched:
        expert_ops(k, s, total, tally, decode=True)
        dispatch_ops(k, s, total / s.attn_dp, tally, decode=True)
        shared_head_ops(k, s, total, tally)
    return tally


def prefill_chunk(k: Kernels, s: EngineShape, n: Floats) -> Tally:
    """Seconds of a chunk of `n` prompt tokens on one rank without attention over earlier context.

    With data-parallel attention the experts are in `prefill_joint`; what takes this rank's tokens to them is here.
    """
    tally = Tally((len(n),))
    token_ops(k, s, n, tally, decode=False)
    if s.dispatched:
        dispatch_ops(k, s, n, tally, decode=False)
    else:
        expert_ops(k, s, n, tally, decode=False)
    a = s.model.attention
    for window, count in s.model.windows:
        if window is not None and a.kind == "gqa":
            seconds, source = k.attention_prefill_seconds(n, s.heads, s.kv_heads, a.head_dim, window)
            tally.add("attention", seconds, source, count)
    return tally


def prefill_joint(k: Kernels, s: EngineShape, total: Floats) -> Tally:
    """Seconds of the experts for the prompt tokens of all attention ranks of an engine, weights read included."""
    tally = Tally((len(total),))
    if s.dispatched:
        expert_ops(k, s, total, tally, decode=False)
    return tally


def prefill_head(k: Kernels, s: EngineShape) -> float:
    """Seconds of the head in an iteration without decodes: one sampled token a rank, whose prompt is complete.

    More rows cost hardly more, as reading the head's weights does not depend on them.
    """
    one = Tally((1,))
    head_ops(k, s, np.ones(1), one)
    shared_head_ops(k, s, np.full(1, float(s.attn_dp)), one)
    return float(one.total[0])


def prefill_pair(k: Kernels, s: EngineShape, length: float = 8192.0) -> tuple[float, Provenance]:
    """Seconds of attention per (new token, token of its context), over the layers that see the whole context."""
    a = s.model.attention
    full = sum(count for window, count in s.model.windows if window is None)
    pairs = length * (length + 1) / 2
    at = np.asarray(length)
    if a.kind == "mla":
        seconds, source = k.mla_prefill_seconds(at, s.heads, a.qk_nope_dim + a.qk_rope_dim, a.v_head_dim)
    else:
        seconds, source = k.attention_prefill_seconds(at, s.heads, s.kv_heads, a.head_dim)
    return float(seconds) / pairs * full, source


def weight_floor(k: Kernels, s: EngineShape) -> float:
    """Seconds that one rank's dense weights take to cross HBM once: no decode iteration is quicker."""
    from rlsim.model import matmul_weights_per_token

    if s.model.experts is not None:
        return 0.0
    return matmul_weights_per_token(s.model) / s.attn_tp * BYTES[s.dtype] / k.gpu.hbm_bandwidth
