"""Training rows outside their own tables, and the generic converter of `train_only` and `train_mfu`.

A layout stands in keys (`tp`, `pp`, …), in one text ("tp1 pp2 ep8", `layout`), or follows from the source:

- Megatron-LM's 2022 table (arXiv 2205.05198, Table 3): TP 8, one GPU batch and pipeline by model; selective recompute.
- DeepSeek-V3's pre-training (its report): 2,048 GPUs, PP 16, EP 64, FP8, 15,360 sequences of 4,096 tokens, DeepEP.
- A strong-scaling row without layout: TP 8, PP 12 interleaved 8 times (what divides 96 layers and its GPU counts).

Rows that give an MFU are scored on the seconds that the MFU stands for: 6·N·tokens and attention over the peak.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from rlsim import catalog
from rlsim.model import forward_flops
from validation.published import facts, megatron_bridge, names
from validation.published.facts import first, whole
from validation.published.records import Record, SkipError
from validation.published.training import FUSED_LOSS, OVERLAPPED, PRETRAINING, TrainingCase, even_stages, scenario

PAPER = "2205.05198"
SELECTIVE = {
    "22B": {"model": "GPT-22B", "gpus": 8, "tp": 8, "pp": 1, "vpp": 1, "samples": 4, "size": 4},
    "175B": {"model": "GPT-175B", "gpus": 64, "tp": 8, "pp": 8, "vpp": 3, "samples": 64, "size": 1},
    "530B": {"model": "GPT-530B", "gpus": 280, "tp": 8, "pp": 35, "vpp": 3, "samples": 280, "size": 1},
    "1T": {"model": "GPT-1T", "gpus": 512, "tp": 8, "pp": 64, "vpp": 1, "samples": 512, "size": 1},
}
GPT_SEQUENCE = 2048
V3 = {"gpus": 2048, "pp": 16, "ep": 64, "samples": 15360, "length": 4096}
DISPATCH = "deepep"


def convert(record: Record) -> tuple[TrainingCase, ...]:
    """The updates of one record."""
    c, m = record.config, record.measured
    text = " ".join([*map(str, c.values()), record.reference])
    if PAPER in text and str(c.get("model")) in SELECTIVE:
        return (_paper(record),)
    if "pretrain_gpu_hours_M" in m:
        return (_pretraining(record),)
    if isinstance(c.get("gpus"), list):
        return _scaling(record)
    if isinstance(m.get("tflops"), Mapping) or isinstance(m.get("mfu_pct_range"), list):
        raise SkipError("the layouts and batches are not in the record")
    if "tokens_per_s_per_gpu" in m and "gbs" in c and "precision" in c:
        return (megatron_bridge.convert(record),)
    return (_general(record),)


def _general(record: Record) -> TrainingCase:
    """Keys of the usual names: model, GPU, degrees, batch and sequence."""
    c, m = record.config, record.measured
    base = names.model(c.get("model"))
    gpus = whole(c, "gpus", "gpus_total")
    samples, length = whole(c, "gbs", "global_batch_size", "global_batch"), whole(c, "seq_len", "max_seq", "sequence")
    if "max_seq" in c:
        raise SkipError("the tokens of a batch are not in the record")
    if not (gpus and samples and length):
        raise SkipError("GPUs, batch or sequence length are not in the record")
    layout = {k: whole(c, k) or 1 for k in ("tp", "pp", "cp", "ep")} | {"vpp": whole(c, "vp", "vpp") or 1, "mbs": 0}
    said = str(c.get("layout", "")).lower()
    layout |= {k: int(v) for k, v in re.findall(r"\b(tp|pp|ep|cp|vpp|mbs)(\d+)", said)}
    recompute = re.search(r"recompute=(\w+)", said)
    full = c.get("recompute") is True or (recompute is not None and recompute.group(1) == "full")
    partly = recompute is not None and recompute.group(1).startswith("select")
    backend = "fsdp2" if "fsdp" in f"{c.get('train_backend', '')} {c.get('parallelism', '')}".lower() else "megatron"
    trainer: dict[str, Any] = {
        "gpus": gpus,
        "backend": backend,
        **{k: layout[k] for k in ("tp", "pp", "cp", "ep")},
        "packing": bool(c.get("packing", False)),
    }
    if layout["ep"] > 1:
        trainer["etp"] = whole(c, "etp") or 1
    trainer["micro_batch_size"] = layout["mbs"] or whole(c, "mbs", "micro_batch_size") or 1
    if layout["vpp"] > 1 and backend == "megatron":
        trainer["vpp"] = layout["vpp"]
    uneven = even_stages(base, layout["pp"])
    if uneven:
        trainer["pp_layers"] = uneven
        trainer.pop("vpp", None)
    seconds = facts.number(first(m, "step_s", "s_per_iter", "step_time_s", "iteration_s"))
    rate = facts.number(first(m, "tokens_per_s_per_gpu", "tokens_per_gpu_s"))
    if seconds is None and rate:
        seconds = samples * length / (rate * gpus)
    if seconds is None:
        mfu = facts.number(first(m, "mfu_pct", "mfu"))
        if mfu is None:
            raise SkipError("no time, rate or MFU is in the record")
        seconds = of_mfu(base, samples, length, gpus, names.gpu(c.get("gpu")), mfu / (100.0 if mfu > 1 else 1.0))
    return TrainingCase(
        scenario=scenario(record.id, base, {"gpu": names.gpu(c.get("gpu"))}, trainer, samples),
        samples=samples,
        length=length,
        measured=seconds,
        recompute={"full": 1.0} if full else {"selective": 1.0} if partly else {"none": 1.0},
        profile={**PRETRAINING, **FUSED_LOSS},
    )


def of_mfu(model: str, samples: int, length: int, gpus: int, gpu: str, mfu: float) -> float:
    """Seconds of an update at a model FLOPs utilisation."""
    flops = 3.0 * forward_flops(catalog.model(model), np.full(samples, length, dtype=np.int64))
    return float(flops / (gpus * catalog.gpu(gpu).peak_flops["bf16"] * mfu))


def _paper(record: Record) -> TrainingCase:
    shape = SELECTIVE[str(record.config["model"])]
    base = names.model(shape["model"])
    layers = len(catalog.model(base).layers)
    trainer = {"backend": "megatron", **{k: shape[k] for k in ("gpus", "tp", "pp")}}
    trainer |= {"micro_batch_size": shape["size"], "packing": False}
    if layers % (int(shape["pp"]) * int(shape["vpp"])) == 0:
        trainer["vpp"] = shape["vpp"]
    mfu = float(record.measured["mfu_pct"]) / 100
    cluster = {"gpu": "a100-80g"}
    samples, gpus = int(shape["samples"]), int(shape["gpus"])
    return TrainingCase(
        scenario=scenario(record.id, base, cluster, trainer, samples),
        samples=samples,
        length=GPT_SEQUENCE,
        measured=of_mfu(base, samples, GPT_SEQUENCE, gpus, "a100-80g", mfu),
        recompute={"selective": 1.0},
        profile={**PRETRAINING, **FUSED_LOSS},
        note="layout of the paper's table 3",
    )


def _pretraining(record: Record) -> TrainingCase:
    gpus, samples, length = V3["gpus"], V3["samples"], V3["length"]
    trainer: dict[str, Any] = {"gpus": gpus, "backend": "megatron", "pp": V3["pp"], "ep": V3["ep"], "etp": 1}
    trainer |= {"micro_batch_size": 1, "packing": False, "precision": "fp8", "dispatcher": DISPATCH}
    trainer["pp_layers"] = {"first": 3, "last": 2}
    tokens, hours = float(record.config["tokens_T"]) * 1e12, float(record.measured["pretrain_gpu_hours_M"]) * 1e6
    return TrainingCase(
        scenario=scenario(record.id, "deepseek-ai/DeepSeek-V3", {"gpu": "h800"}, trainer, samples),
        samples=samples,
        length=length,
        measured=samples * length / (tokens / (hours * 3600)) / gpus,
        recompute={"selective": 1.0},
        profile={**PRETRAINING, **FUSED_LOSS},
        note="set-up of the technical report; its DualPipe hides the exchange of tokens",
        hidden=("ep_comm",),
    )


def _scaling(record: Record) -> tuple[TrainingCase, ...]:
    """One case per GPU count of a strong-scaling row of a 175B model."""
    c = record.config
    if "175B" not in str(c.get("model")):
        raise SkipError("the layouts are not in the record")
    base = names.model("GPT-175B")
    samples = int(c["batch_sequences"])
    cases = []
    for gpus, mfu in zip(c["gpus"], record.measured["mfu_pct"], strict=True):
        trainer = {"gpus": gpus, "backend": "megatron", "tp": 8, "pp": 12, "vpp": 8, "micro_batch_size": 1}
        gpu = names.gpu(c["gpu"])
        case = TrainingCase(
            scenario=scenario(record.id, base, {"gpu": gpu}, {**trainer, "packing": False}, samples),
            samples=samples,
            length=GPT_SEQUENCE,
            measured=of_mfu(base, samples, GPT_SEQUENCE, gpus, gpu, mfu / 100),
            recompute={"selective": 1.0},
            profile={**PRETRAINING, **FUSED_LOSS, **OVERLAPPED},
            note="TP 8, PP 12 and 2,048 tokens assumed",
        )
        cases.append(replace(case, quantity=f"update_s {gpus} GPUs"))
    return tuple(cases)
