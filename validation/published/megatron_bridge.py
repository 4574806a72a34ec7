"""Megatron Bridge's performance summary on DGX H100: pretraining with Megatron, balanced routing, full sequences.

Its gpt-oss preset recomputes layer norms and the experts' activation only, ETP 1, fp32 gradients by default.
"""

from __future__ import annotations

from validation.published.records import Record, SkipError
from validation.published.training import FUSED_LOSS, PRETRAINING, TrainingCase, scenario

MODELS = {
    "LLAMA3_70B": "meta-llama/Llama-3.1-70B",
    "LLAMA3.1_405B": "meta-llama/Llama-3.1-405B",
    "Qwen3_30B_a3B": "Qwen/Qwen3-30B-A3B",
    "Qwen3_235B_a22B": "Qwen/Qwen3-235B-A22B",
    "GPT OSS 120B": "openai/gpt-oss-120b",
}


def convert(record: Record) -> TrainingCase:
    """The record's update."""
    c = record.config
    if c["precision"] != "BF16":
        raise SkipError("FP8 training is not modelled")
    if c["model"] not in MODELS:
        raise SkipError(f"{c['model']} is not modelled")
    gpus, samples, length = int(c["gpus_total"]), int(c["gbs"]), int(c["seq_len"])
    trainer = {
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
    }
    return TrainingCase(
        scenario=scenario(record.id, MODELS[c["model"]], {"gpu": "h100-sxm", "nic": "50 GB/s"}, trainer, samples),
        samples=samples,
        length=length,
        measured=samples * length / (float(record.measured["tokens_per_s_per_gpu"]) * gpus),
        recompute={"none": 1.0},
        profile={**PRETRAINING, **FUSED_LOSS},
    )
