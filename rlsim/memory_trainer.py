"""Bytes on the trainer's GPUs, stage by stage and moment by moment."""

from __future__ import annotations

from collections.abc import Mapping
from math import ceil
from typing import TYPE_CHECKING

from rlsim.activations import (
    forward_bytes,
    kept_bytes,
    layer_activations,
    micro_batches_in_flight,
    working_bytes,
)
from rlsim.dtypes import BYTES
from rlsim.grids import TrainLayout
from rlsim.lora import adapter_params, reference_is_base, switch_order
from rlsim.memory_lengths import sequence_lengths
from rlsim.memory_report import Breakdown
from rlsim.model import ModelSpec, embedding_parameters, head_parameters, layer_parameters
from rlsim.slices import RankParams, train_params

if TYPE_CHECKING:
    from rlsim.scenario.schema import Scenario, Trainer
    from rlsim.system import System

ZERO_BUCKET = 5e8
"""Elements of a DeepSpeed reduce or all-gather bucket, its default."""


# States ----------


def state_bytes(system: System, stage: int) -> dict[str, float]:
    """Weights, gradients and optimizer states of one rank of a stage, wherever they lie: role -> bytes."""
    held, lora = train_params(system.model, system.trainer, stage), system.scenario.model.lora
    adapters = adapter_params(system.model, system.trainer, stage, lora) if lora is not None else None
    parts = model_state_bytes(held, system.trainer, system.scenario.trainer, adapters)
    if stage == 0:
        parts["weights"] += vision_bytes(system) / (system.trainer.shard if system.trainer.shards_weights else 1)
    return parts


def model_state_bytes(
    held: RankParams, layout: TrainLayout, trainer: Trainer, adapters: RankParams | None = None
) -> dict[str, float]:
    """Megatron: (2 + g)·(N_d + N_e) + 12·(N_d/(DP·CP) + N_e/EDP), g = 4 or 2 bytes of gradient.

    FSDP2: fp32 storage 4 + 4 + 8 bytes, or bf16 2 + g + 12, each over the shard group. ZeRO-1 shards the optimizer,
    ZeRO-2 also the gradients, ZeRO-3 all. Adam: master, first and second moment in fp32 (12 bytes; 8 where the
    stored weights are the master). N_d, N_e: dense and expert parameters of the rank. With LoRA the base has weights
    only, and gradients and optimizer states are those of the adapters.
    """
    gradient = BYTES[trainer.grad_dtype]
    trained = held if adapters is None else adapters
    stored = held if adapters is None else RankParams(held.dense + adapters.dense, held.expert + adapters.expert)
    whole = float(trained.dense + trained.expert)
    if layout.shards_weights:
        weights = stored.dense / layout.shard + stored.expert / layout.expert_shard
        owned = trained.dense / layout.shard + trained.expert / layout.expert_shard
        fp32 = layout.backend == "fsdp2" and trainer.param_dtype == "fp32"
        if fp32:
            return {"weights": 4 * weights, "gradients": 4 * owned, "optimizer states": 8 * owned}
        return {"weights": 2 * weights, "gradients": gradient * owned, "optimizer states": 12 * owned}
    owned = trained.dense / layout.dense_replicas + trained.expert / layout.edp
    gradients = owned if layout.zero_stage == 2 else whole
    weights = 2.0 * (stored.dense + stored.expert)
    return {"weights": weights, "gradients": gradient * gradients, "optimizer states": 12 * owned}


def master_share(system: System) -> float:
    """Share of Adam's states that fp32 masters are: 4 of 12 bytes, none of 8 where the stored weights are fp32."""
    stored = system.trainer.backend == "fsdp2" and system.scenario.trainer.param_dtype == "fp32"
    return 0.0 if stored else 1 / 3


def vision_bytes(system: System) -> float:
    """The frozen vision encoder in bf16, whole on every rank of the first stage that does not shard weights."""
    return 0.0 if system.scenario.workload.images is None else 2.0 * system.profile.value("vision_parameters")


