"""Batch and lengths of an RL record, as a scenario's block `workload`.

The mean length where it is logged; else from tokens or throughput where they are; else assumed from the kind of model:
about 1,000 tokens with a tail up to the cap for models that answer directly, half the cap (at most 8,000) for those
with long chains of thought.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from validation.published import facts, names
from validation.published.facts import first, whole
from validation.published.records import Record, SkipError

PROMPT = 200
"""Mean tokens of a math prompt with its template, where nothing is stated."""
DIRECT = {"mean": 1000, "p99": 8000}
"""Tokens of answers without long chains of thought; the tail never stops."""
THOUGHT, MOST_THOUGHT = 0.5, 8000
"""Share of the cap that chains of thought fill in the mean, and at most how many tokens."""
LIMIT = 16384
"""Response limit of reasoning runs where none is stated."""


def workload(record: Record, total: int, mode: str, notes: list[str]) -> dict[str, Any]:
    """The block; what is assumed goes into `notes`."""
    c = record.config
    mini = whole(c, "ppo_mini_batch_size")
    prompts = whole(c, "prompts_per_param_sync", "train_batch_size", "rollout_batch_size", "prompts", "batch_size")
    if mode == "async" and mini and c.get("trigger_parameter_sync_step"):
        prompts = mini * (whole(c, "require_batches") or 1) * int(c["trigger_parameter_sync_step"])
    prompts = prompts or whole(c, "num_prompts_per_step")
    samples = whole(c, "num_rollout_samples", "global_batch", "global_batch_size")
    n = whole(c, "rollout_n", "n", "n_samples", "n_rollouts", "num_generations", "num_generations_per_prompt")
    seen = facts.flat(record)
    if prompts is None and samples:
        prompts, n = (samples // n, n) if n else (samples, 1)
    if prompts is None:
        raise SkipError("the batch is not in the record")
    cap = whole(c, "max_response_length", "max_response") or _cap(record)
    most = whole(c, "max_prompt_length", "max_prompt") or 1024
    if n is None:
        n = _group(seen, total, prompts, cap, most, notes)
    prompt = seen.get("prompt_length/mean") or seen.get("prompt_mean") or seen.get("prompt_length_mean")
    if prompt is None:
        prompt = min(PROMPT, most / 2)
    response = _response(record, prompts * n, prompt, cap, total, notes)
    prompt_block = {"mean": prompt, "max": max(int(prompt) + 1, min(most, int(seen.get("prompt_length/max", most))))}
    batches = max(1, prompts // mini) if mini else whole(c, "n_mini_batch") or 1
    if mini is None and samples and record.config.get("global_batch_size") and prompts * n > samples:
        batches = prompts * n // samples
    asynchronous = mode == "async" and "old_log_prob_s" not in facts.timers(record)
    return {
        "algorithm": "ppo" if str(c.get("algorithm", "")).upper().startswith("PPO") else "grpo",
        "prompts": prompts,
        "group_size": n,
        "prompt_tokens": prompt_block,
        "response_tokens": response,
        "updates": {"mini_batches": batches, "epochs": 1},
        "logprob": "rollout" if asynchronous else "recompute",
        "reference_model": bool(c.get("kl_loss")) or "ref_s" in facts.timers(record),
        "reward": {"kind": "rule"},
    }


def _cap(record: Record) -> int:
    """The response limit, where it stands in a remark or is the model's own."""
    text = re.search(r"(\d[\d,]+) response cap", " ".join(map(str, record.config.values())))
    if text:
        return int(text.group(1).replace(",", ""))
    mean = facts.flat(record).get("mean_generated_tokens")
    if mean:
        return int(4 * mean)
    if record.config.get("max_sequence_length"):
        return int(record.config["max_sequence_length"])
    if names.thinks(record.config.get("model")):
        return LIMIT
    raise SkipError("neither the response lengths nor their limit are in the record")


def _group(seen: Mapping[str, float], total: int, prompts: int, cap: int, most: int, notes: list[str]) -> int:
    """Responses a prompt, from token sums: the smallest usual number whose mean sample fits under the limits."""
    low, high = seen.get("global_seqlen_min"), seen.get("global_seqlen_max")
    if low and high:
        mean_of = {n: (low + high) / 2 * total / (prompts * n) for n in (8, 16, 32)}
        n = next((n for n, mean in mean_of.items() if mean < cap + most), None)
        if n:
            notes.append(f"{n} responses a prompt, from the token sums")
            return n
    notes.append("8 responses a prompt assumed")
    return 8


def _response(record: Record, samples: int, prompt: float, cap: int, total: int, notes: list[str]) -> dict[str, Any]:
    """The length block of responses."""
    c, seen = record.config, facts.flat(record)
    tokens = seen.get("total_num_tokens")
    keys = ("response_length/mean", "response_mean", "response_length_mean", "derived_mean_response_length")
    if c.get("max_agent_turns"):
        notes.append("trajectories of half the limit assumed: environment tokens are not logged")
        return {"mean": cap / 2, "max": cap}
    if c.get("per_device_generation_batch_size"):
        notes.append("every sample at both limits: the engine reserves them")
        return {"distribution": "constant", "mean": cap}
    mean = next((seen[k] for k in keys if k in seen), None) or seen.get("mean_response_length")
    mean = (
        mean or seen.get("mean_generated_tokens") or facts.number(first(c, "mean_response_length", "average_response"))
    )
    if mean is None and tokens:
        mean = tokens / samples - prompt
    if mean is None:
        mean = _derived(seen, samples, prompt, total)
        if mean:
            notes.append("mean length derived from throughput")
    if mean:
        block: dict[str, Any] = {"mean": min(mean, 0.98 * cap), "max": cap}
        clip = seen.get("response_length/clip_ratio") or seen.get("response_length_clip_ratio")
        if clip and clip > 0.005:
            block |= {"clip_ratio": clip}
        return block
    if not names.thinks(c.get("model")):
        notes.append("mean length not published: 1,000 tokens and a tail assumed")
        return {**DIRECT, "max": cap} if cap > DIRECT["p99"] else {"mean": min(DIRECT["mean"], cap / 3), "max": cap}
    mean = min(THOUGHT * cap, MOST_THOUGHT)
    notes.append(f"mean length not published: {mean:,.0f} tokens assumed")
    return {"mean": mean, "max": cap}


def _derived(seen: Mapping[str, float], samples: int, prompt: float, total: int) -> float | None:
    """Mean response from a rate and a time, or from counts of elements."""
    if seen.get("derived_tokens_per_sample"):
        return max(1.0, seen["derived_tokens_per_sample"] - prompt)
    if seen.get("rollout_tokens_per_gpu_s") and seen.get("rollout_time_s"):
        return seen["rollout_tokens_per_gpu_s"] * seen["rollout_time_s"] * total / samples
    if seen.get("compared_logprob_elements") and seen.get("samples"):
        return seen["compared_logprob_elements"] / seen["samples"]
    return None
