"""Costs taken away, one function each: a system before it is priced, or the inputs of a run after it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from math import inf
from typing import Any

import numpy as np

from rlsim.inputs import Inputs
from rlsim.sim.prices import StepTime, Sync, Tokens, Training
from rlsim.sim.surface import Surface
from rlsim.system import Pool, System
from rlsim.workload import Batch

PLENTY = 1e6
"""Times that a link gets faster when its time is taken away."""
ENDLESS_KV = 2**40
"""Tokens of KV cache per rank that no rollout fills."""
HOST = (
    "engine_step_base_s",
    "engine_step_per_seq_s",
    "engine_eager_layer_s",
    "lora_eager_layer_s",
    "layer_floor_s",
    "moe_layer_floor_s",
    "moe_layer_sync_s",
    "microbatch_host_s",
    "update_fixed_s",
    "logprob_fixed_s",
)
"""Seconds of a profile in which GPUs wait for the host that feeds them."""
COMMUNICATION = ("tp_comm", "cp_comm", "ep_comm", "dp_comm", "pp_comm")


# --- before pricing -------------------------------------------------------------------------------------------------
def profile_values(system: System, values: Mapping[str, float]) -> System:
    """The same system with some figures of its calibration profile changed."""
    return replace(system, profile=system.profile.with_values(**values))


def trainer_options(system: System, **options: Any) -> System:
    """Other options of the trainer; the layout and the memory stay."""
    trainer = system.scenario.trainer.model_copy(update=options)
    return replace(system, scenario=system.scenario.model_copy(update={"trainer": trainer}))


def fast_nics(system: System) -> System:
    """Network cards, and links between pools, PLENTY times as fast; links without latency."""
    cluster = system.scenario.cluster
    rates: dict[str, Any] = {"nic": PLENTY * system.trainer_pool.nic}
    if cluster.pools:
        pools = {name: pool.model_copy(update=rates) for name, pool in cluster.pools.items()}
        links = tuple(
            link.model_copy(update={"bandwidth": link.bandwidth * PLENTY, "latency": 0.0}) for link in cluster.links
        )
        rates = {"pools": pools, "links": links}
    scenario = system.scenario.model_copy(update={"cluster": cluster.model_copy(update=rates)})
    return replace(
        system,
        scenario=scenario,
        trainer_pool=_fast(system.trainer_pool),
        rollout=tuple(replace(part, pool=_fast(part.pool)) for part in system.rollout),
    )


def _fast(pool: Pool) -> Pool:
    return replace(pool, nic=pool.nic * PLENTY, gpu=replace(pool.gpu, nic_bandwidth=pool.gpu.nic_bandwidth * PLENTY))


# --- samples --------------------------------------------------------------------------------------------------------
def even_lengths(inputs: Inputs) -> Inputs:
    """Every response of a batch as long as the batch's mean: the same tokens, no tail."""

    def draw(rng: np.random.Generator, step: int) -> Batch:
        return levelled(inputs.draw(rng, step))

    return replace(inputs, draw=draw)


def levelled(batch: Batch) -> Batch:
    """The batch with its tokens spread evenly over its samples (and their turns, where there are several)."""
    plan = batch.plan
    if plan is None:
        return replace(batch, response_tokens=_even(batch.response_tokens))
    n = len(plan.lost)
    turns = max(1, round(len(plan.generated) / n))
    last = np.arange(n * turns) % turns == turns - 1
    waits = np.where(last, 0.0, plan.waits.sum() / max(1, n * (turns - 1)))
    observed = np.zeros(n * turns, np.int64)
    if turns > 1:
        observed[~last] = _even(np.zeros(n * (turns - 1), np.int64), int(plan.observed.sum()))
    even = replace(
        plan,
        first=np.arange(n + 1) * turns,
        generated=np.maximum(1, _even(np.zeros(n * turns, np.int64), int(plan.generated.sum()))),
        observed=observed,
        waits=waits,
    )
    return replace(batch, plan=even, response_tokens=even.response_tokens.reshape(batch.response_tokens.shape))


def _even(tokens: Tokens, total: int | None = None) -> Tokens:
    """`total` tokens (default: those there are) over as many samples, to within one token."""
    total = int(tokens.sum()) if total is None else total
    whole, rest = divmod(total, tokens.size)
    return (whole + (np.arange(tokens.size) < rest)).reshape(tokens.shape).astype(np.int64)


