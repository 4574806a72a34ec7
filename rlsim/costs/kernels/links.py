"""Collectives and expert all-to-all from the communication tables, scaled to the GPU's own links.

Sizes in the NCCL and custom all-reduce tables are elements of two bytes of the full tensor (the gathered one,
the one to be scattered, the one reduced): read as bytes, a 268 M-element all-gather over 8 H100 would reach 37%
of NVLink, as elements 75%, as NCCL does.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from rlsim.costs.kernels import tables
from rlsim.costs.kernels.tables import MICRO, MILLI, Floats
from rlsim.costs.kernels.work import Gpu, MoeShape

OPS = ("all_reduce", "all_gather", "reduce_scatter", "alltoall")
INTER_HOP_SECONDS = 15e-6
"""Latency of one step of a collective across nodes: NCCL all-reduce of 32 KiB over 4 nodes takes 69 µs (ml-
engineering networking benchmarks) = 2·log2(4) steps + the part inside the node.
"""
NIC_SHARE = 0.80
"""Large-message share of the NIC rate: the same table reaches 92-98 GB/s bus bandwidth a node pair of 2 x 400
Gb/s links.
"""

BEYOND_MEASURED_NODES = 1.15
"""DeepEP low latency over 16 or 32 nodes against 8, the most in the tables: 561 and 554 µs against 487 (README)."""

LOW_LATENCY_FIXED = 60e-6
NORMAL_FIXED = 120e-6
"""Dispatch + combine of a handful of tokens where there is no table: near the smallest measured ones."""


def wire_bytes(op: str, size: float | Floats, gpus: int) -> Floats:
    """Bytes that must cross one GPU's link in one direction.

    all_reduce: `size` (with in-switch reduction each GPU sends and receives the tensor once); others `size·(n-1)/n`,
    where `size` is the whole tensor for gather and scatter and the local send buffer for all-to-all.
    """
    share = 1.0 if op == "all_reduce" else (gpus - 1) / gpus
    moved: Floats = np.asarray(size, dtype=np.float64)
    return np.asarray(moved * share)


@dataclass(frozen=True)
class Curve:
    """Seconds against bytes for one op and group."""

    sizes: Floats
    seconds: Floats

    def at(self, size: float | Floats) -> Floats:
        """Log-log inside the measured sizes; beyond the largest, proportional."""
        s = np.maximum(np.asarray(size, dtype=np.float64), self.sizes[0])
        inside = np.exp(np.interp(np.log(s), np.log(self.sizes), np.log(self.seconds)))
        return np.asarray(np.where(s > self.sizes[-1], self.seconds[-1] * s / self.sizes[-1], inside))


def _curve(rows: dict[str, Any], gpus: int) -> Curve | None:
    keep = rows["num_gpus"] == gpus
    if not keep.any():
        return None
    axes, seconds = tables.pivot({c: rows[c][keep] for c in ("message_size", "latency")}, ("message_size",), "latency")
    return Curve(axes[0] * 2.0, _monotone(seconds * MILLI))


def _monotone(seconds: Floats) -> Floats:
    """No message takes longer than a larger one does: a spike at one size is noise."""
    return np.asarray(np.minimum.accumulate(seconds[::-1])[::-1])


def nccl_curves(system: str, op: str) -> dict[int, Curve]:
    """Measured groups of an op, from the newest NCCL that has it."""
    for path in tables.versions(system, "comm", "nccl", "nccl_perf"):
        rows = tables.read(path, ("num_gpus", "message_size", "latency"), (("op_name", op), ("nccl_dtype", "half")))
        if len(rows["latency"]):
            return {int(n): c for n in np.unique(rows["num_gpus"]) if (c := _curve(rows, int(n))) is not None}
    return {}


def custom_curves(system: str, preferred: str | None) -> dict[int, Curve]:
    """An engine's own all-reduce (captured in a graph), newest version of the first back end that has it."""
    for backend in tables.backends(system, "comm", "custom_allreduce_perf", preferred):
        path = tables.versions(system, "comm", backend, "custom_allreduce_perf")[0]
        rows = tables.read(path, ("num_gpus", "message_size", "latency", "kernel_source"))
        eager = np.array(["eager" in str(k) for k in rows["kernel_source"]])
        rows = {c: v[~eager] for c, v in rows.items()}
        if len(rows["latency"]):
            return {int(n): c for n in np.unique(rows["num_gpus"]) if (c := _curve(rows, int(n))) is not None}
    return {}


