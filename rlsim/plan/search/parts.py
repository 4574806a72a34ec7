"""Prices of the parts of candidates, shared between all that have the part: one store in each process."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np

from rlsim.costs.controller import controller_costs
from rlsim.costs.kernels import kernels_for
from rlsim.costs.measured_training import Passes, measured_training
from rlsim.costs.offload import switch_cost
from rlsim.costs.reward import reward_costs
from rlsim.costs.rollout import engine_surface
from rlsim.costs.training import TrainingCosts
from rlsim.costs.transfer import weight_sync_cost
from rlsim.errors import UserError
from rlsim.memory import measure
from rlsim.plan.search import bounds
from rlsim.plan.search.bounds import Drawn
from rlsim.plan.search.space import Candidate, scenario_of
from rlsim.sim.fleet import Fleet
from rlsim.sim.request import Request
from rlsim.sim.run import uncollected
from rlsim.sim.settings import Settings, settings
from rlsim.sim.surface import Surface
from rlsim.sim.trainer import CALLS
from rlsim.system import System, resolve
from rlsim.workload import WorkloadLengths, sample_batch, workload_lengths

TRAINER_ROLES = ("trainer", "host")


@dataclass(frozen=True)
class Side:
    """A trainer or an engine: whether it fits, and seconds of its part by batch.

    floor     no more than in the simulation
    estimate  the same where that is exact; in async, about what it will be: only the order of the search goes by it
    """

    fits: bool
    floor: tuple[float, ...] = ()
    estimate: tuple[float, ...] = ()


@dataclass
class Store:
    """The file's plain data, how it is measured, and what has been priced so far."""

    base: dict[str, Any]
    cluster_gpus: int
    steps: int
    seed: int
    rollouts: dict[Any, tuple[float, ...]] = field(default_factory=dict)
    surfaces: dict[Any, Surface] = field(default_factory=dict)
    samples: dict[tuple[int, int], Drawn] = field(default_factory=dict)

    def system(self, candidate: Candidate) -> System:
        return resolve(scenario_of(self.base, candidate, self.cluster_gpus))

    @cached_property
    def lengths(self) -> WorkloadLengths:
        from rlsim.scenario.load import scenario_from_dict

        return workload_lengths(scenario_from_dict(self.base).workload)

    def drawn(self, regime: Settings, count: int) -> list[Drawn]:
        """The first batches of a run: those that every candidate of a regime sees."""
        return [self._batch(number, number - regime.warmup) for number in range(count)]

    def _batch(self, number: int, step: int) -> Drawn:
        key = (number, step if self.lengths.drift is not None else 0)
        if key not in self.samples:
            self.samples[key] = self._sampled(number, step)
        return self.samples[key]

    def _sampled(self, number: int, step: int) -> Drawn:
        batch = sample_batch(self.lengths, np.random.default_rng([self.seed, number, 0]), step)
        return Drawn(batch.prompt_tokens, batch.response_tokens)

    # --- one side -----------------------------------------------------------------------------------------------
    def trainer(self, candidates: tuple[Candidate, ...]) -> tuple[Side, ...]:
        """Controller and passes on each batch, whatever engines the trainer works with; one trainer under several
        schedules.
        """
        passes: dict[int, float] = {}
        training: Passes | None = None
        found = []
        for candidate in candidates:
            system, regime = self._resolved(candidate)
            if system is None or any(p.role in TRAINER_ROLES for p in measure(system).problems):
                found.append(Side(False))
                continue
            count = self.batches(regime)
            if not plain(system, regime):
                found.append(Side(True, (0.0,) * count, (0.0,) * count))
                continue
            if training is None:
                gpu = kernels_for(system.trainer_pool.gpu, roofline_only=_roofline(system))
                training = measured_training(TrainingCosts(system, gpu))
            exact = self._trained(system, regime, training, passes)
            floor = (self._async_floor(training, regime),) * count if regime.schedule == "async" else exact
            found.append(Side(True, floor, exact))
        return tuple(found)

    def _trained(
        self, system: System, regime: Settings, training: Passes, passes: dict[int, float]
    ) -> tuple[float, ...]:
        """Controller and passes on each batch; `passes` keeps what is the same under every schedule."""
        controller, calls = controller_costs(system), CALLS + regime.recompute
        found = []
        for number, batch in enumerate(self.drawn(regime, self.batches(regime))):
            lengths = batch.lengths
            if number not in passes or self.lengths.drift is not None:
                mini, epochs = regime.mini_batches, regime.epochs
                passes[number] = bounds.trainer_seconds(training, batch, mini, epochs, regime.recompute)
            passed = controller.batch_seconds(float(lengths.sum()), lengths.size)
            driver = controller.step_fixed_seconds + calls * controller.dispatch_seconds + passed
            found.append(driver + passes[number])
        return tuple(found)

    def _async_floor(self, training: Passes, regime: Settings) -> float:
        """Mean seconds of the measured steps on the shortest groups that may have been submitted by then."""
        if regime.policy != "areal" or regime.sync_every != 1 or not isinstance(training, TrainingCosts):
            return 0.0
        ahead = int(np.ceil(regime.max_staleness))
        batches = self.drawn(regime, regime.warmup + self.steps + ahead)
        tokens = bounds.least_tokens(batches, self.steps * regime.prompts) / self.steps
        return bounds.trainer_floor(training, tokens, (regime.epochs, regime.recompute))

    def engine(self, candidate: Candidate) -> Side:
        """The rollout of each batch, whatever trainer the engine works with."""
        system, regime = self._resolved(candidate)
        if system is None:
            return Side(False)
        memory, count = measure(system), self.batches(regime)
        if any(p.role == "rollout" for p in memory.problems) and not system.colocated:
            return Side(False)
        if not plain(system, regime):
            return Side(True, (0.0,) * count, (0.0,) * count)
        surface = self.surface(system, memory.engines[0].kv_tokens_per_rank)
        engines, batches = system.rollout[0].layout.engines, self.drawn(regime, count)
        if regime.schedule == "async":
            return Side(
                True, (0.0,) * count, tuple(_expected(surface, engines, b, regime.max_staleness) for b in batches)
            )
        floor = tuple(bounds.rollout_floor(surface, engines, b) for b in batches)
        return Side(True, floor, floor)

    def _resolved(self, candidate: Candidate) -> tuple[System | None, Settings]:
        """None where a rule of division that only both sides know is broken."""
        try:
            system = self.system(candidate)
        except UserError:
            return None, _NOTHING
        return system, settings(system.scenario)

    def batches(self, regime: Settings) -> int:
        """Batches that the bound looks at."""
        return self.steps + (regime.schedule == "one-step-off")

    # --- both sides ---------------------------------------------------------------------------------------------
    def surface(self, system: System, kv_tokens: int) -> Surface:
        """The engine's iteration times; the table behind it is shared by all of one geometry."""
        key = (system.rollout[0].entry, kv_tokens)
        if key not in self.surfaces:
            self.surfaces[key] = engine_surface(system, system.rollout[0], kv_tokens)
        return self.surfaces[key]

    def once(self, system: System, regime: Settings) -> float:
        """Weight sync and switch: paid once a step."""
        if regime.schedule == "async" and (regime.policy == "verl" or regime.sync_every != 1):
            return 0.0
        switch = switch_cost(system)
        moved = switch.offload_seconds + switch.onload_seconds if system.colocated else 0.0
        sync = weight_sync_cost(system)
        return moved + (min(sync.seconds, sync.seconds - sync.transfer_seconds) if regime.overlap else sync.seconds)

    def rollout(self, system: System, kv_tokens: int) -> tuple[float, ...]:
        """Seconds of the rollout of each batch, played by the engines of the simulation on the samples that it draws.

        One batch begins when the one before has ended, so that routing and caches go on as in a run.
        """
        regime = settings(system.scenario)
        count, part = self.batches(regime), system.rollout[0]
        key = (part.entry, kv_tokens, regime.warmup, count)
        if key not in self.rollouts:
            surface = self.surface(system, kv_tokens)
            self.rollouts[key] = tuple(played(surface, part.layout.engines, regime, self.drawn(regime, count)))
        return self.rollouts[key]


