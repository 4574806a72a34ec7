"""What a step's seconds are for: every cost removed and simulated, alone and together, and knobs that get part back.

Effects do not add up: two costs may hide behind each other (removing either gains nothing), or each may take what the
other leaves (both alone gain more than together). So the sum of the parts is shown beside the joint effect, and the
largest costs are also removed one after another, where each gains what the ones before it have left.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import dataclass
from typing import Any

from rlsim import api
from rlsim.counterfactual.knobs import OTHER, Base, Knob, knobs, turned
from rlsim.counterfactual.removals import BY_NAME, Removal, present, together
from rlsim.errors import UserError
from rlsim.scenario.schema import Scenario

STEPS = 5
"""Measured steps of each simulation, unless the file or the caller has fewer or asks for more."""
WORTH_A_KNOB = 0.01
"""Share of the step that a cost has to be worth before knobs are tried for it."""
Report = Callable[[int, int], None]


@dataclass(frozen=True)
class Turned:
    """A knob, simulated: the step it gives, or why it cannot be turned."""

    knob: Knob
    seconds: float | None
    usd_per_step: float | None = None
    staleness: float | None = None
    refusal: str | None = None


@dataclass(frozen=True)
class Worth:
    """A cost: seconds of the step without it, and the knobs for it, best first."""

    removal: Removal
    seconds: float
    knobs: tuple[Turned, ...] = ()


@dataclass(frozen=True)
class Explanation:
    """The answer of `rlsim explain`.

    summary   of the scenario as it is
    costs     largest worth first
    cascade   (cost, seconds of the step without it and all before it): the costs worth a knob, largest first
    floor     summary with every cost removed
    others    knobs that go for no single cost, best first
    """

    scenario: Scenario
    header: str
    summary: dict[str, Any]
    costs: tuple[Worth, ...]
    cascade: tuple[tuple[str, float], ...]
    floor: dict[str, Any]
    others: tuple[Turned, ...]
    simulations: int

    @property
    def seconds(self) -> float:
        """The step as it is."""
        return float(self.summary["step_time_s"]["mean"])

    @property
    def floor_seconds(self) -> float:
        return float(self.floor["step_time_s"]["mean"])

    @property
    def sum_of_parts(self) -> float:
        """Seconds that the costs are worth alone, added up."""
        return sum(self.seconds - cost.seconds for cost in self.costs)

    def as_dict(self) -> dict[str, Any]:
        """Plain values; `realises` is a knob's saving over the worth of its cost."""
        step = self.seconds
        return {
            "name": self.scenario.name,
            "variant": self.scenario.variant,
            "steps": self.summary["steps"],
            "step_time_s": step,
            "simulations": self.simulations,
            "costs": [
                {
                    "name": cost.removal.name,
                    "cost": cost.removal.noun,
                    "counterfactual": cost.removal.without,
                    "step_time_s": cost.seconds,
                    "worth_s": step - cost.seconds,
                    "worth_share": 1 - cost.seconds / step,
                    "knobs": [_knob_dict(one, step, step - cost.seconds) for one in cost.knobs],
                }
                for cost in self.costs
            ],
            "sum_of_parts_s": self.sum_of_parts,
            "together_s": step - self.floor_seconds,
            "cascade": [{"name": name, "step_time_s": seconds} for name, seconds in self.cascade],
            "floor": {"step_time_s": self.floor_seconds, "phases_s": self.floor["phases_s"]},
            "other_changes": [_knob_dict(one, step, None) for one in self.others],
        }


def _knob_dict(one: Turned, step: float, worth: float | None) -> dict[str, Any]:
    saves = None if one.seconds is None else step - one.seconds
    return {
        "change": one.knob.text,
        "set": dict(one.knob.keys),
        "step_time_s": one.seconds,
        "saves_s": saves,
        "realises": saves / worth if saves is not None and worth else None,
        "usd_per_step": one.usd_per_step,
        "staleness": one.staleness,
        "refusal": one.refusal,
    }


@dataclass(frozen=True)
class Task:
    """One simulation: costs removed (by name), or keys changed."""

    scenario: Scenario
    steps: int
    seed: int | None
    without: tuple[str, ...] = ()
    knob: Knob | None = None


