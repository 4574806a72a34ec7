"""The part of a scenario that decides who waits for whom."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

from rlsim.errors import NotModelled
from rlsim.sim.passing import PassRate
from rlsim.sim.remedies import NO_REMEDIES, Remedies, remedies

if TYPE_CHECKING:
    from rlsim.scenario.schema import Scenario

KEPT_FILL = 2  # steps until about as many unfinished groups come from the step before as go to the next
SYNC, ONE_STEP_OFF, ASYNC = "sync", "one-step-off", "async"


@dataclass(frozen=True)
class Settings:
    """Regime and batch shape.

    prompts, group_size   groups per step, samples per group
    logprob               recompute | rollout (bypass: no pass) | decoupled (one pass for the proximal policy)
    max_staleness         eta, policy versions (async only)
    max_concurrent        groups that may run at once; None: as many as the staleness rule admits
    sync_every            updates of the policy between two weight syncs, in steps
    on_sync               drain | abort | interrupt | in-flight: what a weight sync does to running samples
    overlap               engines go on generating while the new weights are on the wire (async)
    pass_rate             how often prompts are solved; None: every group carries a gradient
    remedies              against the long tail, and dynamic sampling (sync and one-step-off)
    """

    colocated: bool
    schedule: str
    prompts: int
    group_size: int
    mini_batches: int = 1
    epochs: int = 1
    logprob: str = "recompute"
    reference: bool = False
    max_staleness: float = 0.0
    max_concurrent: int | None = None
    sync_every: int = 1
    on_sync: str = "interrupt"
    overlap: bool = False
    pass_rate: PassRate | None = None
    remedies: Remedies = NO_REMEDIES

    @property
    def batch(self) -> int:
        """Samples that one step trains on."""
        return self.prompts * self.group_size

    @property
    def updates(self) -> int:
        """Optimizer updates of one step."""
        return self.mini_batches * self.epochs

    @property
    def regime(self) -> str:
        """colocated-sync | disaggregated-sync | one-step-off | async"""
        if self.schedule != SYNC:
            return self.schedule
        return "colocated-sync" if self.colocated else "disaggregated-sync"

    @property
    def warmup(self) -> int:
        """Steps before the steady state: they run in addition and are not measured."""
        if self.schedule == ASYNC:
            return max(math.ceil(self.max_staleness) + 1, self.sync_every)
        fills = KEPT_FILL if self.remedies.keeps else 0
        return fills + (self.schedule == ONE_STEP_OFF)

    @property
    def recompute(self) -> bool:
        """Whether the trainer runs a forward pass over the batch before its updates."""
        return self.logprob != "rollout"


def settings(scenario: Scenario) -> Settings:
    """Read the regime from a scenario; `partial_rollout` decides what a sync does unless `on_sync` does."""
    work, rules = scenario.workload, scenario.async_
    if scenario.placement == "colocated" and scenario.schedule != SYNC:
        raise NotModelled(
            f"schedule: {scenario.schedule} needs two pools of GPUs",
            key="schedule",
            fix="placement: disaggregated",
        )
    on_sync = rules.on_sync or ("interrupt" if rules.partial_rollout else "drain")
    return Settings(
        colocated=scenario.placement == "colocated",
        schedule=scenario.schedule,
        prompts=work.prompts,
        group_size=work.group_size,
        mini_batches=work.updates.mini_batches,
        epochs=work.updates.epochs,
        logprob=work.logprob,
        reference=work.reference_model,
        max_staleness=rules.max_staleness,
        max_concurrent=rules.max_concurrent,
        sync_every=rules.sync_every or 1,
        on_sync=on_sync,
        overlap=scenario.weight_sync.overlap,
        pass_rate=None if work.pass_rate is None else PassRate(work.pass_rate.mean, work.pass_rate.concentration),
        remedies=remedies(scenario),
    )
