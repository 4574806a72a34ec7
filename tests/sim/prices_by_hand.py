"""Costs with round numbers: every iteration of an engine takes `iteration` seconds, whatever runs; prefill is free."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from types import SimpleNamespace
from typing import Any

import numpy as np

from rlsim.sim.faults import Fault
from rlsim.sim.prices import Costs, Gpus, Lent
from rlsim.sim.settings import Settings
from rlsim.sim.surface import Surface

SLOTS = 64


def surface(iteration: float = 0.01, per_sequence: float = 0.0, slots: int = SLOTS, kv_tokens: int = 10**9) -> Surface:
    """t(b) = iteration + per_sequence * b for b > 0."""
    batch = np.arange(slots + 1)
    rows = np.where(batch > 0, iteration + per_sequence * batch, 0.0)
    return Surface(
        knots=np.array([0.0, 1024.0]),
        rank_rows=np.repeat(rows[:, None], 2, axis=1),
        joint=np.zeros(slots + 1),
        prefill_knots=np.array([0.0, 65536.0]),
        prefill_seconds=np.zeros(2),
        prefill_pair_seconds=0.0,
        prefill_base=iteration,
        provenance={"measured": 1.0, "scaled": 0.0, "roofline": 0.0},
        kv_capacity_tokens=kv_tokens,
        block_size=16,
        max_num_seqs=slots,
        max_num_batched_tokens=65536,
        notes=(),
    )


@dataclass(frozen=True)
class Pass:
    seconds: float
    flops: float = 0.0

    @property
    def sources(self) -> Mapping[str, float]:
        return {"roofline": self.seconds}


@dataclass(frozen=True)
class Training:
    """Seconds per pass: fixed, plus seconds per token."""

    update_seconds: float = 0.0
    logprob_seconds: float = 0.0
    reference_seconds: float = 0.0
    per_token: float = 0.0
    flops: float = 0.0

    def update(self, lengths: Any) -> Pass:
        return Pass(self.update_seconds + self.per_token * int(lengths.sum()), self.flops)

    def logprob(self, lengths: Any, role: str = "actor") -> Pass:
        return Pass(self.logprob_seconds if role == "actor" else self.reference_seconds)

    def scaled(self, c: float) -> Training:
        return Training(
            self.update_seconds * c,
            self.logprob_seconds * c,
            self.reference_seconds * c,
            self.per_token * c,
            self.flops,
        )


@dataclass(frozen=True)
class Reward:
    seconds_each: float = 0.0
    workers: int | None = None
    streaming: bool = True

    def seconds(self, rng: np.random.Generator, n: int) -> Any:
        return np.full(n, self.seconds_each)


@dataclass(frozen=True)
class Sync:
    seconds: float = 0.0
    transfer_seconds: float = 0.0
    strategy: str = "p2p"
    bytes_total: float = 16e9
    bytes_max_per_gpu: float = 2e9
    floor_seconds: float = 0.0
    group_seconds: float = 0.0
    grace_seconds: float = 0.0
    delta: Any = None

    @property
    def wire_seconds(self) -> float:
        return self.transfer_seconds

    @property
    def sources(self) -> Mapping[str, float]:
        return {"scaled": self.seconds}

    @property
    def alternatives(self) -> Mapping[str, float]:
        return {self.strategy: self.seconds}


@dataclass(frozen=True)
class Checkpoint:
    blocking_seconds: float = 0.0
    background_seconds: float = 0.0
    mode: str = "sync"
    bytes_total: float = 1e12

    def scaled(self, c: float) -> Checkpoint:
        return replace(self, blocking_seconds=self.blocking_seconds * c, background_seconds=self.background_seconds * c)


@dataclass(frozen=True)
class Controller:
    dispatch_seconds: float = 0.0
    step_fixed_seconds: float = 0.0
    token_seconds: float = 0.0

    def batch_seconds(self, tokens: int, samples: int) -> float:
        return self.token_seconds * tokens


@dataclass(frozen=True)
class Memory:
    problems: tuple[Any, ...] = ()
    kv_tokens_per_engine: float = 1000.0
    trainer: Any = field(default_factory=lambda: SimpleNamespace(parts={"weights": 2.0**30, "optimizer": 2.0**31}))
    rollout: Any = field(default_factory=lambda: SimpleNamespace(parts={"kv cache": 2.0**32}))
    host: Any = field(default_factory=lambda: SimpleNamespace(parts={"optimizer": 2.0**33}))


@dataclass(frozen=True)
class Hand:
    """Durations of one variant, in seconds; `engines` engines of `surface`."""

    engine: Surface = field(default_factory=surface)
    engines: int = 2
    training: Training = field(default_factory=Training)
    sync: Sync = field(default_factory=Sync)
    offload: float = 0.0
    onload: float = 0.0
    controller: Controller = field(default_factory=Controller)
    reward: Reward = field(default_factory=Reward)
    gpus: Gpus = field(default_factory=lambda: Gpus(8, 16, 24))
    lent: Lent | None = None
    copy_gpus: int = 1
    checkpoint: Checkpoint = field(default_factory=Checkpoint)
    faults: tuple[Fault, ...] = ()

    def costs(self) -> Costs:
        return Costs(
            engines=((self.engine, self.engines),),
            training=self.training,
            sync=self.sync,
            switch=SimpleNamespace(offload_seconds=self.offload, onload_seconds=self.onload),
            controller=self.controller,
            reward=self.reward,
            memory=Memory(),
            gpus=self.gpus,
            gpu_hour=2.0,
            peak_flops=1e15,
            hbm_bytes=80e9,
            lent=self.lent,
            copy_gpus=self.copy_gpus,
            checkpoint=self.checkpoint,
            faults=self.faults,
        )

    def scaled(self, c: float) -> Hand:
        """All durations times c."""
        return replace(
            self,
            engine=self.engine.scaled(c),
            training=self.training.scaled(c),
            sync=replace(self.sync, seconds=self.sync.seconds * c, transfer_seconds=self.sync.transfer_seconds * c),
            offload=self.offload * c,
            onload=self.onload * c,
            controller=replace(
                self.controller,
                dispatch_seconds=self.controller.dispatch_seconds * c,
                step_fixed_seconds=self.controller.step_fixed_seconds * c,
                token_seconds=self.controller.token_seconds * c,
            ),
            reward=replace(self.reward, seconds_each=self.reward.seconds_each * c),
            lent=self.lent
            and replace(
                self.lent,
                surface=self.lent.surface.scaled(c),
                to_rollout=self.lent.to_rollout * c,
                to_trainer=self.lent.to_trainer * c,
            ),
            checkpoint=self.checkpoint.scaled(c),
            faults=tuple(fault.scaled(c) for fault in self.faults),
        )


def lengths(sample: Callable[[np.random.Generator, int, int], Any], prompts: int, group: int, prompt: int = 16) -> Any:
    """A source of batches: prompts of fixed length, responses from `sample(rng, prompts, group)`."""

    def draw(rng: np.random.Generator, step: int) -> Any:
        return SimpleNamespace(
            prompt_tokens=np.full(prompts, prompt, np.int64), response_tokens=np.asarray(sample(rng, prompts, group))
        )

    return draw


def fixed(tokens: int, prompts: int, group: int) -> Any:
    """Every response has the same length."""
    return lengths(lambda rng, p, g: np.full((p, g), tokens, np.int64), prompts, group)


def uniform(low: int, high: int, prompts: int, group: int) -> Any:
    return lengths(lambda rng, p, g: rng.integers(low, high + 1, (p, g)), prompts, group)


def regime(
    schedule: str = "sync", colocated: bool = False, prompts: int = 4, group_size: int = 2, **more: Any
) -> Settings:
    return Settings(colocated=colocated, schedule=schedule, prompts=prompts, group_size=group_size, **more)
