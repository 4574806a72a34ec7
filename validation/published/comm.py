"""Collectives, expert exchange and hardware peaks: published bandwidths against links and kernel tables.

DeepEP counts, in its normal kernels, the bytes that cross the bottleneck link (tokens · their destination nodes, or
GPUs inside a node); in the low-latency ones microseconds; in version 2 every received byte over the remote link, the
own node's included, so n/(n-1) of the link's rate over n nodes.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from rlsim import catalog
from rlsim.catalog.profiles import profile
from rlsim.costs.kernels import MoeShape, kernels_for
from validation.published import facts, names
from validation.published.records import Record, SkipError

SIZES = {"KiB": 2**10, "MiB": 2**20, "GiB": 2**30}
EXPERTS = 256
"""Experts of the model whose hidden size and top-k DeepEP's benchmarks have."""
SHAPES = (4096, 8192, 16384)
LARGEST = 8.0 * 2**30
MATMUL = "matmul_rate"
SPARSITY = 1.5
"""A dense bf16 peak over this many times the catalog's is one with sparsity."""


@dataclass(frozen=True)
class Figure:
    """One figure: `unit` of both; times are "s", rates end in "/s".

    given   the catalog states it, nothing predicts it
    """

    quantity: str
    unit: str
    measured: float
    predicted: float
    note: str = ""
    given: bool = False


def convert(record: Record) -> tuple[Figure, ...]:
    """The figures of one `comm` or `hw_spec` record."""
    if record.kind == "hw_spec":
        return _peaks(record)
    c, m = record.config, record.measured
    if c.get("kernel"):
        return _deepep(record)
    if "topology" in c:
        return _deepep_2(record)
    if "busbw_max_GBps" in m:
        gpu = catalog.gpu(names.gpu(c.get("gpu")))
        n = int(c["gpus"])
        seconds, _ = kernels_for(gpu).all_reduce_seconds(np.array([LARGEST]), n)
        rate = 2 * (n - 1) / n * LARGEST / float(seconds[0])
        return (Figure("busbw_max", "B/s", float(m["busbw_max_GBps"]) * 1e9, rate),)
    if "busbw_GBps" in m and c.get("gpu"):
        return _sizes(record)
    raise SkipError("GPU and network of the nodes are not in the record")


def _sizes(record: Record) -> tuple[Figure, ...]:
    """Bus bandwidth by message size."""
    c = record.config
    gpu = catalog.gpu(names.gpu(c["gpu"]))
    n = int(c.get("gpus") or int(c["nodes"]) * gpu.gpus_per_node)
    out = []
    for size, rate in record.measured["busbw_GBps"].items():
        number, unit = re.fullmatch(r"([\d.]+)(\w+)", size).groups()  # type: ignore[union-attr]
        moved = float(number) * SIZES[unit]
        seconds, _ = kernels_for(gpu).nccl_seconds(str(c["op"]), np.array([moved]), n)
        factor = 2 * (n - 1) / n if c["op"] == "all_reduce" else (n - 1) / n
        out.append(Figure(f"busbw {size}", "B/s", float(rate) * 1e9, factor * moved / float(seconds[0])))
    return tuple(out)


