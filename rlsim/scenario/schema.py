"""The scenario: one file (or one variant of it), parsed and checked. Quantities are SI floats."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Field, PrivateAttr, model_validator

from rlsim.errors import UserError
from rlsim.scenario.block import Block, Listed, Price, block, item, needed
from rlsim.scenario.policies import with_defaults
from rlsim.scenario.schema_cluster import Cluster, Framework, Link, Lora, ModelRef, Pool
from rlsim.scenario.schema_lengths import Component, LengthSpec, SecondsSpec
from rlsim.scenario.schema_roles import (
    Consolidate,
    Elastic,
    Offload,
    OverSampling,
    PipelineEnds,
    Remedies,
    Role,
    Roles,
    RolloutEntry,
    Speculative,
    Trainer,
    WeightSync,
)
from rlsim.scenario.schema_run import Checkpoint, Evaluation, Fault, Faults, Run
from rlsim.scenario.schema_workload import DynamicSampling, Reward, Turns, Updates, Workload
from rlsim.scenario.source import Source

__all__ = [
    "Async",
    "Checkpoint",
    "Cluster",
    "Component",
    "Consolidate",
    "Costs",
    "DynamicSampling",
    "Elastic",
    "Evaluation",
    "Fault",
    "Framework",
    "LengthSpec",
    "Link",
    "Lora",
    "ModelRef",
    "Offload",
    "OverSampling",
    "PipelineEnds",
    "Pool",
    "Remedies",
    "Reward",
    "Role",
    "Roles",
    "RolloutEntry",
    "Run",
    "Scenario",
    "SecondsSpec",
    "Speculative",
    "Trainer",
    "Turns",
    "Updates",
    "WeightSync",
    "Workload",
]


class Async(Block):
    """How far rollout may run ahead (schedule: async)."""

    policy: Literal["areal", "verl", "nemo-rl", "slime", "openrlhf", "trl", "roll"] = item("areal", "staleness policy")
    max_staleness: float = item(
        1,
        "max staleness (η; A in NeMo-RL, α in ROLL): versions between the start of a sample and its training; "
        "default 4 for trl",
        unit="versions",
        ge=0,
    )
    partial_rollout: bool = item(True, "partial rollout: a weight sync interrupts running samples, which then go on")
    on_sync: Literal["drain", "abort", "interrupt", "in-flight"] = item(
        "interrupt",
        "running samples at a sync: drain, abort, interrupt (re-prefill) or in-flight (keep KV); default the policy's: "
        "drain for nemo-rl and openrlhf (in-flight with partial_rollout: true), in-flight for trl",
    )
    theta: float | None = item(None, "staleness threshold θ (verl): default 0.1", ge=0)
    sync_every: int | None = item(
        None, "steps between weight syncs: default 1; verl: rounds of require_batches, default 4", unit="steps", ge=1
    )
    require_batches: int | None = item(
        None, "mini-batches the trainer waits for (verl): default 1", unit="mini-batches", ge=1
    )
    max_concurrent: int | None = item(
        None,
        "groups in flight at most: default no limit but the policy's, 16 an engine (verl), 512 an engine (slime)",
        unit="groups",
        ge=1,
    )
    queue: int | None = item(
        None, "queue depth between rollout and trainer: default 1 (openrlhf), 1024 samples (trl)", unit="batches", ge=1
    )
    overtaken: Literal["train", "drop"] = item(
        "train", "groups older than max_staleness because others overtook them (areal): train or drop"
    )

    @model_validator(mode="before")
    @classmethod
    def _policy_defaults(cls, data: object) -> object:
        """What the policy's framework does where the file is silent."""
        return with_defaults(data) if isinstance(data, dict) else data


class Costs(Block):
    """Where seconds and dollars come from."""

    profile: str = item("auto", "calibration profile: auto (the framework's), a name, or a path to a YAML file")
    gpu_hour: Price | None = item(None, "price per GPU-hour: default the catalog's")
    kernels: Literal["auto", "roofline"] = item(
        "auto", "kernel times: measured tables where there are any, or roofline"
    )


class Scenario(Block):
    """Everything that one simulation needs to be told."""

    name: str = item("scenario", "name of the scenario: default the file's name")
    model: ModelRef = needed("model to train")
    framework: Framework = block(Framework, "framework")
    cluster: Cluster = needed("cluster")
    workload: Workload = needed("workload of one step")
    placement: Literal["colocated", "disaggregated"] = item(
        "colocated",
        "placement: trainer and rollout share GPUs (co-located) or have their own (disaggregated)",
    )
    schedule: Literal["sync", "one-step-off", "async"] = item("sync", "schedule of rollout and training")
    async_: Async = block(Async, "asynchrony (schedule: async)", alias="async")
    trainer: Trainer = needed("trainer")
    rollout: Annotated[tuple[RolloutEntry, ...], Listed, Field(min_length=1)] = needed(
        "rollout engines: a mapping, or a list of mappings for several kinds"
    )
    routing: Literal["round-robin", "least-loaded", "group-sticky", "length-aware"] = item(
        "least-loaded",
        "routing of samples to engines: round-robin, least-loaded (fewest samples), group-sticky (a group to one "
        "engine) or length-aware (fewest tokens to come)",
    )
    remedies: Remedies = block(Remedies, "remedies for the long tail")
    faults: Faults = item((), "faults")
    roles: Roles = block(Roles, "roles with GPUs of their own")
    weight_sync: WeightSync = block(WeightSync, "weight sync")
    offload: Offload = block(Offload, "offload (co-located only)")
    costs: Costs = block(Costs, "costs")
    run: Run = block(Run, "run")
    variant: str = item("base", "variant: the name of these settings")

    _source: Source = PrivateAttr(default_factory=Source)

    def error(self, key: str, message: str, fix: str | None = None) -> UserError:
        """A user's mistake at a dotted key of this scenario, with the file and line of that key."""
        return self._source.error(key, message, fix)

    def to_dict(self) -> dict[str, Any]:
        """Plain data as in the YAML, quantities as text with units; `scenario_from_dict` reads it."""
        from rlsim.scenario.dump import to_dict

        return to_dict(self)
