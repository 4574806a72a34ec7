"""NeMo Automodel's performance summary on DGX H100: FSDP2 with Transformer Engine kernels and DeepEP.

EP is all GPUs in the MoE rows that state it, and is taken so where a row does not. Recompute is not stated: none.
"""

from __future__ import annotations

import re

from validation.published import names
from validation.published.records import Record
from validation.published.training import COMPILED, FUSED_LOSS, PRETRAINING, TrainingCase, scenario

RANK = 8
"""Rank of the LoRA rows, which do not state it: the framework's default."""


def convert(record: Record) -> TrainingCase:
    """The record's update."""
    c = record.config
    base = names.model(re.sub(r" \d+-node$", "", str(c["model"])))
    gpus = int(c["gpus_total"])
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
        scenario=scenario(record.id, model, {"gpu": names.gpu(c.get("gpu", "H100"))}, trainer, int(c["gbs"])),
        samples=int(c["gbs"]),
        length=int(c["seq_len"]),
        measured=float(record.measured["step_time_s"]),
        recompute={"none": 1.0},
        profile={**PRETRAINING, **FUSED_LOSS, **COMPILED},
        note=f"LoRA rank {RANK} and recompute assumed" if c["lora"] else "EP and recompute assumed",
    )
