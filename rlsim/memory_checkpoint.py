"""Bytes of a checkpoint of the training state: all of it, the busiest rank's part, a node's copy if asynchronous."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from rlsim.lora import adapter_parameters
from rlsim.memory_trainer import state_bytes
from rlsim.model import parameters

if TYPE_CHECKING:
    from rlsim.system import System


@dataclass(frozen=True)
class CheckpointBytes:
    """total: replicas once; rank: written by the busiest rank; node: by the ranks of a full node."""

    total: float
    rank: float
    node: float


def checkpoint_bytes(system: System) -> CheckpointBytes:
    """70B in bf16 with Adam: 14 B a parameter, 0.99 TB. With LoRA the adapters' state.

    Replicated state is written once, cut over its replicas (DCP's load-balanced dedup, Megatron's fully parallel save);
    pipeline stages are cut as their optimizer states are.
    """
    scenario, layout = system.scenario, system.trainer
    given, lora = scenario.run.checkpoint.state, scenario.model.lora
    trained = parameters(system.model) if lora is None else adapter_parameters(system.model, lora)
    total = given if given is not None else bytes_per_parameter(system) * trained
    owned = [state_bytes(system, stage)["optimizer states"] for stage in range(layout.pp)]
    rank = total * max(owned) / sum(owned) * layout.pp / layout.gpus
    return CheckpointBytes(total, rank, rank * min(layout.gpus_per_node, layout.gpus))


def bytes_per_parameter(system: System) -> float:
    """Saved: weights 2 + master 4 + moments 8; fp32 FSDP storage is its own master: 4 + 8."""
    t = system.scenario.trainer
    return 12.0 if t.backend == "fsdp2" and t.param_dtype == "fp32" else 14.0


def staged_bytes(system: System) -> float:
    """Host memory of a node for an asynchronous checkpoint on its way to the storage."""
    run = system.scenario.run
    return checkpoint_bytes(system).node if run.checkpoint_every and run.checkpoint.mode == "async" else 0.0
