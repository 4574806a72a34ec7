"""What each process does: it takes commands from the driver's pipe until that is closed.

Trainer ranks come first in the default group, then the engines, as `rlsim.reshard.distributed` has it. Messages to the
driver: ("reply", value), ("done", finished samples) of engines, ("error", traceback).
"""

from __future__ import annotations

import traceback
from collections.abc import Mapping
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor
from torch.distributed.device_mesh import DeviceMesh

from rlsim.reshard.distributed import transfer
from rlsim.reshard.plan import Plan
from rlsim.reshard.state import unshard
from validation.minigrpo import devices
from validation.minigrpo.engine import Engine
from validation.minigrpo.model import Config
from validation.minigrpo.task import Request
from validation.minigrpo.trainer import Trainer


@dataclass(frozen=True)
class Member:
    """One process: its rank among all, its device, and what it is to build."""

    rank: int
    device: Path | int | None
    store: str
    plan: Plan
    config: Config
    strategy: str
    slots: int
    max_tokens: int
    lr: float
    seed: int

    @property
    def world(self) -> int:
        return self.plan.trainer.gpus + self.plan.targets


def main(member: Member, conn: Connection) -> None:
    """Entry of the process."""
    try:
        torch.set_num_threads(1)
        dist.init_process_group("gloo", init_method=f"file://{member.store}", rank=member.rank, world_size=member.world)
        trainers = dist.new_group(list(range(member.plan.trainer.gpus)))
        rank: TrainerRank | EngineRank
        if member.rank < member.plan.trainer.gpus:
            mesh = DeviceMesh.from_group(trainers, "cpu")
            rank = TrainerRank(member, Trainer(member.config, mesh, member.seed, member.lr))
        else:
            rank = EngineRank(member, Engine(member.config, member.slots, member.max_tokens))
        if member.device is not None:
            devices.enter(member.device)
        conn.send(("reply", None))
        serve(rank, conn)
    except (EOFError, BrokenPipeError, ConnectionResetError):
        pass  # the driver has gone
    except Exception:
        conn.send(("error", traceback.format_exc()))


def serve(rank: TrainerRank | EngineRank, conn: Connection) -> None:
    """Commands are methods of the rank; between them an engine generates."""
    while True:
        engine = rank.engine if isinstance(rank, EngineRank) else None
        busy = engine is not None and engine.busy
        while conn.poll(0 if busy else None):
            command, value = conn.recv()
            if command == "stop":
                return
            found = getattr(rank, command)(value)
            if command != "submit":
                conn.send(("reply", found))
            busy = engine is not None and engine.busy
        if engine is not None and (done := engine.step()):
            conn.send(("done", done))


class TrainerRank:
    """A trainer's commands."""

    def __init__(self, member: Member, trainer: Trainer) -> None:
        self.member, self.trainer = member, trainer

    def null(self, value: object) -> object:
        return value

    def logprob(self, micro_batches: Any) -> Any:
        return self.trainer.logprob(micro_batches)

    def update(self, job: Any) -> float:
        return self.trainer.update(job)

    def sync(self, version: int) -> None:
        transfer(self.member.plan, self.trainer.shards(), self.member.strategy)

    def offload(self, _: None) -> None:
        self.trainer.offload()

    def onload(self, _: None) -> None:
        self.trainer.onload()

    def weights(self, _: None) -> Mapping[str, Tensor]:
        return self.trainer.shards()


class EngineRank:
    """An engine's commands."""

    def __init__(self, member: Member, engine: Engine) -> None:
        self.member, self.engine = member, engine

    def null(self, value: object) -> object:
        return value

    def submit(self, requests: list[Request]) -> None:
        self.engine.submit(requests)

    def sync(self, version: int) -> None:
        """New weights; what runs keeps its tokens and loses its cache."""
        plan = self.member.plan
        found = transfer(plan, {}, self.member.strategy)
        self.engine.load(unshard([found], plan.model, plan.engine), version)
        self.engine.interrupt()

    def sleep(self, _: None) -> None:
        self.engine.sleep()

    def wake(self, _: None) -> None:
        self.engine.wake()

    def weights(self, _: None) -> Mapping[str, Tensor]:
        return {name: p.detach().bfloat16() for name, p in self.engine.model.named_parameters()}
