"""Scoring: how long one sample takes, and how many are scored at the same time."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from rlsim.workload import SecondsModel, constant_seconds, seconds_model

if TYPE_CHECKING:
    from rlsim.system import System


@dataclass(frozen=True)
class RewardCosts:
    """What the reward of one sample costs.

    kind     rule (CPU, milliseconds), sandbox (pool of workers), model (GPU) or environment
    workers  samples scored at the same time; None: all
    attempt  seconds of one try
    timeout  seconds after which a try is given up; inf: never
    retries  further tries after a time-out
    streaming  a sample is scored as soon as it ends; else the batch (async: the group) when its last sample has
    """

    kind: str
    workers: int | None
    attempt: SecondsModel
    timeout: float = np.inf
    retries: int = 0
    factor: float = 1.0
    streaming: bool = True

    def seconds(self, rng: np.random.Generator, n: int) -> NDArray[np.float64]:
        """float64[n]: seconds that each of n samples keeps a worker.

        A try takes min(drawn, timeout); after a time-out the sample is tried again with a new draw, at most
        `retries` times.
        """
        total = np.zeros(n)
        pending = np.arange(n)
        for _ in range(self.retries + 1):
            drawn = self.attempt.sample(rng, len(pending))
            total[pending] += np.minimum(drawn, self.timeout)
            pending = pending[drawn > self.timeout]
            if not len(pending):
                break
        scaled: NDArray[np.float64] = total * self.factor
        return scaled

    def scaled(self, factor: float) -> RewardCosts:
        """The same rewards with all their durations multiplied."""
        return replace(self, factor=self.factor * factor)


def reward_costs(system: System) -> RewardCosts:
    """The rewards of a system: the scenario's seconds, else the profile's for rules. An environment's comes with its
    last answer, at no time of its own; a trace's own seconds come with its batches.
    """
    reward = system.scenario.workload.reward
    model = system.scenario.roles.reward_model
    if reward.kind == "model" and model is not None:
        # its replicas take the seconds that come with the batch; on the trainer's GPUs it has a pass of its own
        replicas = model.gpus // (model.tp * model.pp) if model.gpus else None
        return RewardCosts(reward.kind, replicas, constant_seconds(0.0), streaming=reward.streaming)
    if reward.kind == "environment":
        return RewardCosts(reward.kind, None, constant_seconds(0.0), streaming=reward.streaming)
    if reward.seconds is not None:
        attempt = seconds_model(reward.seconds)
    else:
        attempt = constant_seconds(system.profile.value("reward_rule_s"))
    timeout = reward.timeout if reward.timeout is not None else np.inf
    return RewardCosts(reward.kind, reward.workers, attempt, timeout, reward.retries, streaming=reward.streaming)
