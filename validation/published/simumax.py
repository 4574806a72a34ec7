"""SimuMax's B200 release table: Megatron on one node, models cut to 4 or 12 layers, real iteration times.

From its repository's launchers: sequences of 4,096 tokens unless the case says otherwise, micro-batches of one, no
recompute (block of 0 layers), distributed optimizer, fp32 gradients, TP communication in line, ETP 1, routing held to
the experts' capacity; DeepSeek models with one dense layer. `cef` is a fused cross-entropy. CP there exchanges heads
(all-to-all); rlsim's Megatron knows the ring.
"""

from __future__ import annotations

from validation.published.records import Record, SkipError
from validation.published.training import FUSED_LOSS, PRETRAINING, TrainingCase, scenario, truncated

MODELS = {
    "llama3_70b": ("meta-llama--Llama-3.1-70B", None),
    "llama3_405b": ("meta-llama--Llama-3.1-405B", None),
    "deepseekv2": ("deepseek-v2", 1),
    "deepseekv3": ("deepseek-ai--DeepSeek-V3", 1),
}
SEQUENCE = 4096


def convert(record: Record) -> TrainingCase:
    """The record's iteration."""
    c = record.config
    name = next((key for key in MODELS if str(c["case"]).startswith(key)), None)
    if name is None or c["precision"] != "bf16":
        raise SkipError("model or precision not modelled")
    file, dense = MODELS[name]
    tp, cp = int(c["tp"]), int(c.get("cp", 1))
    length, samples = int(c.get("seq_len") or SEQUENCE), int(c["dp"]) * int(c["micro_batch_count"])
    trainer = {
        "gpus": int(c["gpus_total"]),
        "backend": "megatron",
        "tp": tp,
        "pp": int(c["pp"]),
        "cp": cp,
        "ep": int(c.get("ep", 1)),
        "etp": 1 if dense is not None else tp,
        "sequence_parallel": tp > 1,
        "micro_batch_size": 1,
        "grad_dtype": "fp32",
    }
    return TrainingCase(
        scenario=scenario(record.id, truncated(file, int(c["layers"]), dense), {"gpu": "b200"}, trainer, samples),
        samples=samples,
        length=length,
        measured=float(record.measured["iteration_ms"]) / 1e3,
        recompute={"none": 1.0},
        profile={**PRETRAINING, **FUSED_LOSS, "tp_overlap": 0.0},
        note="CP by all-to-all in the source, as a ring here" if cp > 1 else "",
    )
