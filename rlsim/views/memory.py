"""Memory in words: the whole step on one GPU, its peak and cause, and the offload ledger."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from rlsim.memory_report import GIB
from rlsim.memory_timeline import Occupancy
from rlsim.views.palette import label

Summary = Mapping[str, Any]


def step_lines(summary: Summary) -> list[str]:
    """One line per role: GiB in every phase of the step in its order, the peak and its cause."""
    lines = []
    for peak in summary["memory_peak"] or ():
        rows = [row for row in summary["memory_timeline"] if row["role"] == peak["role"]]
        told: dict[str, float] = {}
        for row in rows:
            told.setdefault(row["phase"], sum(row["parts_gib"].values()))
        lines.append(_line(peak, told))
    return lines


def check_lines(occupancies: Sequence[Occupancy], peaks: Sequence[Summary]) -> list[str]:
    """The same before anything is simulated: every state that the step will have."""
    found = []
    for role, peak in zip(occupancies, peaks, strict=True):
        told = {state: sum(parts.values()) / GIB for state, parts in role.states.items()}
        found.append(_line(peak, told))
    return found


def _line(peak: Summary, told: Mapping[str, float]) -> str:
    phases = ", ".join(f"{label(phase)} {gib:.1f}" for phase, gib in told.items())
    text = f"{peak['role']} GPU: {phases} GiB; peak {peak['gib']:.1f} of {peak['hbm_gib']:.1f} GiB"
    return f"{text} in {label(peak['moment'])}: {peak['cause']}"


def ledger_of(summary: Summary) -> list[str]:
    """`ledger_lines` of a co-located variant; nothing on two pools."""
    return [] if summary["offload_ledger"] is None else ledger_lines(summary["offload_ledger"])


def ledger_lines(ledger: Summary) -> list[str]:
    """The ledger as sentences: rows that move, what is only mapped, whether it is needed and what is cheapest."""
    moving = [row for row in ledger["rows"] if row["moved_gib"] > 0]
    told = ", ".join(
        f"{row['role']} {row['moved_gib']:.2f} GiB {row['host_memory']} "
        f"({row['offload_seconds']:.2f} s out, {row['onload_seconds']:.2f} s in)"
        for row in moving
    )
    mapped = [row["role"] for row in ledger["rows"] if not row["moved_gib"]]
    lines = [
        f"{told or 'nothing moves'}; only mapped: {', '.join(mapped) or 'nothing'}; fixed "
        f"{ledger['fixed_seconds']:.2f} s; {ledger['exposed_seconds']:.2f} s a step, all exposed: weight sync and "
        "rollout wait on the way out, the trainer on the way in"
    ]
    return [*lines, _need(ledger)]


def _need(ledger: Summary) -> str:
    without, now, best = ledger["without_offload"], ledger["in_use"], ledger["cheapest"]
    whole = ledger["cheapest_with_whole_kv"]
    if best is None:
        return "no set of offloads fits"
    if ledger["needed"]:
        text = "offload is needed: without it the roles do not fit"
    else:
        text = f"offload is not needed: without it an engine still holds {without['kv_tokens_per_engine']:,} KV tokens"
    text += f" (now {now['kv_tokens_per_engine']:,}); the cheapest set that fits: {_set(best)}"
    if whole is not None and whole["offload"] != best["offload"]:
        text += f"; with the whole KV cache: {_set(whole)}"
    return text


def _set(option: Summary) -> str:
    keys = ", ".join(option["offload"]) or "none"
    return f"{keys} ({option['kv_tokens_per_engine']:,} KV tokens, switch {option['seconds']:.2f} s)"