def gathered_bytes(system: System, stage: int) -> float:
    """Whole layers that FSDP2 and ZeRO-3 gather: two units in bf16 and one unit's gradient in fp32, beside the root
    unit (embedding and head), which stays gathered; all layers when they are not resharded after the forward. Under a
    pipeline FSDP2 reduces only after the last micro-batch: the stage's gradients accumulate whole, in fp32.
    """
    m, layout, t = system.model, system.trainer, system.scenario.trainer
    if not layout.shards_weights:
        return 0.0
    units = [_unit_parameters(m, layout, layer) for layer in layout.stages[stage]]
    root = 0.0
    if stage == 0:
        root += embedding_parameters(m) / layout.tp
    if stage == layout.pp - 1:
        root += (embedding_parameters(m) if m.tied and layout.pp > 1 else head_parameters(m)) / layout.tp
    largest = max(units, default=0.0)
    layers = sum(units) if not t.reshard_after_forward else min(2 * largest, sum(units))
    gradients = sum(units) + root if layout.pp > 1 else max(largest, root)
    if system.scenario.model.lora is not None:
        gradients = 0.0  # adapters' only
    return 2.0 * (layers + root) + 4.0 * gradients


def _unit_parameters(m: ModelSpec, layout: TrainLayout, layer: int) -> float:
    dense, experts = layer_parameters(m, layer)
    return dense / layout.tp + experts / (layout.ep * layout.etp)


def communication_bytes(system: System) -> float:
    """Buffers of collectives: NCCL's own, DeepSpeed's two buckets, the all-to-all buffers of expert parallelism."""
    layout = system.trainer
    total = system.profile.value("nccl_buffer_bytes")
    if layout.backend == "zero":
        total += 2 * 2.0 * ZERO_BUCKET
    if layout.ep > 1:
        total += system.profile.value("all_to_all_buffer_bytes")
    return total


# Micro-batches ----------


def micro_batch_tokens(scenario: Scenario, logprob: bool = False) -> float:
    """Tokens of the largest micro-batch of one data-parallel rank, before CP and Ulysses split it.

    A token budget is at least the longest sequence; a size counts its sequences at their longest. The log-prob pass
    takes its own budget where it has one, else training's.
    """
    t, longest = scenario.trainer, sequence_lengths(scenario.workload).longest
    tokens, size = t.micro_batch_tokens, t.micro_batch_size
    if logprob and (t.logprob_micro_batch_tokens is not None or t.logprob_micro_batch_size is not None):
        tokens, size = t.logprob_micro_batch_tokens, t.logprob_micro_batch_size
    if tokens is not None:
        return float(max(tokens, longest))
    return float((size or 1) * longest)


def micro_batch_count(system: System) -> int:
    """Micro-batches of one update on one data-parallel rank, at the mean length."""
    w = system.scenario.workload
    tokens = w.samples * sequence_lengths(w).mean / w.updates.mini_batches / system.trainer.dp
    size = system.scenario.trainer.micro_batch_size
    if size is not None and system.scenario.trainer.micro_batch_tokens is None:
        return max(1, ceil(w.samples / w.updates.mini_batches / system.trainer.dp / size))
    return max(1, ceil(tokens / micro_batch_tokens(system.scenario)))


def activation_bytes(system: System, stage: int) -> float:
    """Activations of one stage at the peak of training.

    Σ over the stage's layers of the bytes kept per token, times the micro-batches in flight (full recompute:
    2·tokens·H per layer, ÷ tp under SP, ÷ cp), plus the working set of its largest layer.
    """
    m, layout = system.model, system.trainer
    recompute = system.scenario.trainer.recompute
    tokens = micro_batch_tokens(system.scenario) / layout.sequence_split
    kept, working = 0.0, 0.0
    imbalance = system.profile.value("expert_imbalance")
    for moe in (False, True):
        layers = sum(m.layers[layer].moe == moe for layer in layout.stages[stage])
        if layers:
            a = layer_activations(m, layout, moe, imbalance)
            kept += layers * kept_bytes(m, a, layout, recompute)
            working = max(working, working_bytes(a, recompute))
    return tokens * (kept * micro_batches_in_flight(layout, stage, micro_batch_count(system)) + working)


def forward_activation_bytes(system: System, stage: int, tokens: float) -> float:
    """Working set of a forward pass without gradients."""
    m, layout = system.model, system.trainer
    kinds = {m.layers[layer].moe for layer in layout.stages[stage]}
    imbalance = system.profile.value("expert_imbalance")
    largest = max((forward_bytes(layer_activations(m, layout, moe, imbalance)) for moe in kinds), default=0.0)
    return tokens / layout.sequence_split * largest


def logits_bytes(system: System, stage: int, tokens: float, per_element: float) -> float:
    """Logits on the last stage: tokens·V/tp·bytes, the bytes covering bf16 logits, an fp32 copy, its gradient."""
    layout = system.trainer
    if stage != layout.pp - 1:
        return 0.0
    return tokens / layout.sequence_split * system.model.head_width / layout.tp * per_element


