"""`rlsim.plan`: from a scenario and a question to an answer."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from rlsim.errors import UserError
from rlsim.plan.answer import Count, Plan, choices_of
from rlsim.plan.goal import Goal
from rlsim.plan.search.search import Limits, Search
from rlsim.plan.search.space import REGIMES, blocks, check_plannable, ladder, staleness_bound, whole_nodes
from rlsim.scenario.load import ScenarioFile
from rlsim.scenario.schema import Scenario


def plan(
    scenario: Scenario | ScenarioFile,
    goal: Goal | None = None,
    *,
    only: Mapping[str, Sequence[Any]] | None = None,
    limits: Limits | None = None,
    progress: Callable[[str, int, int], None] | None = None,
) -> Plan:
    """Search for the best way to run the scenario's model and workload on its kind of GPU.

    `only` limits choices by dotted key, `{"placement": ["colocated"], "trainer.tp": [1, 2]}`. Of a file the first
    variant is taken. Raises `UserError` where nothing can be planned.
    """
    return plan_of(*searched(scenario, goal, only=only, limits=limits, progress=progress))


def searched(
    scenario: Scenario | ScenarioFile,
    goal: Goal | None = None,
    *,
    only: Mapping[str, Sequence[Any]] | None = None,
    limits: Limits | None = None,
    progress: Callable[[str, int, int], None] | None = None,
) -> tuple[Search, Scenario, Goal, float]:
    """The search behind a plan, run: for whoever wants to see more of it than the answer."""
    begun = time.perf_counter()
    base = scenario.variants[0] if isinstance(scenario, ScenarioFile) else scenario
    wanted, chosen = goal or Goal(), dict(only or {})
    wanted.check()
    check_plannable(base)
    check_only(chosen)
    budgets = _budgets(base, wanted)
    space = [block for gpus in budgets for block in blocks(base, gpus, chosen)]
    size = sum(block.size for block in space)
    if not size:
        keys = ", ".join(chosen) or "--gpus"
        raise UserError("no layout divides", key=keys, fix="more GPUs, or fewer limits")
    search = Search(
        space, base.to_dict(), base.run.seed, limits or Limits(), progress or (lambda what, done, total: None)
    )
    search.run()
    return search, base, wanted, time.perf_counter() - begun


def plan_of(search: Search, base: Scenario, goal: Goal, seconds: float) -> Plan:
    """The answer that a search gives."""
    staleness = {schedule: staleness_bound(base, schedule) for _, schedule in REGIMES}
    left: dict[str, int] = {}
    for group in search.groups.values():
        if count := search.undecided_of(group):
            left[group.regime] = left.get(group.regime, 0) + count
    return Plan(
        name=base.name,
        goal=goal,
        choices=choices_of(search, staleness),
        count=Count(search.candidates, search.infeasible, search.pruned, search.simulated, search.undecided),
        undecided=left,
        steps=search.limits.steps,
        seconds=seconds,
    )


def _budgets(base: Scenario, goal: Goal) -> tuple[int, ...]:
    """The numbers of GPUs asked for; without one the file's cluster, or a ladder up to it where a price or deadline
    decides.
    """
    for gpus in goal.gpus:
        whole_nodes(base, gpus)
    if goal.gpus:
        return goal.gpus
    priced = goal.most_seconds is not None or goal.most_usd is not None
    return tuple(ladder(base)) if priced else (base.cluster.gpus,)


def check_only(only: Mapping[str, Sequence[Any]]) -> None:
    """Limits name keys that a plan chooses."""
    for key, values in only.items():
        role, dot, _ = key.partition(".")
        if not (dot and role in ("trainer", "rollout")) and key not in (
            "placement",
            "schedule",
            "weight_sync.strategy",
        ):
            fix = "placement, schedule, weight_sync.strategy, trainer.KEY or rollout.KEY"
            raise UserError(f"{key} is not chosen by a plan", key="--only", fix=fix)
        if not values:
            raise UserError(f"{key} has no value", key="--only", fix=f"--only {key}=a,b")
