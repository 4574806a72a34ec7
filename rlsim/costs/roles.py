"""Seconds of the models besides the policy: critic, reference and reward model.

critic      values: one forward over the batch; an update on every mini-batch, as often as the policy. On the trainer's
            GPUs it goes before the policy, and (co-located) its states come in and leave again around its passes.
replicas    a reference or reward model with GPUs of its own: tp·pp GPUs hold the whole model and take one sample after
            another as they finish. A sample costs its share of a micro-batch filled with samples of its length.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from rlsim.catalog import GpuSpec
from rlsim.costs.offload import host_link, trainer_rows
from rlsim.costs.switch_ledger import SwitchRow
from rlsim.costs.training import TrainingCosts
from rlsim.costs.training_case import TrainingKernels
from rlsim.grids import TrainLayout
from rlsim.memory_trainer import micro_batch_tokens
from rlsim.roles import has_role, own_gpus, role_system, shares_trainer
from rlsim.system import System

Floats: TypeAlias = npt.NDArray[np.float64]
KernelsOf: TypeAlias = Callable[[GpuSpec], TrainingKernels]
PER_OCTAVE = 2


@dataclass(frozen=True)
class CriticCosts:
    """The critic's passes; `logprob` of `passes` is its values forward.

    gpus   of its own; 0: the trainer's, one after the other
    rows   its states on the host link, co-located on the trainer's GPUs
    """

    passes: TrainingCosts
    gpus: int
    onload_seconds: float
    offload_seconds: float
    rows: tuple[SwitchRow, ...] = ()


@dataclass(frozen=True)
class ReplicaCosts:
    """A forward-only model on GPUs of its own.

    gpus      all of them
    workers   replicas, each with one sample at a time
    knots     tokens of a sample, ascending; `at_knots`: seconds of such a sample on one replica
    sources   shares of those seconds by provenance
    """

    gpus: int
    workers: int
    knots: Floats
    at_knots: Floats
    sources: Mapping[str, float]
    factor: float = 1.0

    def seconds(self, tokens: npt.NDArray[np.int64]) -> Floats:
        """float64[...]: seconds that samples of int64[...] tokens (prompt and response) keep a replica."""
        return np.interp(tokens, self.knots, self.at_knots) * self.factor

    def scaled(self, factor: float) -> ReplicaCosts:
        """The same replicas with all their durations multiplied."""
        return replace(self, factor=self.factor * factor)


def critic_costs(system: System, kernels: KernelsOf) -> CriticCosts | None:
    """The critic of PPO; None for an algorithm without one."""
    if not has_role(system.scenario, "critic"):
        return None
    critic = role_system(system, "critic")
    passes = TrainingCosts(critic, kernels(critic.trainer_pool.gpu))
    gpus = own_gpus(system.scenario, "critic")
    if gpus or not system.colocated:
        return CriticCosts(passes, gpus, 0.0, 0.0)
    rows = trainer_rows(critic)
    fixed = host_link(system).fixed if rows else 0.0
    return CriticCosts(
        passes,
        gpus,
        onload_seconds=sum(row.onload_seconds for row in rows) + fixed,
        offload_seconds=sum(row.offload_seconds for row in rows) + fixed,
        rows=rows,
    )


def replica_costs(system: System, name: str, kernels: KernelsOf) -> ReplicaCosts | None:
    """The reference or reward model on GPUs of its own; None where it has none."""
    gpus = own_gpus(system.scenario, name)
    if not gpus:
        return None
    role = role_system(system, name)
    layout = one_replica(role.trainer)
    passes = TrainingCosts(replace(role, trainer=layout), kernels(role.trainer_pool.gpu))
    budget = micro_batch_tokens(role.scenario, logprob=True)
    knots = 2.0 ** (np.arange(0, PER_OCTAVE * int(np.ceil(np.log2(budget))) + 1) / PER_OCTAVE)
    at_knots = np.array([_share(passes, int(tokens), budget) for tokens in knots])
    sources = passes.logprob(np.array([int(budget)])).sources
    whole = sum(sources.values())
    return ReplicaCosts(
        gpus=gpus,
        workers=gpus // layout.gpus,
        knots=knots,
        at_knots=at_knots,
        sources={source: seconds / whole for source, seconds in sources.items()},
    )


def one_replica(layout: TrainLayout) -> TrainLayout:
    """The layout of one copy of a forward-only model: tp·pp GPUs."""
    return replace(layout, gpus=layout.tp * layout.pp, dp=1, edp=1, shard=1)


def scoring_passes(system: System, kernels: KernelsOf) -> TrainingCosts | None:
    """The reward model on the trainer's GPUs: one forward over the batch, when the rollout is over."""
    if not shares_trainer(system.scenario, "reward_model"):
        return None
    role = role_system(system, "reward_model")
    return TrainingCosts(role, kernels(role.trainer_pool.gpu))


def _share(passes: TrainingCosts, tokens: int, budget: float) -> float:
    """Seconds of one sample: T(n)/n, n samples filling the micro-batch; without the fixed cost of a batch's pass."""
    count = max(1, int(budget // tokens))
    fixed = passes.case.profile.value("logprob_fixed_s")
    return (passes.logprob(np.full(count, tokens)).seconds - fixed) / count
