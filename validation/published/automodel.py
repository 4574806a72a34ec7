"""NeMo Automodel's performance summary on DGX H100: FSDP2 with Transformer Engine kernels and DeepEP.

EP is all GPUs in the MoE rows that state it, and is taken so where a row does not. Recompute is not stated: none.
"""

from __future__ import annotations

from validation.published.records import Record, SkipError
from validation.published.training import COMPILED, FUSED_LOSS, PRETRAINING, TrainingCase, scenario

MODELS = {"GPT-OSS 20B": "openai/gpt-oss-20b", "GPT-OSS 120B": "openai/gpt-oss-120b"}


def convert(record: Record) -> TrainingCase:
    """The record's update."""
    c = record.config
    if c["lora"]:
        raise SkipError("LoRA is not modelled")
    if c["model"] not in MODELS:
        raise SkipError(f"{c['model']} is not modelled")
    gpus = int(c["gpus_total"])
    trainer = {
        "gpus": gpus,
        "backend": "fsdp2",
        "ep": int(c.get("ep", gpus)),
        "dispatcher": "deepep",
        "packing": False,
        "micro_batch_size": int(c["mbs"]),
        "param_dtype": "bf16",
    }
    return TrainingCase(
        scenario=scenario(record.id, MODELS[c["model"]], {"gpu": "h100-sxm", "nic": "50 GB/s"}, trainer, int(c["gbs"])),
        samples=int(c["gbs"]),
        length=int(c["seq_len"]),
        measured=float(record.measured["step_time_s"]),
        recompute={"none": 1.0},
        profile={**PRETRAINING, **FUSED_LOSS, **COMPILED},
        note="EP and recompute assumed",
    )
