"""What a record of an RL run says, under one name each, whatever its source calls it.

verl's keys and those of other frameworks' logs differ in spelling only; a value that is an average over steps may come
as a number, as {mean, min, max}, or as a list of steps.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from validation.published.records import Record, SkipError

TIMERS: Mapping[str, tuple[str, ...]] = {
    "step_time_s": (
        "step",
        "step_s",
        "step_time_s",
        "avg_step_time_s",
        "derived_s_per_step",
        "step_s_native",
        "e2e_s",
        "train_step_time",
    ),
    "gen_s": ("gen", "gen_s", "rollout_time_s", "generation_s", "generate_s"),
    "generate_sequences_s": ("generate_sequences", "generate_sequences_s"),
    "reshard_s": ("reshard",),
    "old_log_prob_s": ("old_log_prob", "old_log_prob_s"),
    "ref_s": ("ref", "ref_s"),
    "values_s": ("values", "values_s"),
    "update_critic_s": ("update_critic", "update_critic_s"),
    "update_actor_s": ("update_actor", "update_actor_s", "policy_training_s", "policy_training_time", "training_s"),
    "update_weights_s": ("update_weights", "param_sync", "weight_sync_time", "weight_sync_s"),
}
"""Quantity -> names of its timer, without their `timing_s/` or `timing/`."""
PREFIX = re.compile(r"^(timing_s|timing|perf)/")


def number(value: Any) -> float | None:
    """The mean of a value: a number, {mean, …}, a pair or list of numbers; a number in front of a remark."""
    if isinstance(value, bool) or value is None:
        return None
    if isinstance(value, int | float):
        return float(value)
    if isinstance(value, Mapping):
        return number(value.get("mean"))
    if isinstance(value, Sequence) and not isinstance(value, str):
        found = [x for x in map(number, value) if x is not None]
        return sum(found) / len(found) if found else None
    text = re.match(r"\s*([\d.]+)", str(value))
    return float(text.group(1)) if text else None


def flat(record: Record) -> dict[str, float]:
    """The measured figures by bare name: those of the window, else of the one step copied, over the record's own."""
    m = record.measured
    out: dict[str, float] = {}
    steps = m.get("steps_verbatim")
    if isinstance(steps, list) and steps:
        names = dict.fromkeys(key for step in steps for key in step)
        out |= _numbers({key: [step[key] for step in steps if key in step] for key in names})
    out |= _numbers({k: v for k, v in m.items() if k not in ("window", "single_step_verbatim", "first_step")})
    one = m.get("single_step_verbatim") or {}
    window = m.get("window") or {}
    return {**out, **_numbers(one), **_numbers(window)}


def _numbers(values: Mapping[str, Any]) -> dict[str, float]:
    found = {PREFIX.sub("", str(key)): number(value) for key, value in values.items() if key != "step"}
    return {key: value for key, value in found.items() if value is not None}


def timers(record: Record) -> dict[str, float]:
    """Seconds by quantity. A step that includes a validation or a checkpoint is taken without them."""
    found = flat(record)
    out = {}
    for quantity, names in TIMERS.items():
        value = next((found[name] for name in names if name in found), None)
        if value:
            out[quantity] = value
    if "derived_step_without_test_ckpt_s" in found:
        out["step_time_s"] = found["derived_step_without_test_ckpt_s"]
    if "weight_sync_time" in found and "exposed_generation_time" in found:
        del out["step_time_s"]  # most of it is the environment's, of which nothing is logged
    hours = next((k for k in sorted(found) if re.fullmatch(r"total_h_(\d+)_steps", k)), None)
    if "step_time_s" not in out and hours:
        out["step_time_s"] = found[hours] * 3600 / int(hours.split("_")[2])
    if "step_time_s" not in out and "training_h" in found and record.config.get("ppo_steps"):
        out["step_time_s"] = found["training_h"] * 3600 / int(record.config["ppo_steps"])
    if not out:
        raise SkipError("no time of a step or a phase is in the record")
    return out


def first(config: Mapping[str, Any], *names: str) -> Any:
    """The first of the keys that the record has."""
    return next((config[name] for name in names if config.get(name) is not None), None)


def whole(config: Mapping[str, Any], *names: str) -> int | None:
    """The same as a whole number; "16 (same)" is 16."""
    value = number(first(config, *names))
    return None if value is None else int(value)
