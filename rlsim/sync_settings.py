"""What the weight_sync block means once framework and schedule are known: memory and price read it here."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rlsim.catalog.sync_buckets import bucket_of

if TYPE_CHECKING:
    from rlsim.scenario.schema import Scenario


def sync_bucket(scenario: Scenario, framework: str | None = None) -> float:
    """Bytes sent together: as written, else those of the framework (the scenario's, or another)."""
    bucket = scenario.weight_sync.bucket
    name = framework if framework is not None else scenario.framework.name
    return bucket if bucket is not None else bucket_of(name)


def double_buffered(scenario: Scenario) -> bool:
    """Whether weights arrive in a second buffer while the engines go on: `overlap`, which only async has use for."""
    return scenario.weight_sync.overlap and scenario.schedule == "async"
