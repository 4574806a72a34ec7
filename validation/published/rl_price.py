"""Seconds of every published quantity of an RL step, from one simulation.

A timer of a co-located run is a sum of rlsim's phases:

    generate_sequences  rollout, and the reward's tail
    reshard             weight sync
    gen                 both, where the weight sync has no timer of its own; else the first
    old_log_prob, ref   log-prob and reference pass of the policy
    values, update_critic   the critic's log-prob and update spans
    update_actor        updates, and the trainer's states going out and coming in
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from rlsim.interval import SOFTWARE, Draws
from rlsim.sim.prices import Costs
from validation.published import simulation
from validation.published.rl import RlCase

Phases = Mapping[str, float]


@dataclass(frozen=True)
class Priced:
    """A quantity: seconds, their 10th and 90th percentile, and by phase."""

    seconds: float
    p10: float
    p90: float
    phases: dict[str, float]


class Padded:
    """A trainer's passes on samples padded to the limits: every length counts as the longest."""

    def __init__(self, passes: Any, length: int) -> None:
        self.passes, self.length = passes, length

    def __getattr__(self, name: str) -> Any:
        return getattr(self.passes, name)

    def update(self, lengths: Any) -> Any:
        return self.passes.update(np.full(len(lengths), self.length, dtype=np.int64))

    def logprob(self, lengths: Any, role: str = "actor") -> Any:
        return self.passes.logprob(np.full(len(lengths), self.length, dtype=np.int64), role)


def pad(length: int | None) -> simulation.Change | None:
    """A change of a run's prices: everything the trainer runs is padded to `length` tokens."""
    if length is None:
        return None

    def change(costs: Costs) -> Costs:
        critic = costs.critic and replace(costs.critic, passes=Padded(costs.critic.passes, length))
        return replace(costs, training=Padded(costs.training, length), critic=critic)

    return change


def price(
    case: RlCase, values: Mapping[str, float] | None = None, change: simulation.Change | None = None
) -> tuple[dict[str, Priced], simulation.Prediction]:
    """Every quantity that the record has and the simulation knows, and the simulation."""
    padding = pad(case.padded)

    def both(costs: Costs) -> Costs:
        costs = padding(costs) if padding else costs
        return change(costs) if change else costs

    found = simulation.predict(case.scenario, {**case.values, **(values or {})}, both)
    groups = quantities(found, case.split)
    draws = Draws(found.result.costs.spreads)
    out = {}
    for quantity in case.measured:
        if quantity == "step_time_s":
            out[quantity] = Priced(found.seconds, found.p10, found.p90, found.phases)
        elif sum(groups[quantity].values()) > 0:
            parts = groups[quantity]
            total = draws.sum(parts)
            if SOFTWARE in draws.spreads:
                total = total * draws.multiplier(SOFTWARE)
            low, high = np.quantile(total, (0.1, 0.9))
            out[quantity] = Priced(sum(parts.values()), float(low), float(high), dict(parts))
    return out, found


def quantities(found: simulation.Prediction, split: bool) -> dict[str, dict[str, float]]:
    """Quantity -> seconds by phase."""
    p = found.phases
    critic = _critic(found)
    rollout = {"rollout": p["rollout"], "reward": p["reward"]}
    sync = {"weight_sync": p["weight_sync"]}
    return {
        "generate_sequences_s": rollout,
        "reshard_s": sync,
        "update_weights_s": sync,
        "gen_s": rollout if split else {**rollout, **sync},
        "old_log_prob_s": {"logprob": p["logprob"] - critic["logprob"]},
        "ref_s": {"reference": p["reference"]},
        "values_s": {"logprob": critic["logprob"]},
        "update_critic_s": {"train": critic["train"]},
        "update_actor_s": {"train": p["train"] - critic["train"], "offload": p["offload"], "onload": p["onload"]},
    }


def _critic(found: simulation.Prediction) -> dict[str, float]:
    """Mean seconds a step of the critic's spans, by phase."""
    spans = found.result.spans
    steps = max(1, int(found.result.steps["step"].nunique()))
    mine = spans[(spans["track"] == "critic") & (spans["step"] >= 0)]
    seconds = (mine["end"] - mine["start"]).groupby(mine["phase"].astype(str)).sum() / steps
    return {phase: float(seconds.get(phase, 0.0)) for phase in ("logprob", "train")}
