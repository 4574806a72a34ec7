"""The reshard of a scenario: its plans, what they add up to, and the seconds of every strategy."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from rlsim.costs.transfer import SyncCost, best_bucket_of, named_seconds, weight_sync_cost
from rlsim.costs.transfer_build import wire_dtype
from rlsim.costs.transfer_methods import method_of
from rlsim.dtypes import BYTES
from rlsim.errors import UserError
from rlsim.reshard.pieces import Local
from rlsim.reshard.plan import Block, Plan, plan_between
from rlsim.scenario.schema import Scenario
from rlsim.system import System, resolve


class Run(NamedTuple):
    """One rectangle of one tensor on its way; ranks count per pool from 0, offsets in elements of the named tensor."""

    src_rank: int
    src_tensor: str
    src_start: tuple[int, int]
    dst_rank: int
    dst_tensor: str
    dst_start: tuple[int, int]
    shape: tuple[int, int]
    logical: str

    def as_dict(self) -> dict[str, Any]:
        found = self._asdict()
        del found["logical"]
        return {name: list(value) if isinstance(value, tuple) else value for name, value in found.items()}


@dataclass(frozen=True)
class Reshard:
    """All plans of a system, one per kind of engine; engine ranks of later kinds follow those of the first."""

    system: System
    plans: tuple[Plan, ...]
    sync: SyncCost

    @cached_property
    def moved(self) -> NDArray[np.float64]:
        """Bytes from every trainer rank to every engine rank that do not stay on their GPU."""
        return np.concatenate([plan.moved for plan in self.plans], axis=1)

    @property
    def bytes_total(self) -> float:
        return float(self.moved.sum())

    @property
    def messages(self) -> int:
        return sum(plan.messages for plan in self.plans)

    @property
    def bytes_max_in(self) -> float:
        return float(self.moved.sum(axis=0).max())

    @property
    def bytes_max_out(self) -> float:
        return float(self.moved.sum(axis=1).max())

    @property
    def amplification_full_broadcast(self) -> float:
        """Bytes that reach the engines when every GPU gets the whole model, over the bytes that they need."""
        whole = sum(plan.targets * plan.model_bytes for plan in self.plans)
        return whole / self.bytes_total if self.bytes_total else 1.0

    @cached_property
    def seconds(self) -> dict[str, float]:
        """Seconds of every strategy that the placement allows, frameworks' own by their names."""
        return {**self.sync.alternatives, **named_seconds(self.system)}

    @cached_property
    def bucket(self) -> tuple[float, float]:
        """(bytes, seconds) with which the strategy in use is fastest."""
        return best_bucket_of(self.system)

    def runs(self, tensor: str) -> list[Run]:
        """Runs that read or write a tensor (its name in the trainer, in the engines or in the checkpoint).

        In the order of the targets. Raises `UserError` with near names for one that there is not.
        """
        found = [run for run in self._all(tensor) if tensor in (run.src_tensor, run.dst_tensor)]
        found = found or [run for run in self._all(tensor, merge=False) if tensor == run.logical]
        if not found:
            raise UserError(f"no tensor {tensor}", key="--tensor", fix=self._near(tensor))
        return found

    def _all(self, tensor: str, merge: bool = True) -> Iterator[Run]:
        first = 0
        for plan in self.plans:
            for layer in _layers(plan, tensor):
                for block in plan.blocks([layer], merge=merge):
                    names = {t.name for t in (*block.sources, *block.targets)}
                    if tensor in names or any(_belongs(tensor, t.name, t.experts) for t in block.logical):
                        yield from _runs(block, first)
            first += plan.targets

    def _near(self, tensor: str) -> str:
        from difflib import get_close_matches

        names: dict[str, None] = {}
        for plan in self.plans:
            for layers in plan.kinds:
                for block in plan.blocks(layers[:1], [0]):
                    names |= dict.fromkeys(t.name for t in (*block.targets, *block.sources))
                    names |= dict.fromkeys(t.of(0) for t in block.logical)
        near = get_close_matches(tensor, names, 3, 0.3)
        return "for example " + ", ".join(near or list(names)[:3])

    def as_dict(self, tensor: str | None = None) -> dict[str, Any]:
        """The JSON contract of `rlsim reshard --json`."""
        found: dict[str, Any] = {
            "bytes_total": self.bytes_total,
            "messages": self.messages,
            "bytes_max_in": self.bytes_max_in,
            "bytes_max_out": self.bytes_max_out,
            "floor_seconds": self.sync.floor_seconds,
            "amplification_full_broadcast": self.amplification_full_broadcast,
            "strategies": [{"name": name, "seconds": s} for name, s in self.seconds.items()],
        }
        if tensor is not None:
            found["runs"] = [run.as_dict() for run in self.runs(tensor)]
        return found


def reshard_plan(scenario: Scenario) -> Reshard:
    """Plan the weight sync of a scenario. Raises `UserError` for layouts that do not divide or cut FP8 blocks."""
    system = resolve(scenario)
    dtype, _ = wire_dtype(system, method_of(scenario.framework.name))
    plans, first = [], 0 if system.colocated else system.trainer.gpus
    for part in system.rollout:
        plan = plan_between(system.model, system.trainer, part.layout, wire_bytes=BYTES[dtype], first_engine_gpu=first)
        first += part.layout.gpus
        plans.append(plan)
    return Reshard(system, tuple(plans), weight_sync_cost(system))


def _layers(plan: Plan, tensor: str) -> list[int]:
    """Layers in which a tensor of this name may be: engine and checkpoint names say so, trainer names are local."""
    parts = tensor.split(".")
    if tensor.startswith("model.layers.") and parts[2].isdigit():
        return [int(parts[2])] if int(parts[2]) < plan.model.num_layers else []
    if "decoder.layers." in tensor:
        return list(range(plan.model.num_layers))
    return [-1]


def _belongs(tensor: str, name: str, experts: int) -> bool:
    return tensor == name or (experts > 1 and any(tensor == name.replace("*", str(e)) for e in range(experts)))


def _runs(block: Block, first: int) -> Iterator[Run]:
    r = block.runs
    for k in range(len(r.rows)):
        source, target = block.sources[int(r.src_tensor[k])], block.targets[int(r.dst_tensor[k])]
        by_rows = int(r.dst_col[k]) == 1
        shape = (int(r.rows[k]), int(r.cols[k]))
        yield Run(
            src_rank=int(r.src_rank[k]),
            src_tensor=source.name,
            src_start=_start(source, int(r.src_at[k])),
            dst_rank=first + int(r.dst_rank[k]),
            dst_tensor=target.name,
            dst_start=_start(target, int(r.dst_at[k])),
            shape=shape if by_rows else (shape[1], shape[0]),
            logical=block.logical[int(r.logical[k])].of(int(r.expert[k])),
        )


def _start(local: Local, at: int) -> tuple[int, int]:
    return at // local.cols, at % local.cols
