"""A record of an RL run as a scenario, from whatever of these keys its source gives; the generic converter of `rl_*`.

What a record leaves open is filled in as the framework's own defaults have it (frameworks' source, verl's in most), and
the note names what moves the time most:

- Batch and lengths: `rl_workload`.
- verl before version 0.6 gathers and loads weights inside `gen`; the co-located step has no timer of its own for it.
- FSDP recomputes all activations (verl's default); verl's Megatron ignores that key, and keeps them.
- GPUs that a log does not name: from the logged MFU and verl's FLOPs formula, 6·N·tokens / (seconds · GPUs · MFU).
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from rlsim import catalog
from rlsim.model import active_parameters, parameters
from validation.published import facts, names
from validation.published.facts import first, whole
from validation.published.records import Record, SkipError
from validation.published.rl_workload import workload

PEAKS = ("h100-sxm", "a100-80g", "h20", "l20", "b200", "l40s")
"""GPUs whose bf16 peak in verl's table tells them apart."""
PEAK_TOLERANCE = 0.25
STEPS = {"sync": 2, "one-step-off": 3, "async": 6}
FRAMEWORKS = {
    "nemo": "nemo-rl",
    "verl": "verl",
    "easyr1": "verl",
    "rllm": "verl",
    "areal": "areal",
    "openrlhf": "openrlhf",
    "vime": "slime",
    "slime": "slime",
    "rl-kernel": "slime",
    "trl": "trl",
    "roll": "roll",
}
"""Part of a source's reference -> framework; vime and RL-Kernel's runs are slime's trainer and controller."""
INFERRED = "GPU inferred from the logged MFU"


@dataclass(frozen=True)
class RlCase:
    """A run and the seconds that were published of it, by quantity.

    padded   tokens that every sample is padded to in training; None: padding is removed
    split    whether the weight sync has a timer of its own (else it is in gen)
    """

    scenario: Mapping[str, Any]
    measured: Mapping[str, float]
    note: str = ""
    padded: int | None = None
    split: bool = False
    values: Mapping[str, float] = field(default_factory=dict)


def convert(record: Record) -> RlCase:
    """The record as one case; `SkipError` where it does not say enough."""
    c = record.config
    measured = facts.timers(record)
    notes: list[str] = []
    model = names.model(c.get("model"))
    mode = schedule(record)
    shape = _gpus(record, mode)
    gpu = _gpu(record, model, shape[0], notes)
    work = workload(record, shape[0], mode, notes)
    lora = re.search(r"LoRA rank (\d+)", str(c.get("algorithm", "")))
    scenario = {
        "name": re.sub(r"[^\w.-]", "-", record.id),
        "model": {"base": model, "lora": {"rank": int(lora.group(1))}} if lora else model,
        "framework": framework(record),
        "cluster": {"gpu": gpu, "gpus": shape[0], "gpus_per_node": _per_node(record, gpu, shape[0])},
        "workload": work,
        "placement": "disaggregated" if shape[1] else "colocated",
        "schedule": mode,
        "async": _staleness(record),
        "trainer": _trainer(record, shape[1] or shape[0], work, notes),
        "rollout": _rollout(record, shape[2] or shape[0], gpu, notes),
        "offload": {"optimizer": _offloads(record, "optimizer"), "params": _offloads(record, "param")},
        "run": {"steps": STEPS[mode], "seed": 0},
    }
    if shape[1]:
        del scenario["offload"]
    if mode != "sync" and "step_time_s" in measured:
        measured = {"step_time_s": measured["step_time_s"]}
    return RlCase(scenario, measured, "; ".join(notes), _padded(record), "update_weights_s" in measured)


def framework(record: Record) -> str:
    """The framework that the source is about."""
    where = f"{record.config.get('framework', '')} {record.source} {record.reference}".lower()
    return next((name for part, name in FRAMEWORKS.items() if part in where), "generic")


def schedule(record: Record) -> str:
    """sync, one-step-off or async, from the mode's text."""
    text = str(record.config.get("mode", "")).lower()
    if "one-step" in text or "one step" in text or "overlap" in text:
        return "one-step-off"
    if "colocate" in text or "async" not in text:
        return "sync"
    return "async"


