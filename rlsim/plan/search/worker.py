"""What a process of the search does: price a side, and take a candidate as far as its bound allows."""

from __future__ import annotations

from dataclasses import dataclass
from math import inf
from typing import Any

from rlsim import api
from rlsim.memory import measure
from rlsim.plan.search.parts import Side, Store, plain, reward_seconds
from rlsim.plan.search.space import Candidate, scenario_of
from rlsim.sim.settings import settings

STORE: list[Store] = []


def begin(base: dict[str, Any], cluster_gpus: int, steps: int, seed: int) -> None:
    """A new process, or a new search in this one."""
    STORE[:] = [Store(base, cluster_gpus, steps, seed)]


def trainer(candidates: tuple[Candidate, ...]) -> tuple[Side, ...]:
    return STORE[0].trainer(candidates)


def engine(candidate: Candidate) -> Side:
    return STORE[0].engine(candidate)


@dataclass(frozen=True)
class Outcome:
    """What a candidate is found to be: one more part of it, or its simulation.

    fits     False: this trainer and this engine do not fit together
    once     seconds of weight sync and switch
    reward   seconds that rewards take at most after the last token
    rollout  seconds of the rollout of each batch
    """

    candidate: Candidate
    fits: bool = True
    once: float | None = None
    reward: float = inf
    rollout: tuple[float, ...] | None = None
    summary: dict[str, Any] | None = None


def paired(candidate: Candidate) -> Outcome:
    """Weight sync and switch of a trainer and an engine that fit together."""
    store = STORE[0]
    system = store.system(candidate)
    if measure(system).problems:
        return Outcome(candidate, fits=False)
    regime = settings(system.scenario)
    return Outcome(candidate, once=store.once(system, regime), reward=reward_seconds(system, regime))


def rolled(candidate: Candidate) -> Outcome:
    """The rollouts of the batches alone."""
    store = STORE[0]
    system = store.system(candidate)
    memory = measure(system)
    if memory.problems:
        return Outcome(candidate, fits=False)
    if not plain(system, settings(system.scenario)):
        return Outcome(candidate)
    return Outcome(candidate, rollout=store.rollout(system, memory.engines[0].kv_tokens_per_rank))


def played(candidate: Candidate) -> Outcome:
    """The simulation."""
    try:
        return Outcome(candidate, summary=simulated(candidate))
    except api.InfeasibleError:
        return Outcome(candidate, fits=False)


def simulated(candidate: Candidate) -> dict[str, Any]:
    """The summary of a candidate's simulation, as `rlsim run` gives it."""
    store = STORE[0]
    scenario = scenario_of(store.base, candidate, store.cluster_gpus)
    return api.simulate(scenario, steps=store.steps, seed=store.seed).summary()