def explain(
    scenario: Scenario, *, steps: int | None = None, seed: int | None = None, progress: Report | None = None
) -> Explanation:
    """Simulate a scenario without each of its costs, and with the knobs that realise part of it.

    `progress(done, total)` is called after every simulation. Raises `InfeasibleError` where the scenario does not fit.
    """
    count = steps or min(STEPS, scenario.run.steps)
    report = api.check(scenario)
    result = api.simulate(scenario, steps=count, seed=seed)
    summary = result.summary()
    step = float(summary["step_time_s"]["mean"])
    found = list(present(scenario))
    every = tuple(removal.name for removal in found)
    with Pool(scenario, count, seed, progress) as pool:
        base = Base(scenario, summary, dict(result.costs.sync.alternatives))
        *alone, floor = pool.play([pool.without(r.name) for r in found] + [pool.without(*every)])
        seconds = {r.name: one["step_time_s"]["mean"] for r, one in zip(found, alone, strict=True)}
        ranked = sorted(found, key=lambda r: seconds[r.name])
        large = [r.name for r in ranked if step - seconds[r.name] >= WORTH_A_KNOB * step]
        tried = [knob for knob in knobs(base) if knob.cost in (*large, OTHER)]
        steps_down = [pool.without(*large[:n]) for n in range(2, len(large) + 1)]
        outcomes = pool.play(steps_down + [pool.turned(knob) for knob in tried])
    below = [one["step_time_s"]["mean"] for one in outcomes[: len(steps_down)]]
    cascade = list(zip(large, [*(seconds[name] for name in large[:1]), *below], strict=True))
    results = [_turned(knob, one) for knob, one in zip(tried, outcomes[len(steps_down) :], strict=True)]
    results.sort(key=lambda one: one.seconds if one.seconds is not None else float("inf"))
    return Explanation(
        scenario=scenario,
        header=api.header(report),
        summary=summary,
        costs=tuple(
            Worth(r, seconds[r.name], tuple(one for one in results if one.knob.cost == r.name)) for r in ranked
        ),
        cascade=tuple(cascade),
        floor=floor,
        others=tuple(one for one in results if one.knob.cost == OTHER),
        simulations=1 + pool.done,
    )


def _turned(knob: Knob, outcome: dict[str, Any]) -> Turned:
    if "refusal" in outcome:
        return Turned(knob, None, refusal=outcome["refusal"])
    return Turned(
        knob,
        outcome["step_time_s"]["mean"],
        usd_per_step=outcome["cost"]["usd_per_step"],
        staleness=outcome["staleness"]["mean"],
    )


def play(task: Task) -> dict[str, Any]:
    """The summary of one simulation, or why there is none ("refusal")."""
    try:
        scenario = task.scenario if task.knob is None else turned(task.scenario, task.knob.keys)
        result = api.simulate(scenario, steps=task.steps, seed=task.seed, change=together(task.without))
    except api.InfeasibleError as error:
        return {"refusal": f"does not fit into memory ({error})"}
    except UserError as error:
        if task.knob is None:
            raise
        return {"refusal": f"not possible: {error.message}"}
    return result.summary()


class Pool:
    """Processes that simulate, and how many simulations are done."""

    def __init__(self, scenario: Scenario, steps: int, seed: int | None, progress: Report | None) -> None:
        self._scenario, self._steps, self._seed, self._progress = scenario, steps, seed, progress
        self._workers = ProcessPoolExecutor(min(os.cpu_count() or 1, 8))
        self.done = 0

    def __enter__(self) -> Pool:
        return self

    def __exit__(self, *error: object) -> None:
        self._workers.shutdown(cancel_futures=True)

    def without(self, *names: str) -> Task:
        return Task(self._scenario, self._steps, self._seed, without=names)

    def turned(self, knob: Knob) -> Task:
        return Task(self._scenario, self._steps, self._seed, knob=knob)

    def play(self, tasks: Sequence[Task]) -> list[dict[str, Any]]:
        """Summaries in the order of the tasks."""
        futures = [self._workers.submit(play, task) for task in tasks]
        for _ in as_completed(futures):
            self.done += 1
            if self._progress is not None:
                self._progress(self.done, self.done + sum(not future.done() for future in futures))
        return [future.result() for future in futures]


def noun(name: str) -> str:
    """What a cost is called."""
    return BY_NAME[name].noun
