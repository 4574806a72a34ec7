"""The part of a scenario that decides who waits for whom."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from rlsim.catalog.upkeep import habit_of
from rlsim.errors import NotModelled
from rlsim.scenario.policies import POLICIES, TUNABLE, unused_keys
from rlsim.sim.evaluation import Evaluation
from rlsim.sim.passing import PassRate
from rlsim.sim.remedies import NO_REMEDIES, Remedies, remedies
from rlsim.sim.rules import PLAIN, RolloutRules, rollout_rules

if TYPE_CHECKING:
    from rlsim.scenario.schema import Scenario

KEPT_FILL = 2  # steps until about as many unfinished groups come from the step before as go to the next
SYNC, ONE_STEP_OFF, ASYNC = "sync", "one-step-off", "async"
MOST_WARMUP = 32  # steps; a bound on staleness beyond it is not reached before the measurement


@dataclass(frozen=True)
class Settings:
    """Regime and batch shape.

    prompts, group_size   groups per step, samples per group
    logprob               recompute | rollout (bypass: no pass) | decoupled (one pass for the proximal policy)
    policy                staleness policy (async only; see `sim/policies`)
    max_staleness         eta, policy versions (async only)
    max_concurrent        groups that may run at once; None: as many as the staleness rule admits
    sync_every            rounds of the trainer between two weight syncs; a round is a step, but with verl's policy
    require_batches       mini-batches that verl's trainer waits for: one round
    theta, queue          verl's staleness threshold; batches between rollout and trainer
    overtaken             train | drop: groups older than eta because others overtook them
    on_sync               drain | abort | interrupt | in-flight: what a weight sync does to running samples
    overlap               engines go on generating while the new weights are on the wire (async)
    pass_rate             how often prompts are solved; None: every group carries a gradient
    checkpoint_every      steps between two checkpoints; None: none
    save_pauses_rollout   generation stands still during a save (async)
    evaluation            passes over a set of prompts between steps
    rollout               rules of the rollout pool
    remedies              against the long tail, and dynamic sampling (sync and one-step-off)
    worth                 (staleness, worth of a sample for learning), ascending; empty: 1 whatever the staleness
    notes                 assumptions to report
    elastic               share of the wanted groups below which trainer GPUs are lent to rollout; None: never
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
    rollout: RolloutRules = PLAIN
    policy: str = "areal"
    theta: float = 0.0
    require_batches: int = 1
    queue: int | None = None
    overtaken: str = "train"
    worth: tuple[tuple[float, float], ...] = ()
    notes: tuple[str, ...] = ()
    elastic: float | None = None
    checkpoint_every: int | None = None
    save_pauses_rollout: bool = False
    evaluation: Evaluation | None = None

    @property
    def batch(self) -> int:
        """Samples that one step trains on."""
        return self.prompts * self.group_size

    @property
    def updates(self) -> int:
        """Optimizer updates of one step."""
        return self.mini_batches * self.epochs

    @property
    def rounds(self) -> int:
        """Times that the trainer takes groups in one step."""
        return self.mini_batches // self.require_batches if self.policy == "verl" and self.schedule == ASYNC else 1

    @property
    def round_mini_batches(self) -> int:
        """Optimizer updates of one round and epoch."""
        return self.mini_batches // self.rounds

    @property
    def round_prompts(self) -> int:
        """Groups of one round."""
        return self.prompts // self.rounds

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
            return min(self.settling, max(MOST_WARMUP, self.sync_steps))
        fills = KEPT_FILL if self.remedies.keeps else 0
        return fills + (self.schedule == ONE_STEP_OFF)

    @property
    def sync_steps(self) -> int:
        """Steps from one weight sync to the next, rounded up."""
        return -(-self.sync_every // self.rounds)

    @property
    def settling(self) -> int:
        """Steps after which samples can be as old as the policy lets them get, and at least one sync period."""
        if self.policy == "verl":
            return math.ceil((1 + self.theta) * self.sync_every / self.rounds) + 1
        if self.policy == "slime":
            return max(-(-2 * (self.max_concurrent or self.prompts) // self.prompts), self.sync_every) + 1
        if self.policy == "openrlhf":
            return (self.queue or 1) + 1
        return max(math.ceil(self.max_staleness) + 1, self.sync_every)

    @property
    def recompute(self) -> bool:
        """Whether the trainer runs a forward pass over the batch before its updates."""
        return self.logprob != "rollout"


def settings(scenario: Scenario) -> Settings:
    """Read the regime from a scenario; what it leaves out of the `async` block is the policy's own."""
    work, rules = scenario.workload, scenario.async_
    if scenario.placement == "colocated" and scenario.schedule != SYNC:
        raise NotModelled(
            f"schedule: {scenario.schedule} needs two pools of GPUs",
            key="schedule",
            fix="placement: disaggregated",
        )
    keys = POLICIES[rules.policy]
    concurrent = keys.per_engine and keys.per_engine * _engines(scenario)
    read = Settings(
        colocated=scenario.placement == "colocated",
        schedule=scenario.schedule,
        prompts=work.prompts,
        group_size=work.group_size,
        mini_batches=work.updates.mini_batches,
        epochs=work.updates.epochs,
        logprob=work.logprob,
        reference=work.reference_model,
        max_staleness=rules.max_staleness,
        max_concurrent=_used(rules.max_concurrent, concurrent, "max_concurrent" in keys.uses),
        sync_every=_used(rules.sync_every, keys.sync_every, "sync_every" in keys.uses) or 1,
        on_sync=rules.on_sync,
        overlap=scenario.weight_sync.overlap,
        pass_rate=None if work.pass_rate is None else PassRate(work.pass_rate.mean, work.pass_rate.concentration),
        remedies=remedies(scenario),
        rollout=rollout_rules(scenario),
        policy=rules.policy,
        theta=keys.theta if rules.theta is None else rules.theta,
        require_batches=_used(rules.require_batches, keys.require_batches, "require_batches" in keys.uses) or 1,
        queue=_used(rules.queue, keys.queue, "queue" in keys.uses),
        overtaken=rules.overtaken,
        elastic=scenario.remedies.elastic.below if scenario.remedies.elastic else None,
        worth=tuple(sorted((work.learning_efficiency or {}).items())),
        checkpoint_every=scenario.run.checkpoint_every,
        save_pauses_rollout=habit_of(scenario.framework.name).save_pauses_rollout,
        evaluation=_evaluation(scenario),
    )
    return replace(read, notes=tuple(_notes(read, scenario))) if scenario.schedule == ASYNC else read


def _evaluation(scenario: Scenario) -> Evaluation | None:
    given, habit = scenario.run.eval, habit_of(scenario.framework.name)
    return None if given is None else Evaluation(given.every, given.prompts, given.samples, habit.evaluation_beside)


def _used(given: int | None, default: int | None, used: bool) -> int | None:
    """The file's value, else the policy's; None where the policy has no such key."""
    return (default if given is None else given) if used else None


def _engines(scenario: Scenario) -> int:
    """Rollout engines that take new samples."""
    parts = [entry for entry in scenario.rollout if entry.role != "decode"]
    return sum(entry.gpus // (entry.pp * (entry.attn_tp or 1) * (entry.attn_dp or 1)) for entry in parts)


def _notes(read: Settings, scenario: Scenario) -> Iterator[str]:
    """Parameters of a framework's policy, keys that it does not have, and a warm-up that is cut short."""
    keys = POLICIES[read.policy]
    if read.policy != "areal":
        used = {name: getattr(read, name) for name in TUNABLE if name in keys.uses}
        values = [f"{name} {value:g}" for name, value in used.items() if value is not None]
        yield f"async policy {read.policy}: {', '.join([*values, f'on_sync {read.on_sync}'])}"
    for name in unused_keys(scenario.async_):
        yield f"async.{name} has no effect: policy {read.policy} does not use it"
    if read.settling > read.warmup:
        yield (
            f"samples can get {read.settling - 1} versions old, but the warm-up is {read.warmup} steps: "
            "staleness may still grow while it is measured"
        )
