"""Figures of a summary by dotted key, as `--json` has them: which are kept, their short names, their units."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rlsim.errors import UserError
from rlsim.scenario.variants import nearest
from rlsim.sim.recorder import PHASES, POOL

_BLOCKS: Mapping[str, tuple[str, ...]] = {
    "step_time_s": ("mean", "p50", "p90", "min", "max"),
    "prediction_interval_s": ("p10", "p90"),
    "phases_s": PHASES,
    "rollout_pool_s": POOL,
    "utilization": ("trainer", "rollout", "all"),
    "tail": ("seconds", "share"),
    "staleness": ("mean", "p99", "max"),
    "staleness_updates": ("mean", "max"),
    "weight_sync": (
        "bytes_total",
        "bytes_max_per_gpu",
        "seconds",
        "floor_seconds",
        "transfer_seconds",
        "exposed_seconds",
        "lost_generation_seconds",
    ),
    "memory_gib": ("trainer_peak", "rollout_peak", "host_peak"),
    "samples": ("trained", "aborted", "in_flight"),
    "tokens": ("generated", "trained", "wasted", "reprefilled"),
    "response_tokens": ("drawn", "trained"),
    "cost": ("usd_per_step", "gpu_hours_per_step"),
    "provenance": ("measured", "scaled", "roofline"),
}
_SINGLE = (
    "tokens_per_s",
    "tokens_per_s_per_gpu",
    "samples_per_s",
    "effective_tokens_per_s",
    "goodput",
    "mfu_train",
    "mean_running_batch",
    "preemptions",
    "kv_tokens_per_engine",
)
KEYS = (*(f"{block}.{name}" for block, names in _BLOCKS.items() for name in names), *_SINGLE)
"""Every figure that a sweep keeps."""
DEFAULT = ("step_time_s.mean", "tokens_per_s_per_gpu", "cost.usd_per_step")
_MORE = ("tokens_per_s", "samples_per_s", "effective_tokens", "goodput", "utilization", "mfu", "samples.trained")
_UNITS = (
    ("usd", "$"),
    ("hours", "h"),
    ("per_s", "/s"),
    ("_s.", "s"),
    ("seconds", "s"),
    ("_gib", "GiB"),
    ("bytes", "B"),
)
_NAMES = {
    "step_time_s.mean": "step time (s)",
    "tokens_per_s_per_gpu": "tokens/s/GPU",
    "cost.usd_per_step": "$/step",
    "tokens_per_s": "tokens/s",
    "mfu_train": "MFU",
}


def flat(summary: Mapping[str, Any]) -> dict[str, float | None]:
    """The summary's figures by dotted key; None where this regime has none (the tail of continuous rollout)."""
    found: dict[str, float | None] = {}
    for block, names in _BLOCKS.items():
        inside = summary[block] or {}
        found |= {f"{block}.{name}": _number(inside.get(name)) for name in names}
    return found | {name: _number(summary[name]) for name in _SINGLE}


def _number(value: Any) -> float | None:
    """A list (one figure per kind of engine) is none of the figures that a table compares."""
    return float(value) if isinstance(value, int | float) else None


def figure(text: str) -> str:
    """The key of a figure: itself, a block's mean (`step_time_s`), or the only key that ends so.

    Raises `UserError` for a name that no figure, or more than one, has.
    """
    key = text.strip()
    for candidate in (key, f"{key}.mean", f"{key}_s.mean"):
        if candidate in KEYS:
            return candidate
    found = [one for one in KEYS if one.endswith(f".{key}")]
    if len(found) == 1:
        return found[0]
    if found:
        raise UserError(f"{key!r} may be any of {', '.join(found)}", key="--metric", fix=f"the whole key: {found[0]}")
    raise UserError(f"no figure {key!r}", key="--metric", fix=nearest(key, list(KEYS)) or "one of " + ", ".join(KEYS))


def more_is_better(key: str) -> bool:
    """Rates and shares of use; times, costs and bytes are better small."""
    return key.startswith(_MORE)


def heading(key: str) -> str:
    """A column's head: short, with its unit where the key has none."""
    return _NAMES.get(key, key)


def unit(key: str) -> str:
    """The unit of a figure, empty for shares and counts."""
    return next((unit for part, unit in _UNITS if part in key), "")
