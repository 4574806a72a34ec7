"""A scenario resolved into a system: the hardware with the user's overrides, the model, the layouts and the profile."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from rlsim import catalog
from rlsim.catalog import GpuSpec
from rlsim.catalog.profiles import Profile, profile_for
from rlsim.engine_checks import rollout_key
from rlsim.errors import UserError
from rlsim.layout import EngineLayout, TrainLayout, engine_layout, train_layout
from rlsim.lora import adapted
from rlsim.model import ModelSpec
from rlsim.scenario.remarks import remarks
from rlsim.scenario.schema import RolloutEntry, Scenario
from rlsim.scenario.schema_cluster import Cluster
from rlsim.scenario.schema_cluster import Pool as PoolBlock
from rlsim.workload_checks import check_workload


@dataclass(frozen=True)
class Pool:
    """GPUs of one kind that one role can use.

    `nic` is bytes/s per GPU in one direction; `price` is dollars per GPU-hour; `gpu` already holds the file's
    overrides of catalog figures.
    """

    name: str
    gpu: GpuSpec
    gpus: int
    gpus_per_node: int
    nvlink_domain: int
    nic: float
    price: float

    @property
    def nodes(self) -> int:
        return -(-self.gpus // self.gpus_per_node)


@dataclass(frozen=True)
class RolloutPart:
    """One kind of rollout engine: what the file says, the GPUs it runs on, and its layout."""

    entry: RolloutEntry
    pool: Pool
    layout: EngineLayout


@dataclass(frozen=True)
class System:
    """Everything the cost models need to know; no seconds yet.

    balanced_experts  engines' experts get equally many tokens each; else their popularity falls off as measured ones'
    """

    scenario: Scenario
    model: ModelSpec
    trainer_pool: Pool
    trainer: TrainLayout
    rollout: tuple[RolloutPart, ...]
    profile: Profile
    assumptions: tuple[str, ...]
    balanced_experts: bool = False

    @property
    def colocated(self) -> bool:
        return self.scenario.placement == "colocated"

    @property
    def gpus(self) -> int:
        """GPUs that are paid for: the shared group, or trainer and rollout together, and what other roles have."""
        rollout = (
            0 if self.colocated else sum(part.layout.engines * part.layout.gpus_per_engine for part in self.rollout)
        )
        return self.trainer.gpus + rollout + self.scenario.roles.gpus

    def hourly(self) -> dict[str, float]:
        """Dollars an hour of the GPUs that are paid for, by pool."""
        used = {self.trainer_pool.name: self.trainer.gpus * self.trainer_pool.price}
        roles = self.scenario.roles
        parts = [] if self.colocated else [(part.pool, part.layout.gpus) for part in self.rollout]
        parts += [
            (pool_of(self.scenario, role.pool), role.gpus)
            for role in (roles.reference, roles.reward_model, roles.critic)
            if role is not None and role.gpus is not None
        ]
        for pool, gpus in parts:
            used[pool.name] = used.get(pool.name, 0.0) + gpus * pool.price
        return used

    def watts(self) -> dict[str, float]:
        """Power limits added up, W: of the trainer's GPUs, the rollout's (co-located: none of its own), others'."""
        roles = self.scenario.roles
        other = (role for role in (roles.reference, roles.reward_model, roles.critic) if role is not None)
        parts = [] if self.colocated else self.rollout
        return {
            "trainer": self.trainer.gpus * self.trainer_pool.gpu.watts,
            "rollout": sum(part.layout.gpus * part.pool.gpu.watts for part in parts),
            "roles": sum((role.gpus or 0) * pool_of(self.scenario, role.pool).gpu.watts for role in other),
        }


def resolve(scenario: Scenario) -> System:
    """Look up the catalog, apply the file's overrides, build the layouts.

    Raises `UserError` with file and line for an unknown GPU or model and for layouts that do not divide.
    """
    try:
        trainer_pool = pool_of(scenario, scenario.trainer.pool)
        pools = [pool_of(scenario, entry.pool) for entry in scenario.rollout]
        model = catalog.model(scenario.model.base)
        if scenario.model.lora is not None:
            adapted(model, scenario.model.lora.targets)
    except UserError as error:
        if error.file is not None:  # the model's config.json
            inside = f"{error.key}: " if error.key not in (None, "model") else ""
            raise scenario.error("model", f"{error.file}: {inside}{error.message}", error.fix) from None
        raise scenario.error(error.key or "model", error.message, error.fix) from None
    profile = _profile(scenario)
    check_workload(scenario)
    layouts = [engine_layout(scenario, entry, model) for entry in scenario.rollout]
    parts = zip(scenario.rollout, pools, layouts, strict=True)
    rollout = tuple(RolloutPart(entry, pool, layout) for entry, pool, layout in parts)
    _gpus_have_fp8(scenario, trainer_pool, rollout)
    return System(
        scenario=scenario,
        model=model,
        trainer_pool=trainer_pool,
        trainer=train_layout(scenario, model),
        rollout=rollout,
        profile=profile,
        assumptions=_assumptions(scenario, profile),
    )


