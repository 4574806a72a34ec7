"""The weight sync in plain words: what moves, what generation loses, what only the changes would take."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

Summary = Mapping[str, Any]
PARTS = {
    "drain_s": "before it, running out or paused",
    "stand_still_s": "during it",
    "group_rebuild_s": "for a new process group",
    "reprefill_s": "after it, prefilling again what lost its KV",
    "regenerate_s": "after it, generating again what was thrown away",
}
NEGLIGIBLE = 0.005  # seconds


def losses(summaries: Sequence[Summary]) -> list[str]:
    """What a step's weight syncs cost: seconds in which weights move, and generation lost around them."""
    return [f"{s['variant']}: {_loss(s)}" for s in summaries if s["feasible"]]


def _loss(one: Summary) -> str:
    sync, lost = one["weight_sync"], one["weight_sync"]["lost"]
    parts = [f"{lost[name]:.2f} s {words}" for name, words in PARTS.items() if lost[name] > NEGLIGIBLE]
    moved = f"{sync['transfer_seconds']:.2f} of the {sync['seconds']:.2f} s of a sync move and prepare weights"
    if not parts:
        return f"{moved}; no generation is lost to it"
    return (
        f"{moved}; a step loses generation {', '.join(parts)}: "
        f"{lost['engine_seconds']:,.1f} engine-seconds, {lost['engine_share']:.1%} of all"
    )


def deltas(summaries: Sequence[Summary]) -> list[str]:
    """What sending only changed weights takes, where a variant does; variants alike share a line."""
    if not any(s["feasible"] and s["weight_sync"]["strategy"] == "delta" for s in summaries):
        return []
    lines: dict[str, list[str]] = {}
    for one in summaries:
        sync = one["weight_sync"] if one["feasible"] else None
        if sync is not None and sync["delta"]:
            lines.setdefault(_delta(sync["delta"]), []).append(one["variant"])
    return [f"{', '.join(names)}: {text}" for text, names in lines.items()]


def _delta(delta: Mapping[str, Any]) -> str:
    rate = delta["break_even_bytes_per_s"]
    faster = "delta" if delta["seconds"] < delta["full_seconds"] else delta["full"]
    level = f"delta is faster below {_rate(rate)} of links" if rate else f"{faster} is faster at any rate of the links"
    return (
        f"{delta['bytes'] / 1e9:.2f} GB ({delta['changed']:.2%} of the weights change) in {delta['seconds']:.2f} s, "
        f"the whole model by {delta['full']} in {delta['full_seconds']:.2f} s; {level}"
    )


def _rate(rate: float) -> str:
    return f"{rate / 1e9:.3g} GB/s" if rate >= 1e9 else f"{rate / 1e6:.3g} MB/s"