def _deepep(record: Record) -> tuple[Figure, ...]:
    """Dispatch and combine of one layer together."""
    c, m = record.config, record.measured
    gpu, ep, tokens = catalog.gpu(names.gpu(c["gpu"])), int(c["ep"]), int(c["tokens_per_batch"])
    shape = MoeShape(int(c["hidden"]), 2048, int(c["topk"]), max(EXPERTS, ep), 1, ep)
    normal = c["kernel"] == "normal"
    seconds, _ = kernels_for(gpu).all_to_all_seconds(np.array([tokens]), shape, "prefill" if normal else "decode")
    if not normal:
        took = (float(m["dispatch_us"]) + float(m["combine_us"])) * 1e-6
        return (Figure("dispatch_combine_s", "s", took, float(seconds[0])),)
    nodes = max(1, ep // gpu.nvlink_domain)
    # places of a token's rows: its groups' nodes, or the GPUs of the one node that its experts are on
    groups = int(c.get("top_groups", nodes))
    places = _distinct(int(c["topk"]), ep) if nodes == 1 else min(groups, nodes) if nodes > 2 else 2.0
    moved = tokens * places * int(c["hidden"])
    took = moved * 1.0 / (float(m["dispatch_GBps"]) * 1e9) + moved * 2.0 / (float(m["combine_GBps"]) * 1e9)
    return (Figure("dispatch_combine_s", "s", took, float(seconds[0])),)


def _distinct(k: int, n: int) -> float:
    """Distinct places of k draws among n."""
    return n * (1 - (1 - 1 / n) ** k)


def _deepep_2(record: Record) -> tuple[Figure, ...]:
    c = record.config
    gpu = catalog.gpu(names.gpu(c["arch"]))
    prior = profile("generic")
    parts = [int(x) for x in re.findall(r"\d+", str(c["topology"]))]
    out = []
    for name, text in record.measured.items():
        rate = facts.number(text)
        if rate is None:
            continue
        if "NVLink" in str(text):
            # the catalog's H800 has the export variant's NVLink; the bytes to itself count as well
            predicted = gpu.nvlink_bandwidth * prior.value("nvlink_efficiency")
        else:
            nodes = parts[1]
            predicted = gpu.nic_bandwidth * prior.value("nic_efficiency") * nodes / (nodes - 1)
        out.append(Figure(f"{name}_rate", "B/s", rate * 1e9, predicted))
    return tuple(out)


def _peaks(record: Record) -> tuple[Figure, ...]:
    """Datasheet figures against the catalog, and the best matmul against the kernel tables."""
    c, m = record.config, record.measured
    table = next((v for v in m.values() if isinstance(v, Mapping)), None)
    if table is not None:
        return _table(table)
    gpu = catalog.gpu(names.gpu(c.get("gpu")))
    own: dict[str, tuple[float, float]] = {}
    if "bf16_dense_tflops_spec" in m:
        own["bf16_peak"] = (float(m["bf16_dense_tflops_spec"]) * 1e12, gpu.peak_flops["bf16"])
    special = "W" in str(c.get("gpu")) and "hbm_TBps" in m and float(m["hbm_TBps"]) * 1e12 < 0.9 * gpu.hbm_bandwidth
    if "hbm_TBps" in m and not special:
        own["hbm_bandwidth"] = (float(m["hbm_TBps"]) * 1e12, gpu.hbm_bandwidth)
    if "rdma_gbps_per_gpu" in m:
        own["nic_bandwidth"] = (float(m["rdma_gbps_per_gpu"]) / 8 * 1e9, gpu.nic_bandwidth)
    if "bf16_max_achievable_matmul_tflops" in m:
        own[MATMUL] = (float(m["bf16_max_achievable_matmul_tflops"]) * 1e12, best_matmul(gpu))
    if not own:
        raise SkipError("no figure of the catalog's is in the record")
    return tuple(Figure(name, "1/s", seen, found, given=name != MATMUL) for name, (seen, found) in own.items())


def _table(table: Mapping[str, Any]) -> tuple[Figure, ...]:
    out = []
    for name, value in table.items():
        try:
            gpu = catalog.gpu(names.gpu(name))
        except SkipError:
            continue
        peak, seen = gpu.peak_flops["bf16"], float(value) * 1e12
        if gpu.name in ("ascend-910b",) or not names.plain(name, gpu.name):
            continue
        if seen > SPARSITY * peak:
            continue  # with sparsity: no dense figure
        out.append(Figure(f"bf16_peak {name}", "1/s", seen, peak, given=True))
    if not out:
        raise SkipError("no dense figure of the catalog's GPUs is in the record")
    return tuple(out)


def best_matmul(gpu: catalog.GpuSpec) -> float:
    """FLOP/s of the best square bf16 GEMM of the kernel tables."""
    kernels = kernels_for(gpu)
    rates = []
    for n in SHAPES:
        seconds, _ = kernels.gemm_seconds(np.array([float(n)]), n, n, "bf16")
        rates.append(2.0 * n**3 / float(seconds[0]))
    return max(rates)
