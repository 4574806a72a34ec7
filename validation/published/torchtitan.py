"""torchtitan's benchmark pages: FSDP2 (with TP, PP, CP) on H100s of 500 W and 2.4 TB/s, one read-out each.

Sequences are 8,192 tokens where a row does not say (the model configuration's default). The micro-batch is the local
batch. "selective" is torchtitan's per-operation policy: it keeps attention and every second matmul, so half of a full
recompute. Attention is
PyTorch's, FlashAttention 2. Its loss is PyTorch's cross-entropy on fp32 logits.
"""

from __future__ import annotations

import re

from validation.published import names
from validation.published.records import Record, SkipError
from validation.published.training import COMPILED, PRETRAINING, TrainingCase, even_stages, flash_attention_2, scenario

PER_OPERATION = {"none": 1.0, "full": 0.5, "selective": -0.5}
"""Half of what a full recompute repeats, but not its attention."""
RECOMPUTE = {
    "selective": PER_OPERATION,
    "per-op selective": PER_OPERATION,
    "full": {"full": 1.0},
}
SEQUENCE = 8192
PIPELINE = "FSDP with a pipeline priced as Megatron's distributed optimizer"


def convert(record: Record) -> TrainingCase:
    """The record's update; `SkipError` where its precision or set-up is not modelled or not stated."""
    c, m = record.config, record.measured
    how = f"{c.get('techniques', '')} {c.get('quantization', '')}".lower()
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
    pieces = {"tp_pipelined_overlap": 1.0} if "asynctp" in how else {}
    compiled = "compile" in how or bool(c.get("compile"))
    base = names.model(c["model"])
    uneven = even_stages(base, pp)
    trainer = {
        "precision": "fp8" if "float8" in how else "bf16",
        "gpus": gpus,
        "backend": "megatron" if pp > 1 else "fsdp2",
        **({"pp_layers": uneven} if uneven else {}),
        "tp": tp,
        "pp": pp,
        "cp": cp,
        "packing": False,
        "micro_batch_size": 1 if pp > 1 else local,
    }
    return TrainingCase(
        scenario=scenario(record.id, base, {"gpu": "h100-sxm", "hbm_bandwidth": "2.4 TB/s"}, trainer, samples),
        samples=samples,
        length=length,
        measured=samples * length / (rate * gpus),
        recompute=RECOMPUTE[c.get("activation_checkpointing") or "full"],
        gpu={"watts": 500.0},
        profile={**PRETRAINING, **(COMPILED if compiled else {}), **pieces},
        scale=flash_attention_2("h100-sxm"),
        note="without asynchronous TP" if "vanilla_tp_tokens_per_s" in m else PIPELINE if pp > 1 else "",
    )
