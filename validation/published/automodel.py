"""NeMo Automodel's performance summary on DGX H100: FSDP2 with Transformer Engine kernels and DeepEP.

EP is all GPUs in the MoE rows that state it, and is taken so where a row does not. Recompute is not stated: none.
"""

from __future__ import annotations

from validation.published.records import Record, SkipError
from validation.published.training import COMPILED, FUSED_LOSS, PRETRAINING, TrainingCase, scenario

MODELS = {
    "GPT-OSS 20B": "openai/gpt-oss-20b",
    "GPT-OSS 120B": "openai/gpt-oss-120b",
    "Qwen2.5 32B": "Qwen/Qwen2.5-32B",
    "Qwen2.5 32B 2-node": "Qwen/Qwen2.5-32B",
}
RANK = 8
"""Rank of the LoRA rows, which do not state it: the framework's default."""


def convert(record: Record) -> TrainingCase:
    """The record's update."""
    c = record.config
    if c["model"] not in MODELS:
        raise SkipError(f"{c['model']} is not modelled")
    gpus, base = int(c["gpus_total"]), MODELS[c["model"]]
    model = {"base": base, "lora": {"rank": RANK}} if c["lora"] else base
    experts = {} if c["lora"] else {"ep": int(c.get("ep", gpus)), "dispatcher": "deepep"}
    trainer = {
        "gpus": gpus,
        "backend": "fsdp2",
        "tp": int(c["tp"]),
        **experts,
        "packing": False,
        "micro_batch_size": int(c["mbs"]),
        "param_dtype": "bf16",
    }
    return TrainingCase(
        scenario=scenario(record.id, model, {"gpu": "h100-sxm", "nic": "50 GB/s"}, trainer, int(c["gbs"])),
        samples=int(c["gbs"]),
        length=int(c["seq_len"]),
        measured=float(record.measured["step_time_s"]),
        recompute={"none": 1.0},
        profile={**PRETRAINING, **FUSED_LOSS, **COMPILED},
        note=f"LoRA rank {RANK} and recompute assumed" if c["lora"] else "EP and recompute assumed",
    )
