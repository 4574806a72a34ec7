"""Settings that are possible but hardly meant: remarks among the assumptions of a run, not errors."""

from __future__ import annotations

from collections.abc import Iterator

from rlsim.scenario.schema import Scenario

SMALL_BUCKET = 2**20  # bytes; the rows of one large tensor are more


def remarks(s: Scenario) -> Iterator[str]:
    """One sentence each."""
    if s.workload.algorithm == "grpo" and s.workload.group_size == 1:
        yield "group_size 1: a group of one has no advantage relative to its group; only the time is right"
    bucket = s.weight_sync.bucket
    if bucket is not None and bucket < SMALL_BUCKET:
        yield f"weight_sync.bucket of {bucket:,.0f} B: every bucket costs a hand-shake, so the sync is mostly those"
