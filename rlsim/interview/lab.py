"""The system that a question is asked of, and everything about it that is computed once per process."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Any

from rlsim import api
from rlsim.errors import UserError
from rlsim.interview.figure import at
from rlsim.model import ModelSpec
from rlsim.scenario.schema import Scenario
from rlsim.sim.prices import Costs
from rlsim.system import System

REGIMES: Mapping[str, tuple[str, str]] = {
    "colocated-sync": ("colocated", "sync"),
    "disaggregated-sync": ("disaggregated", "sync"),
    "one-step-off": ("disaggregated", "one-step-off"),
    "async": ("disaggregated", "async"),
}
ASYNC = ("async.policy=areal", "async.max_staleness=4", "async.partial_rollout=true")


class Unanswerable(Exception):
    """The system has not what the question is about; the message says what is missing."""


@dataclass(frozen=True)
class Case:
    """What one command line plays: a variant of the file, with overrides."""

    variant: str
    sets: tuple[str, ...] = ()

    def __and__(self, sets: tuple[str, ...]) -> Case:
        return Case(self.variant, (*self.sets, *sets))


@dataclass(frozen=True)
class Run:
    """One case, played: its summary (JSON contract) and its prices."""

    summary: Mapping[str, Any]
    costs: Costs

    def __getitem__(self, path: str) -> float:
        return at(self.summary, path)

    @property
    def step(self) -> float:
        return self["step_time_s.mean"]


@dataclass
class Lab:
    """A scenario file at the moment of asking. `steps`: measured steps of every run (None: the file's)."""

    path: Path
    steps: int | None = None
    _checks: dict[Case, api.Check] = field(default_factory=dict)
    _runs: dict[Case, Run] = field(default_factory=dict)
    _plans: dict[Case, api.Reshard] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.variants = api.load_scenario(self.path).variants
        self.base = Case(self.variants[0].variant)

    # --- what is computed, each once ----------

    def scenario(self, case: Case) -> Scenario:
        return api.load_scenario(self.path, case.sets, case.variant).variants[0]

    def check(self, case: Case) -> api.Check:
        if case not in self._checks:
            self._checks[case] = api.check(self.scenario(case))
        return self._checks[case]

    def system(self, case: Case) -> System:
        return self.check(case).system

    def run(self, case: Case) -> Run:
        if case not in self._runs:
            try:
                result = api.simulate(self.scenario(case), steps=self.steps)
            except api.InfeasibleError as error:
                problem = error.report.memory.problems[0]
                raise Unanswerable(f"{self.command(case)} does not fit: {problem.role}: {problem.by}") from None
            self._runs[case] = Run(result.summary(), result.costs)
        return self._runs[case]

    def plan(self, case: Case) -> api.Reshard:
        if case not in self._plans:
            self._plans[case] = api.reshard_plan(self.scenario(case))
        return self._plans[case]

    @property
    def model(self) -> ModelSpec:
        return self.system(self.base).model

    @property
    def title(self) -> str:
        """One line: the file's name, the model, the GPUs."""
        return api.header(self.check(self.base)).splitlines()[0]

    # --- cases ----------

    def regime(self, name: str) -> Case:
        """The file's variant of that name, else its first of that placement and schedule, else the base turned into
        one: co-located on all GPUs, disaggregated on half and half."""
        for scenario in self.variants:
            if scenario.variant == name:
                return Case(name)
        placement, schedule = REGIMES[name]
        for scenario in self.variants:
            if (scenario.placement, scenario.schedule) == (placement, schedule):
                return Case(scenario.variant)
        return self.base & self._turned(placement, schedule)

    def _turned(self, placement: str, schedule: str) -> tuple[str, ...]:
        base = self.variants[0]
        if base.cluster.pools or len(base.rollout) > 1:
            raise Unanswerable(f"{self.path.name} has pools, and no variant that is {placement} and {schedule}")
        gpus = base.cluster.gpus
        each = gpus if placement == "colocated" else gpus // 2
        sets = (
            f"placement={placement}",
            f"schedule={schedule}",
            f"trainer.gpus={each}",
            f"rollout.gpus={gpus if placement == 'colocated' else gpus - each}",
        )
        return sets + (ASYNC if schedule == "async" else ())

    def command(self, case: Case, verb: str = "run") -> str:
        """The command line that shows a case."""
        sets = "".join(f" --set {shlex.quote(text)}" for text in case.sets)
        return f"rlsim {verb} {_shown(self.path)} --variant {shlex.quote(case.variant)}{sets}"

    @property
    def file(self) -> str:
        return _shown(self.path)


def _shown(path: Path) -> str:
    """A path as the user would type it."""
    try:
        return shlex.quote(str(path.relative_to(Path.cwd())))
    except ValueError:
        return shlex.quote(str(path))


def shipped(name: str) -> Path:
    """A scenario of the repository: beside the package, or in the folder one stands in."""
    for root in (Path(__file__).parents[2], Path.cwd()):
        path = root / "scenarios" / f"{name}.yaml"
        if path.exists():
            return path
    raise UserError(
        f"scenarios/{name}.yaml is not here: the shipped scenarios are in the repository",
        fix="run this in a checkout, or answer for a file of your own with --scenario",
    )


@lru_cache(maxsize=64)
def _lab(path: Path, changed: int, steps: int | None) -> Lab:
    return Lab(path, steps)


def lab_of(path: Path, steps: int | None = None) -> Lab:
    """The lab of a file, the same one as long as the file does not change."""
    path = path.absolute()
    return _lab(path, path.stat().st_mtime_ns if path.exists() else 0, steps)