def _gpus_have_fp8(scenario: Scenario, trainer: Pool, rollout: tuple[RolloutPart, ...]) -> None:
    """FP8 weights are multiplied by FP8 tensor cores; weight-only FP8 on older GPUs is not modelled."""
    if scenario.trainer.precision == "fp8" and "fp8" not in trainer.gpu.peak_flops:
        message = f"{trainer.gpu.name} has no FP8 tensor cores"
        raise scenario.error("trainer.precision", message, "precision: bf16, or a GPU with FP8")
    for part in rollout:
        if part.entry.dtype == "fp8" and "fp8" not in part.pool.gpu.peak_flops:
            message = f"{part.pool.gpu.name} has no FP8 tensor cores (FP8 weights alone are not modelled)"
            raise scenario.error(rollout_key(scenario, part.entry, "dtype"), message, "dtype: bf16, or a GPU with FP8")


def _profile(scenario: Scenario) -> Profile:
    """The calibration profile; a mistake inside its file keeps that file's line."""
    try:
        return profile_for(scenario.framework.name, scenario.costs.profile)
    except UserError as error:
        if error.line is not None:
            raise
        where = f" ({error.file})" if error.file else ""
        raise scenario.error("costs.profile", error.message + where, error.fix) from None


def _assumptions(scenario: Scenario, profile: Profile) -> tuple[str, ...]:
    """Remarks on the scenario, and what the profiles do not tell apart: they are chosen by framework, not version."""
    name, version = scenario.framework.name, scenario.framework.version
    notes: list[str] = []
    if version is not None:
        notes.append(f"no profile of {name} {version}: the one of {profile.name} is used")
    elif scenario.costs.profile == "auto" and profile.name != name:
        notes.append(f"no profile of {name}: the one of {profile.name} is used")
    return (*notes, *remarks(scenario))


def pool_of(scenario: Scenario, name: str | None) -> Pool:
    """A pool of the cluster by name, or the whole cluster where it is of one kind (None).

    Catalog figures are replaced where the file gives its own. A GPU-hour costs what the pool says, else what
    `costs.gpu_hour` says for all, else the catalog's price.
    """
    cluster = scenario.cluster
    if name is None or not cluster.pools:
        return _pool(scenario, "cluster", cluster, "cluster.gpu", None)
    block = cluster.pools[name]
    return _pool(scenario, name, block, f"cluster.pools.{name}.gpu", block.gpu_hour)


def _pool(scenario: Scenario, name: str, block: Cluster | PoolBlock, key: str, price: float | None) -> Pool:
    figures = {
        "hbm_bytes": block.hbm,
        "hbm_bandwidth": block.hbm_bandwidth,
        "nvlink_bandwidth": block.nvlink,
        "nic_bandwidth": block.nic,
        "host_link_bandwidth": block.host_link,
        "host_memory_bytes": block.host_memory,
    }
    try:
        gpu = overridden(catalog.gpu(block.gpu), figures)
    except UserError as error:
        raise UserError(error.message, file=error.file, key=key, fix=error.fix) from None
    domain = block.nvlink_domain if block.nvlink_domain is not None else gpu.nvlink_domain
    prices = [given for given in (price, scenario.costs.gpu_hour) if given is not None]
    return Pool(
        name=name,
        gpu=gpu,
        gpus=block.gpus,
        gpus_per_node=block.gpus_per_node,
        nvlink_domain=domain,
        nic=gpu.nic_bandwidth,
        price=prices[0] if prices else gpu.price_per_hour,
    )


def overridden(gpu: GpuSpec, figures: Mapping[str, float | None]) -> GpuSpec:
    """The catalog's GPU with the figures that the scenario gives; each override becomes its own source."""
    given = {name: value for name, value in figures.items() if value is not None}
    if not given:
        return gpu
    sources = {**gpu.sources, **dict.fromkeys(given, "scenario file")}
    return replace(gpu, sources=sources, **given)  # type: ignore[arg-type]
