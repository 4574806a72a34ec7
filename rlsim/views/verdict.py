"""Plain sentences that compare the variants of one scenario with its first one: how much faster, by which phases, and
at what price in staleness. On-policy and off-policy gains are told apart: the second are bought with older samples."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from rlsim.views.palette import label

Summary = Mapping[str, Any]
NOISE = 0.05  # the same recipe moves by more than this between adjacent framework versions


def sentences(summaries: Sequence[Summary]) -> list[str]:
    """Each further variant against the first that fits, in the file's order."""
    feasible = [s for s in summaries if s["feasible"]]
    lines = [_against(s, feasible[0]) for s in feasible[1:]]
    return lines + [f"{s['variant']} does not fit: {s['problems'][0]['fix']}" for s in summaries if not s["feasible"]]


def _step(summary: Summary) -> float:
    return float(summary["step_time_s"]["mean"])


def _against(one: Summary, base: Summary) -> str:
    return f"{one['variant']} ({_policy(one)}) {_speed(one, base)}: {_why(one, base)}{_bias(one)}"


def _policy(one: Summary) -> str:
    staleness = one["staleness"]
    if not staleness["max"]:
        return "on-policy"
    return (
        f"off-policy, samples {staleness['mean']:.1f} versions old on average, at most {staleness['max']:.0f}, "
        f"{one['staleness_updates']['mean']:.1f} optimizer updates"
    )


def _speed(one: Summary, base: Summary) -> str:
    ratio = _step(base) / _step(one)
    if abs(ratio - 1) < NOISE:
        return f"is level with {base['variant']} ({1 / ratio - 1:+.0%}, under the noise of real runs)"
    if ratio > 1:
        return f"is {ratio:.2f}x as fast as {base['variant']}"
    return f"takes {1 / ratio:.2f}x as long as {base['variant']}"


def _bias(one: Summary) -> str:
    """Answers that are trained on may be shorter than the workload's: the long ones were stopped."""
    lengths = one.get("response_tokens") or {"drawn": 1.0, "trained": 1.0}
    shorter = 1 - lengths["trained"] / lengths["drawn"]
    return f"; the answers it trains on are {shorter:.0%} shorter than those drawn" if shorter >= NOISE else ""


def _why(one: Summary, base: Summary) -> str:
    """The three phases that change most, in seconds of the trainer group's clock."""
    gaps = {n: one["phases_s"][n] - base["phases_s"][n] for n in one["phases_s"]}
    ranked = sorted(gaps, key=lambda n: -abs(gaps[n]))[:3]
    parts = [f"{label(n)} {gaps[n]:+.1f} s" for n in ranked if abs(gaps[n]) > 0.005 * _step(base)]
    return ", ".join(parts) or "no phase changes much"
