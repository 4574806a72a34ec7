"""What a whole training costs: hours, dollars and energy to N steps, checkpoints and failures included.

The step is simulated without checkpoints and trainer crashes; their expectation over a long run is the closed form of
`goodput` (Young, Daly), which a simulation with faults tends to.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from math import inf
from typing import Any

from rlsim import api
from rlsim.costs.checkpoint import checkpoint_cost
from rlsim.costs.faults import fault_costs
from rlsim.goodput import checkpoint_block, expected_goodput
from rlsim.inputs import Change, Inputs
from rlsim.scenario.load import scenario_from_dict
from rlsim.scenario.schema import Scenario
from rlsim.sim.faults import TRAINER_CRASH
from rlsim.sim.prices import Costs
from rlsim.sim.settings import settings
from rlsim.system import pool_of

SIMULATED = 20
"""Steps that stand for all, at most."""


@dataclass(frozen=True)
class Price:
    """GPUs of one pool: how many are paid for, dollars an hour of one, and where that figure is from."""

    pool: str
    gpu: str
    gpus: int
    usd_per_gpu_hour: float
    source: str


@dataclass(frozen=True)
class RunCost:
    """A run of `steps` steps. Seconds; dollars; kWh of the GPUs alone.

    step_s            one step without checkpoints and crashes
    useful_s          of all steps
    checkpoint_every  steps between checkpoints; None: none. chosen: the best interval, as the file has none
    checkpoint_s      the trainer held up by them
    mtbf_s            mean time between trainer crashes; None: none
    crashes           expected
    lost_s            expected restarts and work done again
    wall_s            useful_s + checkpoint_s + lost_s
    best_every        the interval with the best goodput
    """

    name: str
    variant: str
    steps: int
    step_s: float
    useful_s: float
    checkpoint_every: int | None
    chosen: bool
    checkpoint_s: float
    mtbf_s: float | None
    crashes: float
    lost_s: float
    wall_s: float
    goodput: float
    best_every: int | None
    gpu_hours: float
    usd: float
    kwh: float
    usd_per_step: float
    kwh_per_step: float
    prices: tuple[Price, ...]

    def as_dict(self) -> dict[str, Any]:
        """Plain values; `usd_per_1000_steps` beside the rest."""
        return {**asdict(self), "usd_per_1000_steps": 1000 * self.usd_per_step}


def run_cost(
    scenario: Scenario,
    *,
    steps: int,
    mtbf: float | None = None,
    checkpoint_every: int | None = None,
    simulated: int | None = None,
    seed: int | None = None,
) -> RunCost:
    """Hours, dollars and energy of `steps` steps.

    mtbf              seconds between failures of one trainer node, instead of the file's trainer-crash faults
    checkpoint_every  steps between checkpoints, instead of run.checkpoint_every
    simulated         measured steps of the simulation
    """
    scenario = _with(scenario, mtbf, checkpoint_every)
    report = api.check(scenario)
    count = min(simulated or min(SIMULATED, scenario.run.steps), steps)
    result = api.simulate(scenario, steps=count, seed=seed, change=Change(inputs=_undisturbed))
    summary = result.summary()
    costs = replace(result.costs, faults=fault_costs(report.system, checkpoint_cost(report.system)))
    step = float(summary["step_time_s"]["mean"])
    every, chosen, block = _interval(scenario, costs, step)
    useful = steps * step
    held = (steps // every) * costs.checkpoint.blocking_seconds if every and costs.checkpoint else 0.0
    wall, crash_every = useful + held, None
    if block is not None and block["mtbf_s"] is not None:
        crash_every = block["mtbf_s"]
        restart = _restart(costs)
        stall, lag = block["blocking_seconds"], block["background_seconds"]
        if every is None or every >= steps:
            stretch, stall, lag = useful, 0.0, 0.0
        else:
            stretch = every * step
        goodput = expected_goodput(stretch, stall, restart, crash_every, lag)
        wall = useful / goodput if goodput else inf
    if wall > 1e4 * useful:
        raise scenario.error(
            "run.checkpoint_every",
            f"with a crash every {crash_every or 0:,.0f} s on average these steps are practically never done",
            f"checkpoint_every: {block['best_every'] if block else 1}",
        )
    hours = wall / 3600
    gpus = report.system.gpus
    dollars = sum(costs.hourly.values()) * hours
    kwh = float(summary["cost"]["kwh_per_step"]) * wall / step
    return RunCost(
        name=scenario.name,
        variant=scenario.variant,
        steps=steps,
        step_s=step,
        useful_s=useful,
        checkpoint_every=every,
        chosen=chosen,
        checkpoint_s=held,
        mtbf_s=crash_every,
        crashes=wall / crash_every if crash_every else 0.0,
        lost_s=wall - useful - held,
        wall_s=wall,
        goodput=useful / wall,
        best_every=None if block is None else block["best_every"],
        gpu_hours=gpus * hours,
        usd=dollars,
        kwh=kwh,
        usd_per_step=dollars / steps,
        kwh_per_step=kwh / steps,
        prices=_prices(scenario, report),
    )


def _with(scenario: Scenario, mtbf: float | None, every: int | None) -> Scenario:
    """The scenario with another failure rate or checkpoint interval."""
    if mtbf is None and every is None:
        return scenario
    data = scenario.to_dict()
    if mtbf is not None:
        others = [fault for fault in data.get("faults", []) if fault["kind"] != TRAINER_CRASH]
        data["faults"] = [*others, {"kind": TRAINER_CRASH, "mtbf": mtbf}]
    if every is not None:
        data["run"] = {**data.get("run", {}), "checkpoint_every": every}
    return scenario_from_dict(data)


def _undisturbed(inputs: Inputs) -> Inputs:
    """No trainer crashes and no checkpoints: these are added in expectation. Other faults strike as they do."""
    faults = tuple(fault for fault in inputs.costs.faults if fault.kind != TRAINER_CRASH)
    return replace(
        inputs,
        settings=replace(inputs.settings, checkpoint_every=None),
        costs=replace(inputs.costs, faults=faults),
    )


def _interval(scenario: Scenario, costs: Costs, step: float) -> tuple[int | None, bool, dict[str, Any] | None]:
    """(steps between checkpoints, whether it was chosen here, the goodput block)."""
    block = checkpoint_block(settings(scenario), costs, step)
    every = scenario.run.checkpoint_every
    if every is None and block is not None and block["best_every"] is not None:
        return int(block["best_every"]), True, block
    return every, False, block


def _restart(costs: Costs) -> float:
    """Mean seconds of a restart over all crashes at a rate."""
    crashes = [f for f in costs.faults if f.kind == TRAINER_CRASH and f.mtbf is not None]
    rates = [f.places / (f.mtbf or 1.0) for f in crashes]
    return sum(f.duration * rate for f, rate in zip(crashes, rates, strict=True)) / sum(rates)


def _prices(scenario: Scenario, report: api.Check) -> tuple[Price, ...]:
    """One row for each pool that is paid for."""
    system, found = report.system, []
    pools = {pool.name: pool for pool in (system.trainer_pool, *(part.pool for part in system.rollout))}
    hourly = system.hourly()
    for name, dollars in hourly.items():
        pool = pools.get(name)
        if pool is None:  # of a role with GPUs of its own
            pool = pool_of(scenario, name)
        block = scenario.cluster.pools[name] if scenario.cluster.pools else None
        if block is not None and block.gpu_hour is not None:
            source = f"cluster.pools.{name}.gpu_hour"
        elif scenario.costs.gpu_hour is not None:
            source = "costs.gpu_hour"
        else:
            source = pool.gpu.sources["price_per_hour"]
        gpus = round(dollars / pool.price) if pool.price else system.gpus
        found.append(Price(name, pool.gpu.name, gpus, pool.price, source))
    return tuple(found)
