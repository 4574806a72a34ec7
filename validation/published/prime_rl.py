"""prime-rl's automated trainer benchmarks: FSDP2, one sequence per GPU and micro-batch, an optimizer step after each.

The benchmark script compiles the model. The RL trainer keeps optimizer states on the host by default, the SFT trainer
on the GPU: peak memories of the two differ by that, and RL rows cost seconds more whatever the sequence length. Rows
with FlashAttention 2 on Blackwell are flagged by the file's reading notes as anomalously slow.
"""

from __future__ import annotations

import re

from validation.published.records import Record, SkipError
from validation.published.training import COMPILED, PRETRAINING, TrainingCase, scenario

GPUS = {"H100 HBM3": "h100-sxm", "H200": "h200", "B200": "b200"}


def convert(record: Record) -> TrainingCase:
    """The record's micro-batch."""
    c = record.config
    lora = re.search(r"LoRA\(r=(\d+)\)", c["train_type"])
    model = {"base": c["model"], "lora": {"rank": int(lora.group(1))}} if lora else c["model"]
    if c["gpu"] not in GPUS:
        raise SkipError(f"no {c['gpu']} in the catalog")
    if c["activation_checkpointing"] != "Recompute":
        raise SkipError("activation offload is not modelled")
    if c["gpu"] == "B200" and c["attention"] == "FA2":
        raise SkipError("FlashAttention 2 on Blackwell: flagged as anomalous by its own file")
    gpus, rl = int(c["gpus_total"]), c["train_type"].startswith("RL")
    trainer = {
        "gpus": gpus,
        "backend": "fsdp2",
        "ep": int(c["ep"]),
        "cp": int(c["cp"]),
        "packing": False,
        "micro_batch_size": 1,
        "optimizer_device": "cpu" if rl else "gpu",
    }
    return TrainingCase(
        scenario=scenario(record.id, model, {"gpu": GPUS[c["gpu"]]}, trainer, gpus),
        samples=gpus,
        length=int(c["seq_len"]),
        measured=float(record.measured["step_time_s_per_microbatch"]),
        recompute={"full": 1.0},
        profile={**({} if rl else PRETRAINING), **COMPILED},
        note="optimizer states on the host" if rl else "",
    )