def _gpus(record: Record, mode: str) -> tuple[int, int, int]:
    """(all, trainer's, rollout's); the last two 0 where they share."""
    c = record.config
    train = whole(c, "trainer_gpus", "trainer_devices", "actor_gpus", "policy_gpus") or 0
    roll = whole(c, "rollout_gpus", "rollout_devices", "inference_gpus") or 0
    total = whole(c, "gpus_total", "devices_total", "npus_total_in_config") or train + roll
    total = total or int(facts.flat(record).get("derived_gpus_total", 0))
    if not total and c.get("nodes"):
        total = int(c["nodes"]) * (whole(c, "gpus_per_node") or 8)
    if not total:
        raise SkipError("the number of GPUs is not in the record")
    if roll and not train:
        train = total - roll
    if train and not roll and total > train:
        roll = total - train
    if mode == "async" and not train:
        # the share that published splits have most often
        train, roll = total // 4, total - total // 4
    return (total, train, roll) if train and roll else (total, 0, 0)


def _per_node(record: Record, gpu: str, total: int) -> int:
    per = whole(record.config, "gpus_per_node") or catalog.gpu(gpu).gpus_per_node
    per = min(per, total)
    return per if total % per == 0 else next(n for n in range(per, 0, -1) if total % n == 0)


def _by_memory(record: Record) -> str | None:
    """A V100 of 32 GB by its total memory, the only GPU of that size with tensor cores."""
    total = facts.flat(record).get("memory_total_gb") or facts.number(record.measured.get("memory_total_gb"))
    return "V100" if total and 30 < total < 33 else None


def _gpu(record: Record, model: str, total: int, notes: list[str]) -> str:
    """As stated, else from the logged MFU, else an H100."""
    stated = first(record.config, "gpu", "device", "hardware") or _by_memory(record)
    if stated:
        return names.gpu(stated)
    seen = facts.flat(record)
    mfu, tokens, seconds = (seen.get(k) for k in ("mfu/actor", "total_num_tokens", "update_actor"))
    mfu = mfu or seen.get("mfu_actor")
    if mfu and tokens and seconds:
        peak = 6.0 * active_parameters(catalog.model(model)) * tokens / (seconds * total * mfu)
        close = {name: abs(catalog.gpu(name).peak_flops["bf16"] / peak - 1) for name in PEAKS}
        best = min(close, key=lambda name: close[name])
        if close[best] < PEAK_TOLERANCE:
            notes.append(INFERRED)
            return best
    notes.append("GPU not stated: H100 assumed")
    return "h100-sxm"


def _staleness(record: Record) -> dict[str, Any]:
    c = record.config
    theta = facts.number(first(c, "staleness_threshold", "staleness"))
    if framework(record) == "verl":
        return {
            "policy": "verl",
            "theta": 0.1 if theta is None else theta,
            "require_batches": whole(c, "require_batches") or 1,
            "sync_every": whole(c, "trigger_parameter_sync_step") or 4,
            "partial_rollout": bool(c.get("partial_rollout", True)),
        }
    return {"policy": "areal", "max_staleness": int(theta or 4 if framework(record) == "areal" else theta or 1)}


# --- trainer and engine -----------------------------------------------------------------------------------------------
def degree(record: Record, name: str) -> int | None:
    """A parallel degree of the trainer, from its key or from the backend's text ("Megatron TP4 PP2")."""
    c = record.config
    found = whole(c, f"train_{name}", f"actor_{name}", f"{name}" if "layout" not in c else "")
    text = re.search(rf"\b{name}(\d+)", str(c.get("train_backend", "")), re.I)
    return found or (int(text.group(1)) if text else None)


