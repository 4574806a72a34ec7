"""The system that a question is asked of, and everything about it that is computed once per process."""

from __future__ import annotations

import json
import shlex
import threading
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Executor, Future, ProcessPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import lru_cache
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from rlsim import api
from rlsim.costs.training import StepTime, TrainingCosts
from rlsim.errors import UserError
from rlsim.inputs import inputs_of
from rlsim.interview.bank import Text
from rlsim.interview.figure import Facts, at
from rlsim.model import ModelSpec
from rlsim.runcost import RunCost, run_cost
from rlsim.scenario.schema import Scenario
from rlsim.sim.prices import Costs
from rlsim.system import System

T = TypeVar("T")
REGIMES: Mapping[str, tuple[str, str]] = {
    "colocated-sync": ("colocated", "sync"),
    "disaggregated-sync": ("disaggregated", "sync"),
    "one-step-off": ("disaggregated", "one-step-off"),
    "async": ("disaggregated", "async"),
}
ASYNC = ("async.policy=areal", "async.max_staleness=4", "async.partial_rollout=true")


class Unanswerable(Exception):
    """The system has not what the question is about; the message says in both languages what is missing."""

    def __init__(self, en: str, zh: str) -> None:
        super().__init__(en, zh)
        self.missing = Text(en, zh)


