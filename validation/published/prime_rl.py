"""prime-rl's automated trainer benchmarks: FSDP2, one sequence per GPU and micro-batch, an optimizer step after each.

The benchmark script compiles the model. The RL trainer keeps both moments in pinned host memory, and moves them to the
GPU and back around each optimizer step; the copy back goes to fresh pageable memory first, then to pinned. Rows
with FlashAttention 2 on Blackwell are flagged by the file's reading notes as anomalously slow.
"""

from __future__ import annotations

import re

from validation.published import names
from validation.published.records import Record
from validation.published.training import COMPILED, PRETRAINING, TrainingCase, flash_attention_2, scenario

MOMENTS = 8.0
"""Bytes per parameter of Adam's two moments in fp32."""


def convert(record: Record) -> TrainingCase:
    """The record's micro-batch."""
    c = record.config
    lora = re.search(r"LoRA\(r=(\d+)\)", c["train_type"])
    model = {"base": names.model(c["model"]), "lora": {"rank": int(lora.group(1))}} if lora else names.model(c["model"])
    gpu = names.gpu(c["gpu"])
    attention = flash_attention_2(gpu) if c["attention"] == "FA2" else {}
    note = "FlashAttention 2 on Ampere's instructions" if attention else ""
    if c["activation_checkpointing"] != "Recompute":
        note = "; ".join(filter(None, [note, "copies of the kept activations taken as hidden"]))
    gpus, rl = int(c["gpus_total"]), c["train_type"].startswith("RL")
    trainer = {
        "gpus": gpus,
        "backend": "fsdp2",
        "ep": int(c["ep"]),
        "cp": int(c["cp"]),
        "packing": False,
        "micro_batch_size": 1,
    }
    return TrainingCase(
        scenario=scenario(record.id, model, {"gpu": gpu}, trainer, gpus),
        samples=gpus,
        length=int(c["seq_len"]),
        measured=float(record.measured["step_time_s_per_microbatch"]),
        recompute={"full": 1.0},
        profile={**({} if rl else PRETRAINING), **COMPILED},
        scale=attention,
        swapped=MOMENTS if rl else 0.0,
        note="; ".join(filter(None, ["optimizer states on the host" if rl else "", note])),
    )