# Moments ----------


def trainer_moments(system: System, asleep: float, beside: Mapping[str, float] | None = None) -> dict[str, Breakdown]:
    """The training, log-prob and reference passes, each on its fullest stage.

    `asleep`: bytes that a co-located engine keeps on the GPU while it sleeps. The reference model's weights wait on
    the host and come in beside the policy's for their pass. Gradients and optimizer states stay where they are.
    `beside`: bytes by role of other models on the same GPU.
    """
    resident = {**(beside or {}), "engine asleep": asleep}
    moments = {"train": _fullest(system, "train", resident)}
    workload = system.scenario.workload
    if workload.logprob != "rollout":
        moments["logprob"] = _fullest(system, "logprob", resident)
    if workload.reference_model and system.scenario.roles.reference is None:
        moments["reference"] = _fullest(system, "reference", resident)
    return moments


def _fullest(system: System, moment: str, resident: Mapping[str, float]) -> Breakdown:
    stages = [_stage_parts(system, moment, stage, resident) for stage in range(system.trainer.pp)]
    stage = max(range(len(stages)), key=lambda s: sum(stages[s].values()))
    parts = stages[stage]
    largest = max(parts, key=lambda role: parts[role])
    return Breakdown(parts, moment, _cause(system, moment, stage, largest))


def _stage_parts(system: System, moment: str, stage: int, resident: Mapping[str, float]) -> dict[str, float]:
    value = system.profile.value
    parts = resident_states(system, stage)
    if moment == "train":
        tokens = micro_batch_tokens(system.scenario)
        parts["activations"] = activation_bytes(system, stage)
        parts["logits"] = logits_bytes(system, stage, tokens, value("logits_bytes_per_element"))
    else:
        tokens = micro_batch_tokens(system.scenario, logprob=True)
        if moment == "reference" and not reference_is_base(system.scenario):
            parts["reference weights"] = reference_bytes(system, stage)
        parts["activations"] = forward_activation_bytes(system, stage, tokens)
        parts["logits"] = logits_bytes(system, stage, tokens, min(6.0, value("logits_bytes_per_element")))
    parts["gathered layers"] = gathered_bytes(system, stage)
    moving = parts["activations"] + parts["logits"] + parts["gathered layers"]
    parts["communication buffers"] = communication_bytes(system)
    parts["context"] = value("cuda_context_bytes")
    parts["allocator slack"] = value("allocator_slack") * moving
    parts |= resident
    return {role: size for role, size in parts.items() if size > 0}


def resident_states(system: System, stage: int) -> dict[str, float]:
    """Weights, gradients and optimizer states that lie on the GPU while the trainer works."""
    parts = state_bytes(system, stage)
    if system.scenario.trainer.optimizer_device != "gpu":
        parts["optimizer states"] = 0.0
    return parts


def reference_bytes(system: System, stage: int) -> float:
    """A second copy of the weights in bf16, cut as the policy's are."""
    layout = system.trainer
    held = train_params(system.model, layout, stage)
    if layout.shards_weights:
        return 2 * (held.dense / layout.shard + held.expert / layout.expert_shard)
    return 2.0 * (held.dense + held.expert)


def _cause(system: System, moment: str, stage: int, largest: str) -> str:
    layout = system.trainer
    where = f" on pipeline stage {stage}" if layout.pp > 1 else ""
    if largest == "activations" and moment == "train":
        flight = micro_batches_in_flight(layout, stage, micro_batch_count(system))
        tokens = micro_batch_tokens(system.scenario)
        return f"activations of {flight:g} × {tokens:,.0f} tokens in flight{where}"
    if largest == "logits":
        return f"logits of {micro_batch_tokens(system.scenario, moment != 'train'):,.0f} tokens{where}"
    return f"{largest}{where}"


def offloadable(system: System) -> Mapping[str, bool]:
    """Which trainer states leave the GPU during rollout, by role: as the offload block has it, but the framework may
    keep its weights, and an optimizer on the host has nothing to leave.
    """
    offload, order = system.scenario.offload, switch_order(system.scenario, system.trainer.backend)
    return {
        "weights": offload.params and not order.keeps_parameters,
        "gradients": offload.grads,
        "optimizer states": offload.optimizer and system.scenario.trainer.optimizer_device == "gpu",
    }