def in_domain(
    curves: list[dict[int, Curve]], op: str, size: Floats, gpus: int, gpu: Gpu, reference: Gpu
) -> tuple[Floats, str]:
    """Fastest measured algorithm for `gpus` GPUs behind one switch, moved to this GPU's link rate.

    A group that was not measured takes the next smaller one, with its wire time scaled by `(n-1)/n` and one hop
    more per doubling. Another link rate changes the wire time only: `Δt = wire·(1/link - 1/link_ref)/share`,
    `share` reached at the largest message.
    """
    best: Floats | None = None
    source = "measured"
    for table in curves:
        if not table:
            continue
        have = max((n for n in table if n <= gpus), default=min(table))
        t = table[have].at(size)
        biggest = table[have]
        share = min(
            1.0,
            float(wire_bytes(op, biggest.sizes[-1], have)) / reference.nvlink_bandwidth / float(biggest.seconds[-1]),
        )
        extra = (wire_bytes(op, size, gpus) - wire_bytes(op, size, have)) / (reference.nvlink_bandwidth * share)
        extra = extra + 2e-6 * max(0.0, math.log2(gpus / have))
        extra = extra + wire_bytes(op, size, gpus) / share * (1 / gpu.nvlink_bandwidth - 1 / reference.nvlink_bandwidth)
        if have != gpus or gpu.nvlink_bandwidth != reference.nvlink_bandwidth:
            source = "scaled"
        t = np.maximum(t + extra, 0.0)
        best = t if best is None else np.minimum(best, t)
    floor = wire_bytes(op, size, gpus) / gpu.nvlink_bandwidth
    if best is None:
        return floor / 0.75 + 10e-6, "roofline"
    return np.maximum(best, floor), source


