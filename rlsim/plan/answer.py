"""The answer of a plan: winners of every regime, the front over them, what the bounds excluded."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from rlsim.plan.goal import Goal
from rlsim.plan.search.search import Search, Simulated
from rlsim.plan.search.space import scenario_of
from rlsim.scenario.schema import Scenario

KNEE = 0.5
"""Share of the ideal speed-up below which more GPUs are no longer worth it: half of them are wasted."""


@dataclass(frozen=True)
class Choice:
    """The best of one regime on one number of GPUs, as simulated. `staleness`: versions that samples may be late."""

    gpus: int
    regime: str
    staleness: float
    scenario: Scenario
    summary: Mapping[str, Any]
    bound: float

    @property
    def placement(self) -> str:
        return self.scenario.placement

    @property
    def seconds(self) -> float:
        """Mean step time."""
        return float(self.summary["step_time_s"]["mean"])

    @property
    def usd(self) -> float:
        """Dollars of a step."""
        return float(self.summary["cost"]["usd_per_step"])

    def dominates(self, other: Choice) -> bool:
        """At least as good in step time, dollars, GPUs and staleness, and better in one."""
        mine = (self.seconds, self.usd, self.gpus, self.staleness)
        theirs = (other.seconds, other.usd, other.gpus, other.staleness)
        return all(a <= b for a, b in zip(mine, theirs, strict=True)) and mine != theirs

    def as_dict(self) -> dict[str, Any]:
        return {
            "gpus": self.gpus,
            "regime": self.regime,
            "staleness_bound": self.staleness,
            "step_time_s": self.seconds,
            "usd_per_step": self.usd,
            "scenario": self.scenario.to_dict(),
            "summary": dict(self.summary),
        }


@dataclass(frozen=True)
class Count:
    """Candidates of a search by what became of them; `undecided` is not zero where a limit ended it."""

    candidates: int
    infeasible: int
    pruned: int
    simulated: int
    undecided: int


@dataclass(frozen=True)
class Plan:
    """What `rlsim plan` found."""

    name: str
    goal: Goal
    choices: tuple[Choice, ...]
    count: Count
    undecided: Mapping[str, int]
    steps: int
    seconds: float

    @cached_property
    def ranked(self) -> list[Choice]:
        return sorted(self.choices, key=lambda c: (self.goal.rank(c.seconds, c.usd), c.staleness, c.gpus))

    @property
    def best(self) -> Choice | None:
        return self.ranked[0] if self.ranked else None

    @property
    def met(self) -> bool:
        """Whether the best is good enough."""
        return self.best is not None and self.goal.met(self.best.seconds, self.best.usd)

    @property
    def best_other_placement(self) -> Choice | None:
        best = self.best
        return next((c for c in self.ranked if best is not None and c.placement != best.placement), None)

    def best_by_policy(self, on_policy: bool) -> Choice | None:
        """The best with fresh samples, or the best with samples that may be late."""
        return next((c for c in self.ranked if (c.staleness == 0) == on_policy), None)

    @cached_property
    def pareto(self) -> list[Choice]:
        """What nothing beats in step time, dollars, GPUs and staleness at once."""
        front = [c for c in self.choices if not any(other.dominates(c) for other in self.choices)]
        return sorted(front, key=lambda c: (c.seconds, c.usd))

    @cached_property
    def curve(self) -> list[Choice]:
        """The fastest on each number of GPUs."""
        best: dict[int, Choice] = {}
        for choice in self.choices:
            if choice.gpus not in best or choice.seconds < best[choice.gpus].seconds:
                best[choice.gpus] = choice
        return [best[gpus] for gpus in sorted(best)]

    @property
    def knee(self) -> int | None:
        """Most GPUs up to which every step along the curve brings at least half of its ideal speed-up."""
        curve = self.curve
        if len(curve) < 2:
            return None
        knee = curve[0]
        for choice in curve[1:]:
            speed_up, ideal = knee.seconds / choice.seconds - 1, choice.gpus / knee.gpus - 1
            if speed_up < KNEE * ideal:
                break
            knee = choice
        return knee.gpus

    def as_dict(self) -> dict[str, Any]:
        """The JSON contract."""
        best, other = self.best, self.best_other_placement
        on, off = self.best_by_policy(True), self.best_by_policy(False)
        return {
            "name": self.name,
            "candidates": self.count.candidates,
            "infeasible": self.count.infeasible,
            "pruned": self.count.pruned,
            "simulated": self.count.simulated,
            "undecided": self.count.undecided,
            "undecided_by_regime": dict(self.undecided),
            "seconds": self.seconds,
            "steps": self.steps,
            "goal_met": self.met,
            "best": best and best.as_dict(),
            "best_other_placement": other and other.as_dict(),
            "best_on_policy": on and on.as_dict(),
            "best_off_policy": off and off.as_dict(),
            "pareto": [choice.as_dict() for choice in self.pareto],
            "curve": [
                {"gpus": c.gpus, "step_time_s": c.seconds, "usd_per_step": c.usd, "regime": c.regime}
                for c in self.curve
            ],
            "knee_gpus": self.knee,
        }


def why(a: Choice, b: Choice) -> list[tuple[str, float]]:
    """Seconds by phase that b's critical path has more than a's, the largest first; they add up to the difference."""
    phases = {name: b.summary["phases_s"][name] - seconds for name, seconds in a.summary["phases_s"].items()}
    return sorted(((n, s) for n, s in phases.items() if abs(s) > 0.005 * a.seconds), key=lambda one: -abs(one[1]))


def choices_of(search: Search, staleness: Mapping[str, float]) -> tuple[Choice, ...]:
    """The winner of every group that has one."""
    found = []
    for group in search.groups.values():
        if group.simulated:
            best: Simulated = min(group.simulated, key=lambda one: one.seconds)
            candidate = best.candidate
            scenario = scenario_of(search.base, candidate, group.gpus)
            bound = staleness[candidate.block.schedule]
            found.append(Choice(group.gpus, group.regime, bound, scenario, best.summary, best.bound))
    return tuple(found)
