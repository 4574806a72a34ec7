"""Plain sentences that compare the variants of one scenario: like with like (physics: on-policy placements among
themselves; schedules against their price in staleness)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from rlsim.views.palette import label

Summary = Mapping[str, Any]
NOISE = 0.05  # the same recipe moves by more than this between adjacent framework versions


def sentences(summaries: Sequence[Summary]) -> list[str]:
    """What the comparison says, fastest first; empty for a single variant."""
    feasible = [s for s in summaries if s["feasible"]]
    lines = []
    on_policy = [s for s in feasible if not s["staleness"]["max"]]
    off_policy = [s for s in feasible if s["staleness"]["max"]]
    if len(on_policy) > 1:
        lines += ["On-policy: " + line for line in _duels(sorted(on_policy, key=_step))]
    if on_policy and off_policy:
        base = min(on_policy, key=_step)
        lines += [_gain(s, base) for s in sorted(off_policy, key=_step)]
    if not lines and len(feasible) > 1:
        lines += _duels(sorted(feasible, key=_step))
    lines += [f"{s['variant']} does not fit: {s['problems'][0]['fix']}" for s in summaries if not s["feasible"]]
    return lines


def _step(summary: Summary) -> float:
    return float(summary["step_time_s"]["mean"])


def _duels(ranked: Sequence[Summary]) -> list[str]:
    """The fastest against each of the others, in their order."""
    return [_duel(ranked[0], other) for other in ranked[1:]]


def _duel(first: Summary, second: Summary) -> str:
    ratio = _step(second) / _step(first)
    if ratio < 1 + NOISE:
        apart = f"({ratio - 1:.0%} apart, under the noise of real runs)"
        return f"{first['variant']} and {second['variant']} are level {apart}; " + _why(first, second)
    return f"{first['variant']} is {ratio:.2f}x faster than {second['variant']}; " + _why(first, second)


def _gain(summary: Summary, base: Summary) -> str:
    ratio = _step(base) / _step(summary)
    worth = (
        f"{ratio:.2f}x the speed of {base['variant']}"
        if ratio >= 1
        else f"{1 / ratio:.2f}x slower than {base['variant']}"
    )
    staleness = summary["staleness"]
    updates = summary["staleness_updates"]
    return (
        f"Off-policy: {summary['variant']} runs at {worth}, bought with samples {staleness['mean']:.1f} versions old "
        f"on average (at most {staleness['max']:.0f}; {updates['mean']:.1f} optimizer updates); " + _why(summary, base)
    )


def _why(fast: Summary, slow: Summary) -> str:
    """The two phases whose difference explains most of the gap, in seconds of the trainer group's clock."""
    names = [n for n in fast["phases_s"] if fast["phases_s"][n] or slow["phases_s"][n]]
    gaps = {n: slow["phases_s"][n] - fast["phases_s"][n] for n in names}
    ranked = sorted(gaps, key=lambda n: -abs(gaps[n]))[:2]
    parts = [f"{label(n)} {gaps[n]:+.1f} s" for n in ranked if abs(gaps[n]) > 1e-3]
    return f"{slow['variant']} against it: " + (", ".join(parts) or "no phase differs")
