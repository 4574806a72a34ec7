"""The weight sync of LoRA when only adapters are sent: a few tensors per layer, whole to every engine GPU."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rlsim.lora import adapter_parameters, adapter_params, adapter_tensors
from rlsim.slices import SyncBytes, owners

if TYPE_CHECKING:
    from rlsim.scenario.schema import Lora
    from rlsim.system import RolloutPart, System


def adapter_bytes(system: System, part: RolloutPart, lora: Lora, width: float) -> SyncBytes:
    """What one sync of the adapters moves to one kind of engine.

    Every worker of an engine takes the whole adapter and keeps its slices (vLLM loads a LoRA by whole tensors). A
    trainer rank holds its slices, or its shard of them. Llama-3.1-8B, r = 16, bf16: 84 MB in 448 tensors.
    """
    m, train = system.model, system.trainer
    total, tensors = adapter_parameters(m, lora) * width, adapter_tensors(m, lora)
    stages = [adapter_params(m, train, stage, lora) for stage in range(train.pp)]
    dense, expert = (train.shard, train.expert_shard) if train.shards_weights else (1, 1)
    held = max(stage.dense / dense + stage.expert / expert for stage in stages) * width
    gpus = min(train.gpus, train.gpus_per_node)
    whole = sum(stage.dense + stage.expert for stage in stages)
    return SyncBytes(
        total_unique=total,
        tensors=tensors,
        source_gpu_max=held,
        source_node_max=min(total, held * gpus),
        source_send_max=min(held, total / owners(train)) if train.shards_weights else held / train.edp,
        source_stage_share=max(stage.dense + stage.expert for stage in stages) / whole,
        source_owners=owners(train),
        per_engine_gpu_max=total,
        per_engine_node_max=total,
        per_engine_total=total * part.layout.gpus_per_engine,
        engine_tensors_max=tensors,
        missing_gpu_max=total,
        missing_node_max=total,
        missing_engine_max=total * part.layout.gpus_per_engine,
    )
