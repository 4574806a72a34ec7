"""What the simulation asks the cost models: seconds and bytes, nothing about hardware or models.

The cost rooms' own classes satisfy these protocols; tests build prices by hand with round numbers.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from rlsim.sim.faults import Fault
from rlsim.sim.journeys import KvTransfer
from rlsim.sim.surface import Surface

Tokens = npt.NDArray[np.int64]
Spread = tuple[float, float]


class StepTime(Protocol):
    """Price of one trainer pass (an optimizer update or a log-prob forward)."""

    @property
    def seconds(self) -> float: ...
    @property
    def sources(self) -> Mapping[str, float]:
        """Seconds by provenance: measured, scaled, roofline."""
        ...

    @property
    def flops(self) -> float:
        """Model FLOPs (no recompute), for MFU."""
        ...


class Training(Protocol):
    """Seconds of the trainer's passes; lengths are prompt + response tokens, one per sample."""

    def update(self, lengths: Tokens) -> StepTime:
        """One optimizer update on one mini-batch."""
        ...

    def logprob(self, lengths: Tokens, role: str = "actor") -> StepTime:
        """One forward pass over the whole batch; role is actor or reference."""
        ...


class Delta(Protocol):
    """A delta sync against a full one; `break_even` bytes/s of the links below which it is faster, None: nowhere."""

    @property
    def changed(self) -> float: ...
    @property
    def bytes(self) -> float: ...
    @property
    def seconds(self) -> float: ...
    @property
    def full(self) -> str: ...
    @property
    def full_seconds(self) -> float: ...
    @property
    def break_even(self) -> float | None: ...


class Sync(Protocol):
    """One weight sync: trainer weights into every engine."""

    @property
    def strategy(self) -> str: ...
    @property
    def bytes_total(self) -> float: ...
    @property
    def bytes_max_per_gpu(self) -> float: ...
    @property
    def seconds(self) -> float: ...
    @property
    def floor_seconds(self) -> float: ...
    @property
    def transfer_seconds(self) -> float:
        """The part that `weight_sync.overlap` can hide from the engines."""
        ...

    @property
    def wire_seconds(self) -> float:
        """The part on the network between nodes: a degraded NIC stretches it."""
        ...

    @property
    def sources(self) -> Mapping[str, float]: ...
    @property
    def alternatives(self) -> Mapping[str, float]:
        """Seconds by every strategy that the placement allows."""
        ...

    @property
    def group_seconds(self) -> float:
        """Of `seconds`, what building the process group anew takes."""
        ...

    @property
    def grace_seconds(self) -> float:
        """Of `seconds`, what engines stand still before weights move."""
        ...

    @property
    def delta(self) -> Delta | None: ...


class Switch(Protocol):
    """Co-located: trainer state to the host before a rollout, and back."""

    @property
    def offload_seconds(self) -> float: ...
    @property
    def onload_seconds(self) -> float: ...


class Controller(Protocol):
    """The single driver: seconds per worker-group call, per batch that passes through it, and per step."""

    @property
    def dispatch_seconds(self) -> float: ...
    @property
    def step_fixed_seconds(self) -> float: ...
    def batch_seconds(self, tokens: int, samples: int) -> float: ...


class Reward(Protocol):
    """Scoring: seconds of n samples, how many are scored at a time (None: all), and whether each as it ends."""

    @property
    def workers(self) -> int | None: ...
    @property
    def streaming(self) -> bool: ...
    def seconds(self, rng: np.random.Generator, n: int) -> npt.NDArray[np.float64]: ...


class Checkpoint(Protocol):
    """One save of the training state."""

    @property
    def mode(self) -> str:
        """sync or async."""
        ...

    @property
    def bytes_total(self) -> float: ...
    @property
    def blocking_seconds(self) -> float:
        """The trainer stands still."""
        ...

    @property
    def background_seconds(self) -> float:
        """From then until it can be restored."""
        ...


class Breakdown(Protocol):
    """Bytes by role at the peak moment."""

    @property
    def parts(self) -> Mapping[str, float]: ...


class Critic(Protocol):
    """PPO's critic. `logprob` of its passes is the values forward; gpus: of its own, 0 where it has the trainer's.

    onload, offload: its states in before its passes and out after them (co-located on the trainer's GPUs).
    """

    @property
    def passes(self) -> Training: ...
    @property
    def gpus(self) -> int: ...
    @property
    def onload_seconds(self) -> float: ...
    @property
    def offload_seconds(self) -> float: ...


