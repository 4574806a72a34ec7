"""Catalog entries as rows for `rlsim catalog`: (figure, value, unit, source)."""

from __future__ import annotations

from typing import NamedTuple

from rlsim import model as accounting
from rlsim.architecture import ModelSpec
from rlsim.catalog.architectures import model, models
from rlsim.catalog.hardware import gpu, gpus

COMPUTED = "computed from config.json"
GIB = 2.0**30


class Row(NamedTuple):
    """One figure in the unit people read it in; `value` is text where the figure is a word."""

    figure: str
    value: float | str
    unit: str
    source: str


def gpu_rows(name: str) -> list[Row]:
    """Every figure of one GPU with its source."""
    g = gpu(name)
    rows = [
        Row(f"{dtype} peak (dense)", rate / 1e12, "TFLOP/s", g.sources[f"peak_flops.{dtype}"])
        for dtype, rate in g.peak_flops.items()
    ]
    scales = {
        "hbm_bytes": ("HBM", GIB, "GiB"),
        "hbm_bandwidth": ("HBM bandwidth", 1e12, "TB/s"),
        "nvlink_bandwidth": ("NVLink, one direction", 1e9, "GB/s"),
        "nvlink_domain": ("NVLink domain", 1.0, "GPUs"),
        "nic_bandwidth": ("NIC per GPU, one direction", 1e9, "GB/s"),
        "host_link_bandwidth": ("host link, one direction", 1e9, "GB/s"),
        "host_memory_bytes": ("host memory per node", 1e9, "GB"),
        "price_per_hour": ("price", 1.0, "$/GPU-hour"),
        "watts": ("power limit", 1.0, "W"),
    }
    rows += [Row(label, getattr(g, key) / scale, unit, g.sources[key]) for key, (label, scale, unit) in scales.items()]
    tables = g.kernel_system or "none"
    note = f"scaled from {g.scaled_from}" if g.scaled_from else "aiconfigurator-core"
    return [
        *rows,
        Row("GPUs per node", float(g.gpus_per_node), "GPUs", "usual node"),
        Row("kernel tables", tables, "", note),
    ]


def model_rows(name: str) -> list[Row]:
    """Facts and exact counts of one model."""
    m = model(name)
    total, active = accounting.parameters(m), accounting.active_parameters(m)
    a = m.attention
    per_token = m.num_layers * accounting.kv_bytes_per_token_layer(m, 2.0)
    rows = [
        Row("architecture", m.architecture, "", m.source),
        Row("parameters", total / 1e9, "B", COMPUTED + " (without MTP layers)"),
        Row("active parameters", active / 1e9, "B", COMPUTED + " (both embeddings counted)"),
        Row("weights in bf16", 2 * total / 1e9, "GB", COMPUTED),
        Row("forward matmul per token", 2 * accounting.matmul_weights_per_token(m) / 1e9, "GFLOP", COMPUTED),
        Row("KV cache in bf16", per_token / 1e3, "kB/token", COMPUTED + _window_note(m)),
        Row("layers", float(m.num_layers), "", m.source),
        Row("hidden size", float(m.hidden), "", m.source),
        Row(
            "query / KV heads",
            f"{a.heads} / {a.kv_heads}" if a.kind == "gqa" else f"{a.heads} (MLA)",
            "",
            m.source,
        ),
        Row("vocabulary", float(m.vocab), "", m.source),
        Row("longest context", float(m.max_context), "tokens", m.source),
    ]
    if a.kind == "mla":
        rows.append(Row("MLA latent + rope", float(a.kv_lora_rank + a.qk_rope_dim), "", m.source))
    if m.experts is not None:
        e = m.experts
        rows.append(Row("experts", f"{e.top_k} of {e.count} in {m.moe_layers} layers", "", m.source))
        rows.append(Row("one expert", accounting.expert_parameters(m) / 1e6, "M parameters", COMPUTED))
    if m.quantisation:
        rows.append(Row("published weights", m.quantisation, "", m.source))
    return rows


def gpu_table() -> list[tuple[str, list[Row]]]:
    """All GPUs with their rows."""
    return [(name, gpu_rows(name)) for name in gpus()]


def model_table() -> list[tuple[str, list[Row]]]:
    """All models with the five figures one compares them by."""
    wanted = {"parameters", "active parameters", "weights in bf16", "KV cache in bf16", "layers"}
    return [(name, [row for row in model_rows(name) if row.figure in wanted]) for name in models()]


def _window_note(m: ModelSpec) -> str:
    windowed = {window: layers for window, layers in m.windows if window is not None}
    if not windowed:
        return ""
    text = ", ".join(f"{layers} layers stop at {window} tokens" for window, layers in windowed.items())
    return f"; while no window is full ({text})"
