"""Work in equal items through stages that overlap, or don't: the arithmetic of buckets."""

from __future__ import annotations

from collections.abc import Mapping, Sequence


def pipeline(stages: Mapping[str, float], overlap: Sequence[Sequence[str]], items: int) -> dict[str, float]:
    """Exposed seconds of every stage when `items` equal items pass through groups of stages.

    `stages`: seconds of each stage for all items together. `overlap`: the groups in order; inside a group
    stages take turns, different groups work on different items (double buffer). With x_g the seconds of group
    g for one item,

        seconds = sum_g x_g + (items - 1) * max_g x_g

    so the slowest group shows in full and the others with one item only (fill and drain). The values add up
    to the seconds. Stages that no group names take turns with the last group.
    """
    named = [name for group in overlap for name in group]
    groups = [list(group) for group in overlap]
    groups[-1] += [name for name in stages if name not in named]
    totals = [sum(stages.get(name, 0.0) for name in group) for group in groups]
    slowest = totals.index(max(totals))
    exposed: dict[str, float] = {}
    for index, group in enumerate(groups):
        share = 1.0 if index == slowest else 1.0 / items
        exposed.update({name: stages[name] * share for name in group if name in stages})
    return exposed