class Replicas(Protocol):
    """A forward-only model on GPUs of its own: `workers` replicas, each with one sample at a time."""

    @property
    def gpus(self) -> int: ...
    @property
    def workers(self) -> int: ...
    @property
    def sources(self) -> Mapping[str, float]:
        """Shares by provenance."""
        ...

    def seconds(self, tokens: Tokens) -> npt.NDArray[np.float64]: ...


class OffloadReport(Protocol):
    """What leaves the GPU between the phases of a co-located step, and whether it has to."""

    def as_dict(self) -> dict[str, Any]: ...


class Memory(Protocol):
    @property
    def trainer(self) -> Breakdown: ...
    @property
    def rollout(self) -> Breakdown: ...
    @property
    def host(self) -> Breakdown: ...
    @property
    def problems(self) -> Sequence[Any]: ...
    @property
    def kv_tokens_per_engine(self) -> float: ...


@dataclass(frozen=True)
class Gpus:
    """GPUs by role, and how many are paid for (co-located: all three are equal)."""

    trainer: int
    rollout: int
    total: int


@dataclass(frozen=True)
class EngineKind:
    """One rollout entry for whoever reads the result: where its engines are, and what they hold.

    pool, gpu   names; `gpu` of the catalog
    """

    pool: str
    gpu: str
    engines: int
    gpus_per_engine: int
    kv_tokens_per_engine: int


@dataclass(frozen=True)
class Lent:
    """Engines on the trainer's GPUs, and the seconds of the switch there and back."""

    surface: Surface
    engines: int
    gpus_per_engine: int
    to_rollout: float
    to_trainer: float


@dataclass(frozen=True)
class Costs:
    """Everything one variant costs.

    engines      (surface, number of such engines)
    gpu_hour     dollars per GPU-hour, on average over all that are paid for
    peak_flops   dense peak of one trainer GPU in the training precision, FLOP/s
    hbm_bytes    memory of one GPU; of several kinds, the largest
    critic       PPO's critic
    reference    the reference model where it has GPUs of its own
    reward_model the reward model where it has GPUs of its own
    occupancy    memory of every role's GPU in each state of the step
    scoring      the reward model on the trainer's GPUs: one forward over the batch before the log-probs
    engine_roles mixed, prefill or decode, by kind of engine; empty: all mixed
    kv_transfer  how KV gets from prefill to decode engines
    copy_gpus    trainer GPUs that hold one copy of the model for a forward pass
    kinds        what `engines` run on, one for each
    hourly       dollars an hour by pool
    checkpoint   one save of the training state
    faults       what goes wrong
    lent         engines that the trainer's GPUs can become
    first_sync   the first weight sync of a run where it differs from the others
    measured     roles priced by a profile's measured curves
    watts        power limits of all GPUs by role (trainer, rollout, roles), W; co-located GPUs are the trainer's
    spreads      phase -> draws of its true duration over the predicted one, or their 10th and 90th percentile
    """

    engines: tuple[tuple[Surface, int], ...]
    training: Training
    sync: Sync
    switch: Switch
    controller: Controller
    reward: Reward
    memory: Memory
    gpus: Gpus
    gpu_hour: float
    peak_flops: float
    hbm_bytes: float
    spreads: Mapping[str, Spread | npt.NDArray[np.float64]] = field(default_factory=dict)
    assumptions: tuple[str, ...] = ()
    critic: Critic | None = None
    reference: Replicas | None = None
    reward_model: Replicas | None = None
    scoring: Training | None = None
    copy_gpus: int = 1
    engine_roles: tuple[str, ...] = ()
    kv_transfer: KvTransfer | None = None
    kinds: tuple[EngineKind, ...] = ()
    hourly: Mapping[str, float] = field(default_factory=dict)
    occupancy: Sequence[Any] = ()
    offload: OffloadReport | None = None
    first_sync: Sync | None = None

    def engine_weights(self) -> tuple[float, ...]:
        """GPUs of an engine of each kind over those of the mean engine: exactly 1 where all are of one size."""
        if len({kind.gpus_per_engine for kind in self.kinds}) <= 1:
            return (1.0,) * len(self.engines)
        mean = self.gpus.rollout / sum(kind.engines for kind in self.kinds)
        return tuple(kind.gpus_per_engine / mean for kind in self.kinds)

    checkpoint: Checkpoint | None = None
    faults: tuple[Fault, ...] = ()
    lent: Lent | None = None
    measured: frozenset[str] = frozenset()
    watts: Mapping[str, float] = field(default_factory=dict)