@dataclass(frozen=True)
class Case:
    """What one command line plays: a variant of the file, with overrides."""

    variant: str
    sets: tuple[str, ...] = ()

    def __and__(self, sets: tuple[str, ...]) -> Case:
        """With further overrides, which take the place of those of the same key."""
        keys = {text.partition("=")[0] for text in sets}
        return Case(self.variant, (*(t for t in self.sets if t.partition("=")[0] not in keys), *sets))


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
    """A scenario file at the moment of asking. `steps`: measured steps of every run (None: the file's).

    players  where simulations are played (None: here, one after another)
    facts    of every question that was answered, by its id
    """

    path: Path
    steps: int | None = None
    players: Executor | None = None
    facts: dict[str, Facts] = field(default_factory=dict)
    checks: dict[Case, api.Check] = field(default_factory=dict)
    played: dict[str, Future[Run]] = field(default_factory=dict)
    plans: dict[Case, api.Reshard] = field(default_factory=dict)
    costs: dict[tuple[Case, int, float], Future[RunCost]] = field(default_factory=dict)
    lock: threading.RLock = field(default_factory=threading.RLock)

    def __post_init__(self) -> None:
        self.variants = api.load_scenario(self.path).variants
        self.base = Case(self.variants[0].variant)

    def played_by(self, players: Executor | None) -> Lab:
        """The same lab, what it knows included, with other players."""
        return replace(self, players=players)

    # --- what is computed, each once ----------

    def scenario(self, case: Case) -> Scenario:
        return _scenario(self.path, case)

    def check(self, case: Case) -> api.Check:
        if case not in self.checks:
            self.checks[case] = api.check(self.scenario(case))
        return self.checks[case]

    def system(self, case: Case) -> System:
        return self.check(case).system

    def run(self, case: Case) -> Run:
        """Raises `Unanswerable` for a case that does not fit into memory."""
        return self.start(case).result()

    def runs(self, cases: Mapping[str, Case]) -> dict[str, Run]:
        """Several cases, at the same time where there are players."""
        started = {name: self.start(case) for name, case in cases.items()}
        return {name: future.result() for name, future in started.items()}

    def start(self, case: Case) -> Future[Run]:
        """The run, played or being played. Cases that come to the same settings are one run."""
        key = json.dumps(self.scenario(case).to_dict(), sort_keys=True)
        with self.lock:
            if key not in self.played or self.played[key].cancelled():
                self.played[key] = _submitted(self.players, _play, self.path, case, self.steps)
            return self.played[key]

    def cost(self, case: Case, *, steps: int, mtbf: float) -> RunCost:
        """A whole training of so many steps, a trainer node failing every `mtbf` seconds on average."""
        key = (case, steps, mtbf)
        with self.lock:
            if key not in self.costs or self.costs[key].cancelled():
                self.costs[key] = _submitted(self.players, _cost, self.path, case, steps, mtbf, self.steps)
        return self.costs[key].result()

    def update(self, case: Case) -> StepTime:
        """The price of the first optimizer update, cause by cause."""
        report = self.check(case)
        inputs = inputs_of(report.system, report.memory)
        batch = inputs.draw(np.random.default_rng(report.scenario.run.seed), inputs.settings.warmup)
        training = inputs.costs.training
        if not isinstance(training, TrainingCosts):
            raise Unanswerable(
                f"{self.file} prices its trainer by a measured profile, which knows no parts",
                f"{self.file} 的训练侧由实测 profile 定价，没有分项",
            )
        lengths = (batch.prompt_tokens[:, None] + batch.response_tokens).ravel()
        return training.update(lengths[: len(lengths) // report.scenario.workload.updates.mini_batches])

    def plan(self, case: Case) -> api.Reshard:
        if case not in self.plans:
            self.plans[case] = api.reshard_plan(self.scenario(case))
        return self.plans[case]

    @property
    def model(self) -> ModelSpec:
        return self.system(self.base).model

    def title(self, lang: str) -> str:
        """One line: the file's name, the model, the GPUs, the batch."""
        report = self.check(self.base)
        if lang != "zh":
            return api.header(report).splitlines()[0]
        work = report.scenario.workload
        batch = f"每步 {work.prompts} 个 prompt × {work.group_size} 个回答"
        return f"{report.scenario.name}：{self.model.name}，{api.hardware(report.system)}，{batch}"

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

    def named(self, name: str) -> Case:
        """The file's variant of that name."""
        if all(scenario.variant != name for scenario in self.variants):
            raise Unanswerable(
                f"{self.path.name} has no variant {name!r}, which this question compares",
                f"{self.path.name} 没有本题要比较的 variant {name!r}",
            )
        return Case(name)

    def _turned(self, placement: str, schedule: str) -> tuple[str, ...]:
        base = self.variants[0]
        if base.cluster.pools or len(base.rollout) > 1:
            raise Unanswerable(
                f"{self.path.name} has pools, and no variant that is {placement} and {schedule}",
                f"{self.path.name} 含多个资源池，且没有 {placement} + {schedule} 的 variant",
            )
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
        return command(self.path, case, verb)

    @property
    def file(self) -> str:
        return _shown(self.path)


@contextmanager
def players(jobs: int) -> Iterator[Executor | None]:
    """So many processes to play simulations in; None for one, which is this one."""
    if jobs == 1:
        yield None
        return
    pool = ProcessPoolExecutor(jobs)
    try:
        pool.submit(int).result()  # the processes start here, before there are threads
        yield pool
    finally:
        pool.shutdown(cancel_futures=True)


def _submitted(where: Executor | None, work: Callable[..., T], *args: object) -> Future[T]:
    if where is not None:
        return where.submit(work, *args)
    done: Future[T] = Future()
    try:
        done.set_result(work(*args))
    except (Unanswerable, UserError) as error:
        done.set_exception(error)
    return done


def _play(path: Path, case: Case, steps: int | None) -> Run:
    try:
        result = api.simulate(_scenario(path, case), steps=steps)
    except api.InfeasibleError as error:
        problem = error.report.memory.problems[0]
        shown = command(path, case)
        raise Unanswerable(
            f"{shown} does not fit: {problem.role}: {problem.by}", f"{shown} 显存放不下：{problem.role}：{problem.by}"
        ) from None
    return Run(result.summary(), result.costs)


def _cost(path: Path, case: Case, steps: int, mtbf: float, simulated: int | None) -> RunCost:
    return run_cost(_scenario(path, case), steps=steps, mtbf=mtbf, simulated=simulated)


def _scenario(path: Path, case: Case) -> Scenario:
    return api.load_scenario(path, case.sets, case.variant).variants[0]


def command(path: Path, case: Case, verb: str = "run") -> str:
    """The command line that shows a case."""
    sets = "".join(f" --set {shlex.quote(text)}" for text in case.sets)
    return f"rlsim {verb} {_shown(path)} --variant {shlex.quote(case.variant)}{sets}"


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
