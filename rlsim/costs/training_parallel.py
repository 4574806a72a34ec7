"""Communication inside one layer, and between pipeline stages: tensor, sequence, context and expert parallelism."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from rlsim.architecture import Layer
from rlsim.costs.network import Group, Op, Provenance, Timed
from rlsim.costs.training_case import ACTIVATION, Case, Floats
from rlsim.costs.training_layer import moe_shape


@dataclass(frozen=True)
class Exposed:
    """Exposed seconds of a layer's communication in its forward and its backward, and the provenance."""

    forward: Floats
    backward: Floats
    source: Provenance


def tensor_parallel(case: Case, layer: Layer, tokens: Floats, column: Floats, row: Floats) -> Exposed:
    """TP collectives of one layer. `column`, `row`: forward seconds of its column- and row-parallel GEMMs.

    With SP each block (attention, MLP) gathers its input and scatters its output: forward 2 all-gathers and 2
    reduce-scatters a layer, backward 4 and 2. Without, 2 all-reduces each way. A MoE layer with ETP = 1 has attention's
    alone, and its shared expert's. Megatron and Transformer Engine issue the backward's input gather beside the
    data-gradient GEMM and its scatter (or all-reduce) beside the weight-gradient GEMM; `tp_overlap` of what fits there
    is hidden. DTensor runs all in line. User buffers and asynchronous TP also cut the other GEMMs into tp pieces and
    exchange one piece beside the next: `tp_pipelined_overlap` of what fits beside all but one piece.
    """
    zero = np.zeros(tokens.shape)
    tp = case.layout.tp
    if tp == 1:
        return Exposed(zero, zero, "measured")
    blocks = _blocks(case, layer)
    size = tokens * case.rows * case.model.hidden * ACTIVATION
    overlap = case.profile.value("tp_overlap") if case.layout.backend == "megatron" else 0.0
    if not case.layout.sequence_parallel:
        once, source = case.links.collective("all_reduce", size, case.tp_group)
        beside = blocks * once - overlap * np.minimum(blocks * once, column)
        return Exposed(blocks * once, beside, source)
    gather, source = case.links.collective("all_gather", size, case.tp_group)
    scatter, _ = case.links.collective("reduce_scatter", size, case.tp_group)
    gather, scatter = blocks * gather, blocks * scatter
    pieces = case.profile.value("tp_pipelined_overlap") * (1 - 1 / tp)
    forward = gather + scatter - pieces * (np.minimum(gather, column) + np.minimum(scatter, row))
    hidden = overlap * (np.minimum(gather, column) + np.minimum(scatter, column))
    backward = 2 * gather + scatter - hidden - pieces * np.minimum(gather, row)
    return Exposed(forward, backward, source)


def _blocks(case: Case, layer: Layer) -> int:
    """Blocks of a layer that are split over TP: attention, and the MLP or the shared expert."""
    experts = case.model.experts
    if not layer.moe or experts is None:
        return 2
    return 2 if experts.shared_intermediate else 1


def expert_parallel(case: Case, tokens: Floats) -> tuple[Floats, Provenance]:
    """Dispatch and combine of one MoE layer, one way (forward or backward).

    Each rank sends k rows of H per local token; the busiest rank takes in `expert_imbalance` times the mean.
    `alltoall`: bytes·(ep-1)/ep each for dispatch and combine. `deepep`: once per destination node, in measured kernels
    where there are any. `allgather`: all rows to all ranks, whatever the routing. With ETP > 1
    the rows are then gathered and scattered over it.
    """
    e, layout = case.model.experts, case.layout
    if e is None or layout.ep * layout.etp == 1:
        return np.zeros(tokens.shape), "measured"
    local = tokens * case.rows_local
    row = case.model.hidden * ACTIVATION
    hot = case.profile.value("expert_imbalance")
    total: Floats = np.zeros(tokens.shape)
    source: Provenance = "measured"
    if layout.ep > 1 and case.options.dispatcher == "deepep":
        total, source = case.kernels.all_to_all_seconds(
            local * hot, moe_shape(case), "prefill", case.links.domain, ACTIVATION
        )
    elif layout.ep > 1 and case.options.dispatcher == "allgather":
        total, source = _both(case, local * layout.ep * row, case.ep_group)
    elif layout.ep > 1:
        one, source = case.links.all_to_all(local * e.top_k * row * hot, case.ep_group)
        total = 2 * one
    if layout.etp > 1:
        extra, source = _both(case, local * layout.etp * e.top_k * row, case.etp_group)
        total = total + extra
    return total, source


def _both(case: Case, size: Floats, group: Group) -> Timed:
    """An all-gather and a reduce-scatter of `size` bytes."""
    ops: tuple[Op, Op] = ("all_gather", "reduce_scatter")
    gather, source = case.links.collective(ops[0], size, group)
    scatter, _ = case.links.collective(ops[1], size, group)
    return gather + scatter, source


def context_parallel(case: Case, tokens: Floats, attention: Floats, backward: float) -> Exposed:
    """CP or Ulysses of one layer. `attention`: forward seconds of its core, `backward` times that in the backward pass.

    Ring: (cp-1) hops of the rank's K and V, 2·tokens/cp·nkv/tp·d·bytes each, twice that in the backward (K, V and their
    gradients), each hidden behind the attention on the block before it: exposed is what exceeds (cp-1)/cp of the core.
    Ulysses: four all-to-alls a pass (q, k, v, o), in line.
    """
    zero = np.zeros(tokens.shape)
    a, layout = case.model.attention, case.layout
    if layout.ulysses > 1:
        group = case.links.group(layout.ulysses, layout.tp)
        heads = 2 * a.heads + 2 * max(a.kv_heads, layout.ulysses)
        size = tokens * case.rows * heads * (a.head_dim + a.v_head_dim) / 2 * ACTIVATION / layout.tp
        all_four, source = case.links.all_to_all(size, group)
        return Exposed(all_four, all_four, source)
    if layout.cp == 1:
        return Exposed(zero, zero, "measured")
    kv = max(1.0, a.kv_heads / layout.tp) * (a.head_dim + a.v_head_dim)
    hop = case.links.send(tokens * case.rows * kv * ACTIVATION, layout.tp * (layout.cp - 1))
    ring = (layout.cp - 1) * hop
    cover = attention * (layout.cp - 1) / layout.cp
    return Exposed(np.maximum(0.0, ring - cover), np.maximum(0.0, 2 * ring - backward * cover), "roofline")


def stage_send(case: Case, tokens: Floats) -> Floats:
    """Hand-over of a micro-batch's activations to the next stage: tokens·H·bytes, divided over cp and (with SP) tp.

    Stages stand gpus/pp ranks apart. Every one of the interleaved schedule's chunks sends.
    """
    layout = case.layout
    if layout.pp == 1:
        return np.zeros(tokens.shape)
    once = case.links.send(tokens * case.rows_local * case.model.hidden * ACTIVATION, layout.gpus // layout.pp)
    return once * layout.vpp