def no_waits(inputs: Inputs) -> Inputs:
    """Environments answer at once."""

    def draw(rng: np.random.Generator, step: int) -> Batch:
        batch = inputs.draw(rng, step)
        if batch.plan is None:
            return batch
        return replace(batch, plan=replace(batch.plan, waits=np.zeros_like(batch.plan.waits)))

    return replace(inputs, draw=draw)


def no_reward(inputs: Inputs) -> Inputs:
    """Scores are there with the last token."""

    def draw(rng: np.random.Generator, step: int) -> Batch:
        batch = inputs.draw(rng, step)
        if batch.reward_seconds is None:
            return batch
        return replace(batch, reward_seconds=np.zeros_like(batch.reward_seconds))

    reward: Any = inputs.costs.reward
    return replace(inputs, draw=draw, costs=replace(inputs.costs, reward=reward.scaled(0.0), scoring=None))


# --- costs ----------------------------------------------------------------------------------------------------------
@dataclass(frozen=True)
class Without:
    """A trainer's passes less some of their parts."""

    passes: Training
    parts: frozenset[str]

    def update(self, lengths: Tokens) -> StepTime:
        return self._less(self.passes.update(lengths))

    def logprob(self, lengths: Tokens, role: str = "actor") -> StepTime:
        return self._less(self.passes.logprob(lengths, role))

    def _less(self, step: Any) -> StepTime:
        gone = sum(seconds for name, seconds in step.parts.items() if name in self.parts)
        left = step.seconds - gone
        share = left / step.seconds if step.seconds else 1.0
        less: StepTime = replace(
            step,
            seconds=left,
            parts={name: seconds for name, seconds in step.parts.items() if name not in self.parts},
            sources={name: seconds * share for name, seconds in step.sources.items()},
        )
        return less


def without_parts(inputs: Inputs, *parts: str) -> Inputs:
    """All passes of the trainer's GPUs less some of their parts."""
    costs, gone = inputs.costs, frozenset(parts)
    critic: Any = costs.critic
    return replace(
        inputs,
        costs=replace(
            costs,
            training=Without(costs.training, gone),
            critic=None if critic is None else replace(critic, passes=Without(critic.passes, gone)),
            scoring=None if costs.scoring is None else Without(costs.scoring, gone),
        ),
    )


def surfaces(inputs: Inputs, **fields: Any) -> Inputs:
    """Other figures of every engine, lent ones included."""

    def changed(surface: Surface) -> Surface:
        values = {name: value(surface) if callable(value) else value for name, value in fields.items()}
        return replace(surface, **values)

    costs = inputs.costs
    lent = None if costs.lent is None else replace(costs.lent, surface=changed(costs.lent.surface))
    engines = tuple((changed(surface), count) for surface, count in costs.engines)
    return replace(inputs, costs=replace(costs, engines=engines, lent=lent))


def free_prefill(inputs: Inputs) -> Inputs:
    """Prompts, and contexts that have lost their KV, are processed in no time."""
    return surfaces(
        inputs,
        prefill_seconds=lambda surface: np.zeros_like(surface.prefill_seconds),
        joint_seconds=lambda surface: np.zeros_like(surface.joint_seconds),
        prefill_pair_seconds=0.0,
        prefill_base=0.0,
    )


def free_sync(inputs: Inputs) -> Inputs:
    """New weights are on every engine at once."""
    first = inputs.costs.first_sync
    costs = replace(inputs.costs, sync=_no_time(inputs.costs.sync), first_sync=first and _no_time(first))
    return replace(inputs, costs=costs)


def _no_time(sync: Any) -> Sync:
    none: Sync = replace(
        sync, seconds=0.0, transfer_seconds=0.0, parts={}, sources=dict.fromkeys(sync.sources, 0.0), delta=None
    )
    return none


def free_switch(inputs: Inputs) -> Inputs:
    """States and engines come and go in no time."""
    costs = inputs.costs
    switch: Any = costs.switch
    critic: Any = costs.critic
    return replace(
        inputs,
        costs=replace(
            costs,
            switch=switch.scaled(0.0),
            critic=None if critic is None else replace(critic, onload_seconds=0.0, offload_seconds=0.0),
            lent=None if costs.lent is None else replace(costs.lent, to_rollout=0.0, to_trainer=0.0),
        ),
    )


def free_controller(inputs: Inputs) -> Inputs:
    """The driver decides, dispatches and passes batches on in no time."""
    driver: Any = inputs.costs.controller
    free = replace(driver, dispatch_seconds=0.0, step_fixed_seconds=0.0, bytes_rate=inf, sample_seconds=0.0)
    return replace(inputs, costs=replace(inputs.costs, controller=free))