def _trainer(record: Record, gpus: int, work: Mapping[str, Any], notes: list[str]) -> dict[str, Any]:
    c = record.config
    text = str(c.get("train_backend", "")).lower()
    megatron = "megatron" in text or (not text and bool(degree(record, "tp")))
    out: dict[str, Any] = {"gpus": gpus, "backend": "megatron" if megatron else "fsdp2"}
    if megatron:
        tp, pp, cp, ep = (degree(record, k) or 1 for k in ("tp", "pp", "cp", "ep"))
        if degree(record, "tp") is None:
            tp = _fitting(record, gpus)
            notes.append(f"trainer TP {tp} assumed")
        out |= {"tp": tp, "pp": pp, "cp": cp, "ep": ep}
        if ep > 1:
            out["etp"] = 1
        out["recompute"] = "full" if "full recompute" in text else "none"
    else:
        ulysses = whole(c, "train_ulysses_sp", "ulysses_sp", "ulysses_sequence_parallel_size") or 1
        size = whole(c, "fsdp_size")
        out |= {"ulysses": ulysses, "recompute": "none" if c.get("gradient_checkpointing") is False else "full"}
        if size and size < gpus and gpus % size == 0:
            out["fsdp_size"] = max(size, ulysses)
    samples = int(work["prompts"]) * int(work["group_size"])
    size = whole(c, "ppo_micro_batch_size_per_gpu", "per_device_training_batch_size", "micro_batch_update")
    over_all = whole(c, "ppo_micro_batch_size")
    if size is None and over_all:
        size = max(1, over_all * int(work["group_size"]) // gpus)
    forward = whole(c, "log_prob_micro_batch_size_per_gpu", "micro_batch_experience")
    over_all = whole(c, "log_prob_micro_batch_size")
    if forward is None and over_all:
        forward = max(1, over_all * int(work["group_size"]) // gpus)
    budget = whole(c, "max_tokens_per_gpu")
    if "dynamic batching" in text or c.get("use_dynamic_bsz"):
        limit = (whole(c, "max_prompt_length") or 0) + (whole(c, "max_response_length") or 0)
        budget, size = budget or (size or 1) * limit, None
    if size:
        out |= {"micro_batch_size": min(size, samples)}
        if forward or size:
            out |= {"logprob_micro_batch_size": forward or size}
    else:
        limit = int(work["prompt_tokens"]["max"]) + int(work["response_tokens"]["max"])
        split = out.get("ulysses", 1) * out.get("cp", 1)
        # verl's scripts: (prompt + response) x 1 or 2 a GPU, x the ranks that share a sequence
        out |= {"micro_batch_tokens": budget * split if budget else max(16384, limit)}
    return out


def _fitting(record: Record, gpus: int) -> int:
    """TP of Megatron where it is not stated: verl's examples have 2 up to 8B, 4 up to 20B, 8 beyond."""
    billions = facts.number(re.sub(r".*?(\d+(\.\d+)?)B.*", r"\1", str(record.config.get("model")))) or 7.0
    return min(gpus, 2 if billions <= 8 else 4 if billions <= 20 else 8)


def _rollout(record: Record, gpus: int, gpu: str, notes: list[str]) -> dict[str, Any]:
    c = record.config
    text = str(c.get("rollout_backend", "")).lower()
    engine = "sglang" if "sglang" in text else "trtllm" if "tensorrt" in text else "vllm"
    tp = whole(c, "generation_tp", "rollout_tp") or (whole(c, "tp") if "layout" not in c else None)
    stated = re.search(r"\btp(\d+)", text)
    if tp is None and stated:
        tp = int(stated.group(1))
    if tp is None and whole(c, "rollout_engines", "engines"):
        tp = gpus // int(whole(c, "rollout_engines", "engines") or 1)
    if tp is None:
        tp = _room(record, gpu, gpus)
        notes.append(f"rollout TP {tp} assumed")
    experts = re.search(r"\bep(\d+)", text)
    out: dict[str, Any] = {
        "gpus": gpus,
        "engine": engine,
        "tp": min(tp, gpus),
        "memory_utilization": facts.number(c.get("gpu_memory_utilization")) or 0.5,
        "max_num_seqs": whole(c, "max_num_seqs") or 1024,
        "max_num_batched_tokens": whole(c, "max_num_batched_tokens") or 8192,
        "enforce_eager": "enforce_eager" in text or bool(c.get("enforce_eager", _early(record))),
    }
    if experts:
        out["ep"] = int(experts.group(1))
    return out


def _early(record: Record) -> bool:
    """Logs of verl's first years: its configuration had `enforce_eager: True` until version 0.5 (July 2025)."""
    return framework(record) == "verl" and bool(re.search(r"verl-?data", record.reference))


def _room(record: Record, gpu: str, gpus: int) -> int:
    """TP of an engine where it is not stated: 2 as verl has it, more where weights would take over half the memory."""
    weights = 2.0 * parameters(catalog.model(names.model(record.config.get("model"))))
    tp = 2
    while tp < 8 and weights / tp > 0.5 * catalog.gpu(gpu).hbm_bytes:
        tp *= 2
    return min(tp, gpus)


def _offloads(record: Record, what: str) -> bool:
    c = record.config
    said = first(c, f"{what}_offload", "actor_offload", "offload")
    text = str(c.get("train_backend", "")).lower()
    return bool(said) or ("offloaded" in text and what[:5] in text)


def _padded(record: Record) -> int | None:
    """Prompt and response limit together where padding is not removed."""
    c = record.config
    if any("no padding removal" in note for note in record.notes) and c.get("max_response_length"):
        return int(c["max_prompt_length"]) + int(c["max_response_length"])
    return None
