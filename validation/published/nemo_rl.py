"""NeMo-RL's performance summary: a record's own resolved recipe as a scenario.

What the recipes leave to defaults is taken from the framework's and the engine's source at the version of the record:

- vLLM's offline class (`async_engine: false`) on an H100: 1,024 sequences and 16,384 tokens an iteration. The async
  engine is built from engine arguments without a usage context, for which vLLM has no hardware defaults: 128 sequences
  and 2,048 tokens (scheduler defaults of vLLM 0.10 and 0.11).
- Gradients are reduced in bf16 (`grad_reduce_in_fp32: false`).
- DeepSeek-V3's 61 layers over 16 stages: first 3, last 2, and 4 on each of the others.
- Packs hold `max_total_sequence_length x micro-batch size` tokens; the log-prob pass has its own, by its batch size.
- `async_grpo`: the collector starts the batch for step g+1 as soon as version g is there, at most one batch of prompts
  in flight, and in-flight updates keep running sequences and their KV. That is bounded staleness 1 with
  `accepted + running <= (1 + v + 1)·B`, not one-step-off with a barrier. (Its batches are reserved by step; here the
  trainer takes the oldest groups that are ready.)

Lengths: the mean response is published; the mean prompt is the difference to the total that the published throughput
implies. Each response stops where prompt and response reach the limit; here at the limit less the mean prompt.
"""

from __future__ import annotations

from typing import Any

from validation.published.records import Record, SkipError

SYNC, ASYNC = "co-located sync", "1 step off"
STAGES = {("DeepSeek-V3", 16): {"first": 3, "last": 2}}
ENGINE_LIMITS = {False: (1024, 16384), True: (128, 2048)}
"""async_engine -> (sequences, tokens) of one iteration."""
STEPS = {SYNC: 3, ASYNC: 8}
"""Measured steps of a prediction: asynchronous ones differ by a tenth from one to the next, synchronous ones hardly."""


def mode(record: Record) -> str:
    """What the trivial rival has a constant for."""
    return ASYNC if record.config["resolved_recipe"]["async_grpo"] else SYNC


def recipe_name(record: Record) -> str:
    """The recipe without its version: what repeats between versions."""
    return str(record.config["resolved_recipe"]["recipe"]).split("@")[0]


def version(record: Record) -> str:
    """`v0.4.0` of "NeMo RL v0.4.0"."""
    return str(record.config["system"]).split()[-1]


def layout(record: Record) -> tuple[Any, ...]:
    """What makes a repeated recipe another case: its parallel layout, on either side."""
    r = record.config["resolved_recipe"]
    keys = ("training_gpus", "train_tp", "train_pp", "train_cp", "train_ep", "generation_gpus", "gen_tp", "gen_ep")
    return tuple(r[key] for key in keys)


def scenario(record: Record) -> dict[str, Any]:
    """The scenario of one record."""
    r = record.config["resolved_recipe"]
    if record.config.get("precision_train", "bf16") != "bf16" or record.config.get("precision_generation") not in (
        None,
        "bf16",
    ):
        raise SkipError("FP8 recipes are not modelled")
    asynchronous = bool(r["async_grpo"])
    return {
        "name": record.id,
        "model": r["model"],
        "framework": {"name": "nemo-rl", "version": version(record).lstrip("v")},
        "cluster": {
            "gpu": "h100-sxm",
            "gpus": r["num_nodes"] * r["gpus_per_node"],
            "gpus_per_node": r["gpus_per_node"],
            "nic": "50 GB/s",
        },
        "workload": _workload(record),
        "placement": "colocated" if r["colocated"] else "disaggregated",
        "schedule": "async" if asynchronous else "sync",
        "async": {
            "policy": "areal",
            "max_staleness": r["max_trajectory_age_steps"],
            "max_concurrent": r["num_prompts_per_step"] * r["max_trajectory_age_steps"],
            "on_sync": "in-flight" if r["in_flight_weight_updates"] else "drain",
        },
        "trainer": _trainer(r),
        "rollout": _rollout(r),
        "offload": {"optimizer": True, "params": True},
        "run": {"steps": STEPS[mode(record)], "seed": 0},
    }


def _workload(record: Record) -> dict[str, Any]:
    r, m = record.config["resolved_recipe"], record.measured
    response = float(m["avg_generated_tokens_per_sample"])
    prompt = float(m["derived_total_tokens_per_sample"]) - response
    limit = int(r["max_total_sequence_length"])
    samples = r["num_prompts_per_step"] * r["num_generations_per_prompt"]
    return {
        "algorithm": "grpo",
        "prompts": r["num_prompts_per_step"],
        "group_size": r["num_generations_per_prompt"],
        "prompt_tokens": {"mean": prompt, "max": min(limit // 2, 8 * prompt)},
        "response_tokens": {"mean": response, "max": int(limit - prompt)},
        "updates": {"mini_batches": max(1, samples // r["train_global_batch_size"]), "epochs": 1},
        "logprob": "recompute",
        "reference_model": r["reference_policy_kl_penalty"] > 0 and not r.get("skip_reference"),
        "reward": {"kind": "rule"},
    }


def _trainer(r: dict[str, Any]) -> dict[str, Any]:
    limit = r["max_total_sequence_length"]
    stages = {str(r["model"]): r["train_pp"]}
    ends = [ends for (name, pp), ends in STAGES.items() for model, p in stages.items() if name in model and p == pp]
    trainer: dict[str, Any] = {
        "gpus": r["training_gpus"],
        "backend": "megatron",
        "tp": r["train_tp"],
        "pp": r["train_pp"],
        "cp": r["train_cp"],
        "ep": r["train_ep"],
        "etp": r["train_etp"],
        "sequence_parallel": r["sequence_parallel"],
        "recompute": "full" if r["activation_checkpointing"] else "none",
        "packing": r["sequence_packing"],
        "grad_dtype": "bf16",
        "micro_batch_tokens": limit * r["train_micro_batch_size"],
        "logprob_micro_batch_tokens": limit * r["logprob_batch_size"],
    }
    if ends:
        trainer["pp_layers"] = ends[0]
    return trainer


def _rollout(r: dict[str, Any]) -> dict[str, Any]:
    sequences, tokens = ENGINE_LIMITS[bool(r["async_engine"])]
    rollout: dict[str, Any] = {
        "gpus": r["generation_gpus"],
        "engine": "vllm",
        "tp": r["gen_tp"],
        "pp": r["gen_pp"],
        "dtype": "bf16",
        "memory_utilization": r["gpu_memory_utilization"],
        "max_num_seqs": sequences,
        "max_num_batched_tokens": tokens,
        "enforce_eager": r["enforce_eager"],
        "return_logprobs": True,
    }
    if r["gen_ep"] > 1:
        rollout["ep"] = r["gen_ep"]
    return rollout
