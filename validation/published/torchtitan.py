"""torchtitan's benchmark pages: FSDP2 (with TP, PP, CP) on H100s of 500 W and 2.4 TB/s, one read-out each.

Sequences are 8,192 tokens where a row does not say (the model configuration's default). The micro-batch is the local
batch. "selective" is torchtitan's per-operation policy: it keeps attention and every second matmul, so half of a full
recompute. Its loss is PyTorch's cross-entropy on fp32 logits.
"""

from __future__ import annotations

import re

from validation.published.records import Record, SkipError
from validation.published.training import COMPILED, PRETRAINING, TrainingCase, scenario

MODELS = {
    "Llama 3.1 8B": "meta-llama/Llama-3.1-8B",
    "Llama3 8B": "meta-llama/Llama-3.1-8B",
    "Llama 3.1 70B": "meta-llama/Llama-3.1-70B",
    "Llama3 70B": "meta-llama/Llama-3.1-70B",
    "Llama 3.1 405B": "meta-llama/Llama-3.1-405B",
}
RECOMPUTE = {
    "selective": {"none": 0.5, "full": 0.5},
    "per-op selective": {"none": 0.5, "full": 0.5},
    "full": {"full": 1.0},
}
SEQUENCE = 8192


def convert(record: Record) -> TrainingCase:
    """The record's update; `SkipError` where its precision or set-up is not modelled or not stated."""
    c, m = record.config, record.measured
    how = f"{c.get('techniques', '')} {c.get('quantization', '')}".lower()
    if "float8" in how:
        raise SkipError("FP8 training is not modelled")
    if "parallelism" not in c:
        raise SkipError("layout and precision are not in the record")
    degrees = {name: int(size) for name, size in re.findall(r"(FSDP|TP|PP|CP) (\d+)", c["parallelism"])}
    tp, pp, cp = (degrees.get(name, 1) for name in ("TP", "PP", "CP"))
    gpus = int(c["gpus_total"])
    ranks = gpus // (tp * pp * cp)
    length = int(c.get("seq_len") or SEQUENCE)
    local = int(c["local_batch"])
    samples = int(c.get("global_batch") or local * ranks)
    rate = float(m.get("tokens_per_s_per_gpu") or m["vanilla_tp_tokens_per_s"])
    compiled = "compile" in how or bool(c.get("compile"))
    trainer = {
        "gpus": gpus,
        "backend": "fsdp2",
        "tp": tp,
        "pp": pp,
        "cp": cp,
        "packing": False,
        "micro_batch_size": local,
    }
    return TrainingCase(
        scenario=scenario(
            record.id, MODELS[c["model"]], {"gpu": "h100-sxm", "hbm_bandwidth": "2.4 TB/s"}, trainer, samples
        ),
        samples=samples,
        length=length,
        measured=samples * length / (rate * gpus),
        recompute=RECOMPUTE[c["activation_checkpointing"]],
        gpu={"watts": 500.0},
        profile={**PRETRAINING, **(COMPILED if compiled else {})},
        note="without asynchronous TP" if "vanilla_tp_tokens_per_s" in m else "",
    )
