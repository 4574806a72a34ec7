"""The public functions: everything the command line and the dashboard do goes through these."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, ProcessPoolExecutor, as_completed
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Protocol

from rlsim.catalog.profiles import Profile
from rlsim.errors import UserError
from rlsim.inputs import AS_IT_IS, Change, inputs_of
from rlsim.lending import check_lending
from rlsim.memory import MemoryReport, check_memory
from rlsim.resharding import Reshard, reshard_plan
from rlsim.result import Labels, Result, infeasible_summary
from rlsim.result import simulate as play
from rlsim.scenario.inert import inert_blocks
from rlsim.scenario.load import ScenarioFile, load_scenario
from rlsim.scenario.schema import Scenario
from rlsim.sim.settings import settings
from rlsim.system import System, resolve

__all__ = [
    "Check",
    "Comparison",
    "Reshard",
    "Result",
    "ScenarioFile",
    "check",
    "compare",
    "load_scenario",
    "replay",
    "reshard_plan",
    "simulate",
]


@dataclass(frozen=True)
class Check:
    """What `rlsim check` knows without simulating: layouts and memory."""

    scenario: Scenario
    system: System
    memory: MemoryReport
    inert: tuple[str, ...]

    @property
    def feasible(self) -> bool:
        return not self.memory.problems


@dataclass(frozen=True)
class Outcome:
    """One variant: its summary (JSON contract), and the whole result when it was asked for and is feasible.

    `sync_seconds`: what the weight sync would take by each strategy that the placement allows; empty if infeasible.
    """

    summary: dict[str, Any]
    result: Result | None
    sync_seconds: Mapping[str, float]


@dataclass(frozen=True)
class Comparison:
    """All variants of one scenario file, in the file's order."""

    header: str
    outcomes: tuple[Outcome, ...]

    @property
    def summaries(self) -> list[dict[str, Any]]:
        return [o.summary for o in self.outcomes]

    @property
    def results(self) -> list[Result]:
        return [o.result for o in self.outcomes if o.result is not None]


class Bar(Protocol):
    """A progress bar; `rich.progress.Progress` is one."""

    def __enter__(self) -> Bar: ...
    def __exit__(self, *args: object) -> None: ...
    def advance(self, task: int) -> None: ...


def check(scenario: Scenario, profile: Mapping[str, float] | None = None) -> Check:
    """Resolve a scenario and check its memory; nothing is simulated. `profile`: values of the calibration profile that
    are to differ from its own (SI).

    Raises `UserError` where the scenario itself is wrong.
    """
    system = resolve(scenario)
    if profile:
        system = replace(system, profile=system.profile.with_values(**profile))
    check_lending(system)
    return Check(scenario, system, check_memory(system), tuple(inert_blocks(scenario)))


def simulate(
    scenario: Scenario,
    *,
    steps: int | None = None,
    seed: int | None = None,
    change: Change = AS_IT_IS,
    profile: Mapping[str, float] | None = None,
) -> Result:
    """Play one variant, with `change` made to what it costs; `profile` as in `check`.

    Raises `InfeasibleError` when it does not fit into memory.
    """
    report = check(scenario, profile)
    if not report.feasible:
        raise InfeasibleError(report)
    return _play(report, steps, seed, change)


def replay(scenario: Scenario, profile: Profile, *, steps: int | None = None) -> Result:
    """Play one variant priced by another profile, whether or not the memory check lets it: the run was measured."""
    report = check(scenario)
    return _play(replace(report, system=replace(report.system, profile=profile)), steps, None)


class InfeasibleError(Exception):
    """The variant does not fit into memory; `report` says where, by how much, and the nearest change that fits."""

    def __init__(self, report: Check) -> None:
        super().__init__("; ".join(f"{p.role}: {p.fix}" for p in report.memory.problems))
        self.report = report


def compare(
    scenarios: Sequence[Scenario],
    *,
    steps: int | None = None,
    seed: int | None = None,
    keep: bool = False,
    progress: Callable[[int], Bar] | None = None,
) -> Comparison:
    """Play several variants, in parallel processes, and put their summaries side by side.

    `keep` brings back the whole results too, not just the summaries. Every variant is checked before the first one
    is played, so that a mistake in the last is seen at once.
    """
    reports = [check(s) for s in scenarios]
    one = partial(_outcome, steps=steps, seed=seed, keep=keep)
    workers = min(len(reports), os.cpu_count() or 1)
    outcomes = [one(r) for r in reports] if workers == 1 else _in_parallel(one, reports, workers, progress)
    return Comparison(header(reports[0]), tuple(outcomes))


def _in_parallel(
    one: Callable[[Check], Outcome],
    reports: Sequence[Check],
    workers: int,
    progress: Callable[[int], Bar] | None,
) -> list[Outcome]:
    """The asynchronous variants take longest, so they start first."""
    order = sorted(range(len(reports)), key=lambda i: reports[i].scenario.schedule != "async")
    with ProcessPoolExecutor(workers) as pool:
        started: dict[int, Future[Outcome]] = {i: pool.submit(one, reports[i]) for i in order}
        futures = [started[i] for i in range(len(reports))]
        if progress is not None:
            with progress(len(futures)) as bar:
                for _ in as_completed(futures):
                    bar.advance(0)
        return [f.result() for f in futures]


def _outcome(report: Check, steps: int | None, seed: int | None, keep: bool) -> Outcome:
    if not report.feasible:
        labels = _labels(report.scenario, seed)
        count = steps or report.scenario.run.steps
        return Outcome(infeasible_summary(labels, settings(report.scenario), count, report.memory), None, {})
    result = _play(report, steps, seed)
    return Outcome(result.summary(), result if keep else None, dict(result.costs.sync.alternatives))


def _play(report: Check, steps: int | None, seed: int | None, change: Change = AS_IT_IS) -> Result:
    scenario = report.scenario
    inputs = inputs_of(report.system, report.memory, change)
    count = steps or scenario.run.steps
    labels = _labels(scenario, seed)
    try:
        return play(inputs.settings, inputs.costs, inputs.draw, labels, count, scenario.run.seeds)
    except UserError as error:  # what only the simulation finds out: it knows the key, not the file
        if error.file is not None or error.key is None:
            raise
        raise scenario.error(error.key, error.message, error.fix) from None


def _labels(scenario: Scenario, seed: int | None) -> Labels:
    return Labels(scenario.name, scenario.variant, scenario.run.seed if seed is None else seed)


def header(report: Check) -> str:
    """Two lines that say what was simulated."""
    scenario, system = report.scenario, report.system
    work = scenario.workload
    return (
        f"{scenario.name}: {system.model.name} on {hardware(system)}, "
        f"{work.prompts} prompts x {work.group_size} responses a step\n"
        f"profile: {system.profile.name}"
    )


def hardware(system: System) -> str:
    """The GPUs in a few words: "64 x h100-sxm", or by pool: "train 32 x h100-sxm + roll 64 x h20"."""
    cluster = system.scenario.cluster
    if not cluster.pools:
        return f"{cluster.gpus:,} x {system.trainer_pool.gpu.name}"
    return " + ".join(f"{name} {pool.gpus:,} x {pool.gpu}" for name, pool in cluster.pools.items())
