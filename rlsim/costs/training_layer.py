"""Compute of one layer on one rank: its GEMMs at the shard's own shapes, attention core, and streaming operations."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np

from rlsim.architecture import Layer
from rlsim.costs.kernels.work import MoeShape
from rlsim.costs.network import Provenance, Timed
from rlsim.costs.training_case import ACTIVATION, Case, Floats
from rlsim.lora import Adapted, rank_slices
from rlsim.slices import train_params

Side = Literal["column", "row", "plain"]
FULL = {"hopper": (700.0, 989.5e12), "blackwell": (1000.0, 2250e12)}
"""Power limit at which the profile's energies and efficiencies hold, and the dense bf16 peak there."""
VOLTAGE_EXPONENT = 0.5
"""Rate over power limit: 1/3 where voltage follows the clock (power = clock·voltage²), 1 where it can't fall."""
TILE = 128
"""Rows of one tile of a GEMM kernel; an expert's last tile is half empty on average."""
THIN = 128
"""Columns of a GEMM that takes hardly longer than reading its input."""
IDLE_SHARE = 0.2
"""Share of a GPU's power limit that goes to memory, links and leakage while its tensor cores work."""


@dataclass(frozen=True)
class Gemm:
    """[tokens·share, k] x [k, n] on this rank. `side`: column- or row-parallel over TP, or not split."""

    n: int
    k: int
    share: float
    side: Side
    precise: bool = False