def across_nodes(op: str, size: Floats, gpus: int, per_node: int, gpu: Gpu) -> Floats:
    """The part of a hierarchical collective between `gpus/per_node` nodes, every NIC busy with `1/per_node` of
    the tensor.

    all_reduce `2·(N-1)/N·size/per_node`, gather and scatter half of that, all-to-all `size·(n - per_node)/n`
    per GPU, over `nic·0.80`, plus `log2(N)` steps (twice for the all-reduce).
    """
    nodes = -(-gpus // per_node)
    if op == "alltoall":
        volume = size * (gpus - per_node) / gpus
        steps = 1.0
    else:
        turns = 2.0 if op == "all_reduce" else 1.0
        volume = turns * (nodes - 1) / nodes * size / per_node
        steps = turns * math.log2(nodes)
    return volume / (gpu.nic_bandwidth * NIC_SHARE) + steps * INTER_HOP_SECONDS


def all_to_all_floor(
    gpu: Gpu, tokens: Floats, shape: MoeShape, phase: str, per_node: int, dispatch_bytes: float
) -> Floats:
    """Seconds that dispatch + combine of `tokens` per rank spend on the wire at least.

    `hidden·(dispatch_bytes + 2)` bytes a copy: across nodes one copy for each of at most 4 other nodes (node-limited
    routing) over the NIC; inside a domain one per rank reached (normal) or per expert (low latency) over NVLink.
    """
    ep = shape.moe_ep
    row = shape.hidden * (dispatch_bytes + 2.0)
    nodes = -(-ep // per_node)
    if nodes == 1:
        reached = ep * (1 - (1 - 1 / ep) ** shape.top_k)
        copies = (min(shape.top_k, ep) if phase == "decode" else reached) * (ep - 1) / ep
        return np.asarray(tokens * row * copies / gpu.nvlink_bandwidth)
    copies = min(shape.top_k, 4, nodes) * (nodes - 1) / nodes
    return np.asarray(tokens * row * copies / gpu.nic_bandwidth)


def deepep_low_latency(system: str, hidden: int, top_k: int, experts: int, nodes: int) -> tuple[Curve, bool] | None:
    """Dispatch (fp8) + combine (bf16) of DeepEP's low-latency kernels against tokens per rank; True if of this
    very shape.

    More than one node was measured for hidden 7168 and top-8 only: other shapes scale by `hidden·top_k`.
    """
    columns = (
        "node_num",
        "hidden_size",
        "num_token",
        "num_topk",
        "num_experts",
        "combine_avg_t_us",
        "dispatch_avg_t_us",
    )
    for path in tables.versions(system, "comm", "sglang", "wideep_deepep_ll_perf"):
        rows = tables.read(path, columns)
        measured = np.unique(rows["node_num"])
        if nodes > 1 and measured.max() == 1:
            continue
        at_nodes = int(measured[np.argmin(np.abs(measured - nodes))])
        keep = rows["node_num"] == at_nodes
        gap = np.abs(np.log(rows["hidden_size"] * rows["num_topk"] / (hidden * top_k)))
        gap = gap + 0.3 * np.abs(np.log(rows["hidden_size"] / hidden))
        gap = gap + 0.1 * np.abs(np.log(rows["num_experts"] / experts))
        keep &= gap <= gap[keep].min() + 1e-9
        total = (rows["combine_avg_t_us"] + rows["dispatch_avg_t_us"])[keep] * MICRO
        tokens = rows["num_token"][keep].astype(np.float64)
        axes, seconds = tables.pivot({"t": tokens, "s": total}, ("t",), "s")
        ratio = hidden * top_k / float((rows["hidden_size"] * rows["num_topk"])[keep][0])
        if nodes >= 2 * at_nodes and at_nodes > 1:
            ratio *= BEYOND_MEASURED_NODES
        exact = bool(gap[keep].min() < 1e-9) and at_nodes == nodes
        seconds = _monotone(seconds)
        return Curve(axes[0], np.maximum(seconds * ratio, seconds[0])), exact
    return None


def deepep_normal(system: str, hidden: int, top_k: int, nodes: int) -> tuple[Curve, bool] | None:
    """Dispatch + combine of DeepEP's high-throughput kernels against tokens per rank, 20 of the GPU's SMs given
    to it.
    """
    columns = (
        "node_num",
        "hidden_size",
        "num_token",
        "num_topk",
        "num_experts",
        "dispatch_sms",
        "dispatch_transmit_us",
        "combine_transmit_us",
    )
    for path in tables.versions(system, "comm", "sglang", "wideep_deepep_normal_perf"):
        rows = tables.read(path, columns)
        measured = np.unique(rows["node_num"])
        if nodes > 1 and measured.max() == 1:
            continue
        at_nodes = int(measured[np.argmin(np.abs(np.log(measured / nodes)))])
        keep = (rows["node_num"] == at_nodes) & (rows["dispatch_sms"] == 20)
        gap = np.abs(np.log(rows["hidden_size"] / hidden)) + 0.5 * np.abs(np.log(rows["num_topk"] / top_k))
        keep &= gap <= gap[keep].min() + 1e-9
        total = (rows["dispatch_transmit_us"] + rows["combine_transmit_us"])[keep] * MICRO
        axes, seconds = tables.pivot({"t": rows["num_token"][keep].astype(np.float64), "s": total}, ("t",), "s")
        reach = min(top_k, nodes * 8) / min(float(rows["num_topk"][keep][0]), nodes * 8)
        ratio = hidden / float(rows["hidden_size"][keep][0]) * reach
        return Curve(axes[0], _monotone(seconds) * ratio), bool(gap[keep].min() < 1e-9) and at_nodes == nodes
    return None
