"""Checkpoints with `torch.distributed.checkpoint`: bytes of the training state, seconds to write and to read them."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from rlsim.costs.offload import host_link
from rlsim.memory_checkpoint import checkpoint_bytes
from rlsim.tensors import tensors

if TYPE_CHECKING:
    from rlsim.system import System

STATES = 3  # tensors saved per parameter: its (master) value and two moments


@dataclass(frozen=True)
class CheckpointCost:
    """One checkpoint.

    mode              sync: the trainer waits for the storage; async: for the copy to the host, written behind its back
    bytes_total       the whole state, replicas once
    bytes_rank        written by the busiest rank
    plan_seconds      planning, and metadata that the coordinator writes last
    stage_seconds     device to host
    write_seconds     to the storage
    load_seconds      back from it, by all ranks
    """

    mode: str
    bytes_total: float
    bytes_rank: float
    plan_seconds: float
    stage_seconds: float
    write_seconds: float
    load_seconds: float

    @property
    def blocking_seconds(self) -> float:
        """Seconds that the trainer stands still; a save that waits for the one before adds to that."""
        return self.plan_seconds + (self.stage_seconds if self.mode == "async" else self.write_seconds)

    @property
    def background_seconds(self) -> float:
        """Seconds from then until the checkpoint can be restored."""
        return self.write_seconds if self.mode == "async" else 0.0

    def scaled(self, factor: float) -> CheckpointCost:
        """The same checkpoint with all its durations multiplied."""
        return replace(
            self,
            plan_seconds=self.plan_seconds * factor,
            stage_seconds=self.stage_seconds * factor,
            write_seconds=self.write_seconds * factor,
            load_seconds=self.load_seconds * factor,
        )


def checkpoint_cost(system: System) -> CheckpointCost:
    """Bytes and seconds of one checkpoint.

    write = max(bytes of a rank / its writer, bytes of a node / its storage client, all bytes / file system)
    plan  = fixed + write items of all ranks · seconds per item; stage = bytes of a rank / host link

    Source: pytorch torch/distributed/checkpoint (FileSystemWriter, async_save).
    """
    run, value, trainer = system.scenario.run, system.profile.value, system.trainer
    given = run.checkpoint
    size = checkpoint_bytes(system)
    file_system = given.storage if given.storage is not None else value("filesystem_write_rate")
    node_rate = given.node_storage if given.node_storage is not None else value("filesystem_node_write_rate")
    items = STATES * len(tensors(system.model)) / trainer.pp * trainer.gpus
    read = max(size.total / value("filesystem_read_rate"), size.node / value("filesystem_node_read_rate"))
    return CheckpointCost(
        mode=given.mode,
        bytes_total=size.total,
        bytes_rank=size.rank,
        plan_seconds=value("checkpoint_fixed_s") + items * value("checkpoint_item_s"),
        stage_seconds=size.rank / host_link(system).copy_rate(system.scenario.offload.pinned),
        write_seconds=max(size.rank / value("checkpoint_rank_rate"), size.node / node_rate, size.total / file_system),
        load_seconds=read,
    )