def attention_gemms(case: Case) -> list[Gemm]:
    """Projections of one attention block: qkv and o, or MLA's latent and expanded ones.

    Beyond nkv ranks K and V heads are replicated. MLA's down-projections are not split over TP; with SP each rank does
    its own rows.
    """
    a, H, tp = case.model.attention, case.model.hidden, case.layout.tp
    heads = max(1, a.heads // tp)
    out = Gemm(H, heads * a.v_head_dim, case.rows, "row")
    if a.kind == "gqa":
        kv = max(1, a.kv_heads // tp)
        return [Gemm(heads * a.head_dim + kv * (a.head_dim + a.v_head_dim), H, case.rows, "column"), out]
    qk = heads * (a.qk_nope_dim + a.qk_rope_dim)
    latent = Gemm(a.kv_lora_rank + a.qk_rope_dim, H, case.rows_local, "plain")
    expanded = Gemm(heads * (a.qk_nope_dim + a.v_head_dim), a.kv_lora_rank, case.rows, "column")
    if a.q_lora_rank is None:
        return [Gemm(qk, H, case.rows, "column"), latent, expanded, out]
    query = [Gemm(a.q_lora_rank, H, case.rows_local, "plain"), Gemm(qk, a.q_lora_rank, case.rows, "column")]
    return [*query, latent, expanded, out]


def mlp_gemms(case: Case, intermediate: int) -> list[Gemm]:
    """Gated MLP: gate and up in one GEMM, then down."""
    width = max(1, intermediate // case.layout.tp)
    H = case.model.hidden
    return [Gemm(2 * width, H, case.rows, "column"), Gemm(H, width, case.rows, "row")]


def dense_gemms(case: Case, layer: Layer) -> list[Gemm]:
    """All GEMMs of a layer but the routed experts' and the adapters'."""
    gemms = attention_gemms(case)
    experts = case.model.experts
    if layer.moe and experts is not None:
        gemms.append(Gemm(experts.count, case.model.hidden, case.rows_local, "plain", precise=True))
        if experts.shared_intermediate:
            gemms += mlp_gemms(case, experts.shared_intermediate)
    else:
        gemms += mlp_gemms(case, case.model.intermediate)
    return gemms


def adapter_slices(case: Case, layer: Layer) -> list[Adapted]:
    """Weights of a layer of this kind that have adapters, as this rank holds them."""
    if case.lora is None:
        return []
    place = "moe" if layer.moe else "dense"
    return [one for one in rank_slices(case.model, case.layout, case.lora) if one.cls.place == place]


def adapter_seconds(case: Case, layer: Layer, tokens: Floats) -> Floats:
    """Forward of LoRA beside every adapted weight: [rows, k] x [k, r] and [rows, r] x [r, n]; experts' one by one."""
    total = np.zeros(tokens.shape)
    if case.lora is None:
        return total
    r = case.lora.rank
    for one in adapter_slices(case, layer):
        k, n = (one.rows, one.cols) if transposed(case, one) else (one.cols, one.rows)
        share = case.rows_local if one.cls.rule == "whole" else case.rows
        rows = expert_rows(case, tokens) if one.cls.part == "expert" else tokens * share
        down, _ = one_gemm(case, rows, r, k, "bf16")
        up, _ = one_gemm(case, rows, n, r, "bf16")
        total = total + one.experts * (down + up)
    return total


def transposed(case: Case, one: Adapted) -> bool:
    """gpt-oss stores its experts [in, out]."""
    return case.model.architecture == "GptOssForCausalLM" and one.cls.part == "expert"


def gemm_seconds(case: Case, gemms: list[Gemm], tokens: Floats) -> tuple[Floats, dict[Provenance, float]]:
    """Derated forward seconds of the GEMMs for each token count, and the shares of their provenance (last one)."""
    total = np.zeros(tokens.shape)
    by_source: dict[Provenance, float] = {}
    for g in gemms:
        dtype = "bf16" if g.precise or g.k < 64 or g.n < 64 else gemm_dtype(case)
        seconds, source = one_gemm(case, tokens * g.share, g.n, g.k, dtype)
        total = total + seconds
        by_source[source] = by_source.get(source, 0.0) + float(seconds[-1])
    whole = sum(by_source.values()) or 1.0
    return total, {k: v / whole for k, v in by_source.items()}


def gemm_dtype(case: Case) -> str:
    """Format of the GEMMs: FP8 training scales whole tensors or rows (Transformer Engine, torchao), not blocks."""
    return "fp8_tensor" if case.options.precision == "fp8" else case.options.precision


def one_gemm(case: Case, rows: Floats, n: int, k: int, dtype: str) -> Timed:
    """[rows, k] x [k, n] as it runs for hours: max(kernel table, FLOPs / the rate that power allows) x derate.

    Tables are short runs at boost clock. The derate is what else training adds: gaps between launches, operand layouts
    of the backward. Provenance is that of the last row count.
    """
    m = np.maximum(rows, 1e-3)
    seconds, _ = case.kernels.gemm_seconds(m, n, k, dtype)
    _, source = case.kernels.gemm_seconds(m[-1:], n, k, dtype)
    if dtype == "fp8_tensor":
        seconds = np.maximum(0.0, seconds - cast_seconds(case, m, k))
    power = 2.0 * m * n * k / sustained_flops(case, dtype)
    return np.maximum(seconds, power) * case.profile.value("gemm_derate"), source


def cast_seconds(case: Case, rows: Floats, k: int) -> Floats:
    """What the FP8 kernel tables spend on casting [rows, k] to FP8: a GEMM with hardly any columns, over bf16's.

    Training casts in the kernels that write the GEMM's input, and counts that with the element-wise work.
    """
    fp8, _ = case.kernels.gemm_seconds(rows, THIN, k, "fp8_tensor")
    bf16, _ = case.kernels.gemm_seconds(rows, THIN, k, "bf16")
    return np.maximum(0.0, fp8 - bf16)


def sustained_flops(case: Case, dtype: str) -> float:
    """FLOP/s that the GPU's power limit sustains: its watts less the idle share, over the energy of one FLOP.

    H100 700 W: 0.8·700 / 0.85 pJ = 659 TFLOP/s in bf16. FP8 takes half the energy. A lower limit also lowers the
    voltage, and with it the energy of a FLOP: rate proportional to watts^0.5, 557 at 500 W. Ampere's peak is below its
    limit.
    """
    peaks = case.gpu.peak_flops
    if "fp8" not in peaks:
        return peaks["bf16"]
    generation = _generation(peaks)
    joules = case.profile.value("flop_joules_blackwell" if generation == "blackwell" else "flop_joules_hopper")
    if dtype.startswith("fp8"):
        joules /= 2
        dtype = "fp8"
    watts, _ = FULL[generation]
    limit = (1 - IDLE_SHARE) * watts / joules * (case.gpu.watts / watts) ** VOLTAGE_EXPONENT
    return float(min(peaks.get(dtype, peaks["bf16"]), limit))


def powered_peak(case: Case) -> float:
    """bf16 peak that attention's efficiencies refer to: a GPU with a lower power limit holds a lower clock."""
    peaks = case.gpu.peak_flops
    if "fp8" not in peaks:
        return peaks["bf16"]
    watts, peak = FULL[_generation(peaks)]
    return float(min(peaks["bf16"], peak * (case.gpu.watts / watts) ** VOLTAGE_EXPONENT))


def _generation(peaks: Mapping[str, float]) -> str:
    return "blackwell" if "fp4" in peaks else "hopper"


def moe_shape(case: Case) -> MoeShape:
    """The experts of one layer as the trainer shards them."""
    e = case.model.experts
    if e is None:
        raise ValueError("a dense model has no experts")
    return MoeShape(case.model.hidden, e.intermediate, e.top_k, e.count, case.layout.etp, case.layout.ep)


def expert_seconds(case: Case, tokens: Floats) -> Timed:
    """Grouped GEMMs of the busiest expert-parallel rank, forward: gate and up, then down, all its experts at once.

    A grouped kernel, or one GEMM per expert on several streams, fills the GPU as one GEMM of all their rows would, each
    expert's rounded up to whole tiles; no faster than reading the weights of all of them.
    """
    shape, rows = moe_shape(case), expert_rows(case, tokens)
    inter, dtype, experts = max(1, shape.inter // shape.moe_tp), gemm_dtype(case), shape.experts / shape.moe_ep
    together = (rows + TILE / 2) * experts
    up, source = one_gemm(case, together, 2 * inter, shape.hidden, dtype)
    down, _ = one_gemm(case, together, shape.hidden, inter, dtype)
    weights = 3 * experts * shape.hidden * inter * (1.0 if dtype.startswith("fp8") else ACTIVATION)
    return np.maximum(up + down, weights / case.gpu.hbm_bandwidth), source


def expert_rows(case: Case, tokens: Floats) -> Floats:
    """Rows of one expert: local rows of all ep·etp ranks · k / E, on the busiest rank `expert_imbalance` times that."""
    shape = moe_shape(case)
    hot = case.profile.value("expert_imbalance") if case.layout.ep > 1 else 1.0
    entering = tokens * case.rows_local * shape.moe_ep * shape.moe_tp
    return np.asarray(entering * shape.top_k / shape.experts * hot)


def streamed_bytes(case: Case, layer: Layer) -> float:
    """HBM bytes per token of the rank's element-wise work in one forward, were each operation fused into one pass.

    Norm with residual: two reads and two writes of H, twice a layer. Rotary (and q/k norm): read and write q and k.
    SwiGLU: read 2·I, write I. Experts: permute, sort, unsort and combine k rows of H. FP8: read 2, write 1 per GEMM
    input. LoRA: read and write what the adapter is added to.
    """
    m, a, tp = case.model, case.model.attention, case.layout.tp
    heads = (a.heads + a.kv_heads) * a.head_dim
    total = m.layer_norms * 4 * m.hidden * ACTIVATION * case.rows_local
    total += 2 * heads * ACTIVATION / tp * case.rows * (2 if a.qk_norm else 1)
    e = m.experts
    if layer.moe and e is not None:
        total += (6 * e.top_k + 2) * m.hidden * ACTIVATION * case.rows_local
        total += 3 * e.top_k * e.intermediate * ACTIVATION * case.rows_local
        total += 3 * e.shared_intermediate * ACTIVATION / tp * case.rows
        total += 4 * e.count * 4.0 * case.rows_local
    else:
        total += 3 * m.intermediate * ACTIVATION / tp * case.rows
    if case.options.precision == "fp8":
        total += sum(3.0 * g.k * g.share for g in dense_gemms(case, layer) if not g.precise)
    total *= case.profile.value("elementwise_eager" if case.eager else "elementwise_fused")
    for one in adapter_slices(case, layer):
        expert = one.cls.part == "expert"
        share = case.rows_local * case.model.experts.top_k if expert and case.model.experts else case.rows
        k, n = (one.rows, one.cols) if transposed(case, one) else (one.cols, one.rows)
        total += (k + 3 * n) * ACTIVATION * share
    return total


def held_parameters(case: Case, layer: Layer) -> tuple[float, float]:
    """(dense, expert) weights of one layer on one rank's TP and EP slice, before any sharding over data parallelism.

    Norms, routers and MLA's down-projections are whole on every TP rank.
    """
    index = case.model.layers.index(layer)
    inner = replace(case.layout, pp=3, stages=((), (index,), ()))
    held = train_params(case.model, inner, 1)
    return float(held.dense), float(held.expert)


def attention_seconds(case: Case, tokens: Floats, pairs: Floats) -> Floats:
    """Forward of the attention core of one layer: max(FLOPs/(peak·efficiency), q, k, v, o through HBM once).

    FLOPs 2·heads·(d_qk + d_v) per pair; heads or sequence divided over tp, cp and ulysses. The profile's efficiency is
    that of heads of 128; smaller ones spend a larger share of the time on exponentials, d/(d + 64) being left for the
    tensor cores (FlashAttention-3: 64 wide reaches three quarters of 128 wide). PyTorch's ring runs one kernel per
    block and merges their results in fp32; Transformer Engine's runs two streams and merges in one kernel.
    """
    a = case.model.attention
    width = min(1.0, 1.5 * a.head_dim / (a.head_dim + 64))
    share = case.rows / case.layout.tp
    flops = 2.0 * a.heads * (a.head_dim + a.v_head_dim) * pairs * share
    moved = (a.heads + a.kv_heads) * (a.head_dim + a.v_head_dim) * ACTIVATION * tokens * share
    rate = powered_peak(case) * case.profile.value("attention_forward_efficiency") * width
    blocks = case.profile.value("ring_attention_factor") if case.layout.cp > 1 and case.eager else 1.0
    return np.asarray(np.maximum(flops / rate * blocks, moved / case.gpu.hbm_bandwidth))


def attention_backward_factor(case: Case) -> float:
    """Backward over forward: 2.5 x the FLOPs (scores again, four more products) at the backward's own efficiency."""
    forward = case.profile.value("attention_forward_efficiency")
    return 2.5 * forward / case.profile.value("attention_backward_efficiency")
