"""The search finds what trying everything finds, and its bounds are below the simulation."""

from __future__ import annotations

from math import inf
from pathlib import Path

import pytest

import rlsim
from rlsim.plan.planner import searched
from rlsim.plan.search import worker
from rlsim.plan.search.search import Limits, Search
from rlsim.plan.search.space import Candidate, blocks, scenario_of
from tests.plan.small import ONLY, small

ALL = Limits(processes=1, simulations=10_000, pairs=10_000)


def found(limits: Limits = ALL) -> Search:
    return searched(small(), only=ONLY, limits=limits)[0]


@pytest.fixture(scope="module")
def search() -> Search:
    return found()


def everything(regime: str) -> dict[Candidate, float]:
    """Step time of every candidate of a regime, each simulated."""
    base, times = small(), {}
    for block in blocks(base, 8, ONLY):
        if block.regime == regime:
            for i in range(len(block.trainers)):
                for j in range(len(block.engines)):
                    one = scenario_of(base.to_dict(), Candidate(block, i, j, "auto"), 8)
                    result = rlsim.simulate(one, steps=2, seed=0)
                    times[i, j, block.trainer_gpus] = result.summary()["step_time_s"]["mean"]
    return times


@pytest.mark.parametrize("regime", ["colocated-sync", "disaggregated-sync", "one-step-off", "async"])
def test_exhaustive_search_finds_the_same_optimum(search: Search, regime: str) -> None:
    times = everything(regime)
    group = search.groups[8, regime]
    assert group.size == len(times)
    assert group.best == min(times.values())


def test_every_candidate_is_accounted_for(search: Search) -> None:
    assert search.undecided == 0
    counted = sum(len(g.simulated) + len(g.pruned) + len(g.heap) + len(g.left) for g in search.groups.values())
    assert counted + search.infeasible == search.candidates
    assert search.pruned > 0


def test_bounds_are_below_the_simulation_and_near_it_where_batches_are_whole(search: Search) -> None:
    for group in search.groups.values():
        for one in group.simulated:
            assert one.bound <= one.seconds
            assert group.regime == "async" or one.bound > 0.99 * one.seconds


def test_what_was_pruned_does_not_beat_its_regime(search: Search) -> None:
    pruned = search.some_pruned(0.2)
    assert pruned
    for candidate, best in pruned:
        scenario = scenario_of(search.base, candidate, 8)
        assert rlsim.simulate(scenario, steps=2, seed=0).summary()["step_time_s"]["mean"] >= best


def test_processes_do_not_change_the_answer(search: Search) -> None:
    two = found(Limits(processes=2, simulations=10_000, pairs=10_000))
    for key, group in search.groups.items():
        assert [(o.candidate, o.seconds) for o in two.groups[key].simulated] == [
            (o.candidate, o.seconds) for o in group.simulated
        ]


def test_limit_leaves_candidates_undecided_and_says_so() -> None:
    few = found(Limits(processes=1, simulations=1))
    assert few.undecided > 0
    assert few.groups[8, "async"].best < inf


def test_first_bounds_hold_for_every_pair() -> None:
    """Bounds from the sides alone, before weight sync and rollout are known, for all pairs of one split."""
    search = found(Limits(processes=1, simulations=1))
    for sides in search.sides:
        if sides.block.trainer_gpus == 4:
            sides.once, sides.together = {}, {}
            for i in sides.train:
                for j in sides.rollout:
                    candidate = Candidate(sides.block, i, j, "auto")
                    outcome = worker.played(candidate)
                    assert outcome.summary is not None
                    assert sides.bound(candidate, 2) <= outcome.summary["step_time_s"]["mean"]


def test_bounds_hold_where_the_trainer_is_priced_by_measured_curves(tmp_path: Path) -> None:
    """A measured pass a thousand times as quick as the modelled one: a bound by the model would be above the step."""
    file = tmp_path / "quick.yaml"
    file.write_text("name: quick\nmeasured: {train: {fixed_s: 1.0e-5}, logprob: {fixed_s: 1.0e-5}}\n")
    base = small()
    quick = base.model_copy(update={"costs": base.costs.model_copy(update={"profile": str(file)})})
    search = searched(quick, only=ONLY, limits=Limits(processes=1, simulations=1))[0]
    played = [one for group in search.groups.values() for one in group.simulated]
    assert {one.candidate.block.schedule for one in played} == {"sync", "one-step-off", "async"}
    assert all(one.bound <= one.seconds for one in played)