def _expected(surface: Surface, engines: int, batch: Drawn, staleness: float) -> float:
    """About the seconds that asynchronous engines take for a batch: only the order of the search goes by it.

    All that may be in flight is spread over the ranks, as far as slots and KV go, at the mean context. The batch takes
    its tokens at that rate, but its longest response must be through within the versions that it may be late.
    """
    context = float(batch.prompt.mean() + batch.response.mean() / 2)
    flight = (1 + staleness) * batch.response.size / (engines * surface.ranks)
    held = min(flight, surface.max_num_seqs, surface.kv_capacity_tokens / context)
    b = max(1, int(held))
    iteration = float(np.interp(context, surface.knots, surface.rank_rows[b]) + surface.joint[b * surface.ranks])
    tokens = float(batch.response.sum()) * iteration / (b * surface.ranks * engines)
    return max(tokens, float(batch.response.max()) * iteration / (1 + staleness))


_NOTHING = Settings(colocated=False, schedule="sync", prompts=1, group_size=1)


def _roofline(system: System) -> bool:
    return system.scenario.costs.kernels == "roofline"


def plain(system: System, regime: Settings) -> bool:
    """Whether every regime trains on whole batches as they are drawn, and nothing disturbs the engines."""
    work = system.scenario.workload
    return not (
        regime.remedies.any
        or work.turns
        or work.dynamic_sampling
        or system.scenario.faults
        or system.scenario.rollout[0].speculative
    )


def reward_seconds(system: System, regime: Settings) -> float:
    """Seconds that rewards take at most after the last token; unbounded where workers may be short."""
    reward = reward_costs(system)
    rule = system.scenario.workload.reward
    if reward.workers is not None or rule.kind != "rule" or rule.seconds is not None or regime.evaluation is not None:
        return float("inf")
    return system.profile.value("reward_rule_s")


def played(surface: Surface, engines: int, regime: Settings, batches: list[Drawn]) -> list[float]:
    """Seconds of one rollout after another."""
    fleet, now, number, group, found = Fleet([(surface, engines)], regime.rollout.routing, weighted=True), 0.0, 0, 0, []
    with uncollected():
        for version, batch in enumerate(batches):
            requests = []
            for prompt, answers in zip(batch.prompt.tolist(), batch.response.tolist(), strict=True):
                for answer in answers:
                    requests.append(Request(number, group, prompt, answer, 0, now, version))
                    number += 1
                group += 1
            if version and regime.rollout.flush_cache:
                fleet.flush_cache(now)
            fleet.submit(requests, now)
            end = fleet.drain(now)[-1].time
            found.append(end - now)
            now = end
    return found
