"""Megatron Bridge's performance summary on DGX H100: pretraining with Megatron, balanced routing, full sequences.

FP8 rows scale tensors. Presets overlap TP and DP traffic, and exchange tokens by DeepEP. Its gpt-oss preset recomputes
layer norms and the experts' activation only, ETP 1, fp32 gradients by default.
"""

from __future__ import annotations

from typing import Any

from validation.published import names
from validation.published.records import Record
from validation.published.training import FUSED_LOSS, OVERLAPPED, PRETRAINING, TrainingCase, even_stages, scenario


def convert(record: Record) -> TrainingCase:
    """The record's update."""
    c = record.config
    base = names.model(c["model"])
    gpus, samples, length = int(c["gpus_total"]), int(c["gbs"]), int(c["seq_len"])
    trainer: dict[str, Any] = {
        "gpus": gpus,
        "backend": "megatron",
        "tp": int(c["tp"]),
        "pp": int(c["pp"]),
        "vpp": int(c.get("vp", 1)),
        "cp": int(c["cp"]),
        "ep": int(c.get("ep", 1)),
        "etp": 1,
        "micro_batch_size": int(c["mbs"]),
        "grad_dtype": "fp32",
        "precision": "fp8" if "FP8" in c["precision"].upper() else "bf16",
    }
    uneven = even_stages(base, int(c["pp"]))
    if uneven:
        trainer["pp_layers"] = uneven
        trainer["vpp"] = 1
    if trainer["ep"] > 1:
        trainer["dispatcher"] = "deepep"
    return TrainingCase(
        scenario=scenario(record.id, base, {"gpu": names.gpu(c.get("gpu", "H100"))}, trainer, samples),
        samples=samples,
        length=length,
        measured=samples * length / (float(record.measured["tokens_per_s_per_gpu"]) * gpus),
        recompute={"none": 1.0},
        profile={**PRETRAINING, **FUSED_LOSS, **OVERLAPPED},
    )
