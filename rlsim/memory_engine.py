"""Bytes on the GPUs of a rollout engine: weights, activation peak, and the KV cache that its budget leaves."""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil
from typing import TYPE_CHECKING

import numpy as np

from rlsim.dtypes import BYTES
from rlsim.grids import EngineLayout
from rlsim.lora import adapter_parameters, engine_keeps_base
from rlsim.memory_lengths import sequence_lengths
from rlsim.memory_report import Breakdown, EngineMemory
from rlsim.memory_trainer import vision_bytes
from rlsim.model import ModelSpec, kv_bytes
from rlsim.slices import absorbed_bytes, engine_rank_bytes
from rlsim.sync_settings import double_buffered, sync_bucket

if TYPE_CHECKING:
    from rlsim.scenario.schema import RolloutEntry
    from rlsim.system import RolloutPart, System

SAMPLER_BYTES = 12.0
"""Per sequence and vocabulary entry: logits, probabilities and a sorted or shifted copy in fp32."""


@dataclass(frozen=True)
class Fixed:
    """Bytes of one engine GPU that are not KV cache."""

    weights: float
    absorbed: float
    activations: float
    buffers: float
    context: float
    graphs: float
    sync: float
    resident: float


def engine_memory(system: System, part: RolloutPart, resident: float = 0.0) -> EngineMemory:
    """The engine's tightest GPU. `resident`: bytes of a co-located trainer that stay while the engine runs.

    KV bytes per token and GPU: GQA 2·L_stage·max(1, nkv/attn_tp)·d·bytes; MLA L_stage·(r_kv + d_rope)·bytes, not
    divided by TP; window layers stop at the window. An engine has attn_dp such caches; the stage with the fewest
    tokens decides. The longest sequence must fit in whole blocks, counted as the engine counts them: with windows,
    its tokens weigh as much as those of a sequence of the mean length. Preempted at less, an engine cannot work.
    """
    lengths = sequence_lengths(system.scenario.workload)
    stages = [_stage_memory(system, part, stage, resident) for stage in range(part.layout.pp)]
    tokens, stage = min((_kv_tokens(system.model, part, s, kv, lengths.mean), s) for s, (_, _, kv) in enumerate(stages))
    fixed, budget, kv = stages[stage]
    longest = ceil(lengths.longest / part.entry.block_size) * part.entry.block_size
    average = _sequence_bytes(system.model, part, stage, lengths.mean)
    return EngineMemory(
        breakdown=_breakdown(fixed, kv),
        budget=budget,
        fixed=_inside(fixed, part.entry.engine),
        kv_bytes=kv,
        kv_tokens_per_rank=tokens,
        kv_tokens_per_engine=tokens * part.layout.attn_dp,
        average_sequences=int(kv // average) * part.layout.attn_dp,
        longest_sequences=tokens // longest * part.layout.attn_dp,
        longest_tokens=longest,
        longest_bytes=longest * _token_bytes(system.model, part, stage, lengths.mean),
    )


# Budget rules ----------


def _stage_memory(system: System, part: RolloutPart, stage: int, resident: float) -> tuple[Fixed, float, float]:
    fixed = _fixed(system, part, stage, resident)
    budget = kv_budget(part.entry, part.pool.gpu.hbm_bytes, fixed)
    return fixed, budget, max(0.0, budget - _inside(fixed, part.entry.engine))


def kv_budget(entry: RolloutEntry, hbm: float, fixed: Fixed) -> float:
    """Bytes for weights and KV cache (and what else the engine counts there, `_inside`).

    vLLM: utilization·HBM covers weights, activation peak, context and KV; graphs come on top. SGLang:
    mem_fraction_static of what is free at the start covers weights and KV; activations and graphs live in the rest.
    TensorRT-LLM: KV is that share of what weights, activations and context leave. None may exceed what a co-located
    trainer's resident bytes leave.
    """
    share = entry.memory_utilization
    besides = fixed.resident + fixed.graphs + fixed.sync
    if entry.engine == "vllm":
        return min(share * hbm, hbm - besides)
    besides += fixed.context + fixed.buffers + fixed.activations
    if entry.engine == "sglang":
        return min(share * (hbm - fixed.context - fixed.buffers), hbm - besides)
    weights = fixed.weights + fixed.absorbed
    return weights + share * (hbm - besides - weights)


def _inside(fixed: Fixed, engine: str) -> float:
    """Bytes other than KV cache that the engine takes from its budget."""
    weights = fixed.weights + fixed.absorbed
    return weights + (fixed.activations + fixed.buffers + fixed.context if engine == "vllm" else 0.0)


def _breakdown(fixed: Fixed, kv: float) -> Breakdown:
    parts = {
        "weights": fixed.weights,
        "absorbed MLA weights": fixed.absorbed,
        "KV cache": kv,
        "activation peak": fixed.activations,
        "communication buffers": fixed.buffers,
        "CUDA graphs": fixed.graphs,
        "weight sync buffer": fixed.sync,
        "context": fixed.context,
        "trainer resident": fixed.resident,
    }
    parts = {role: size for role, size in parts.items() if size > 0}
    others = {role: size for role, size in parts.items() if role != "KV cache"}
    return Breakdown(parts, "rollout", f"the KV cache fills the budget; then {max(others, key=lambda r: others[r])}")


# What is not KV cache ----------


def _fixed(system: System, part: RolloutPart, stage: int, resident: float) -> Fixed:
    m, entry, value = system.model, part.entry, system.profile.value
    weights = engine_rank_bytes(m, part.layout, BYTES[entry.dtype])[stage]
    lora = system.scenario.model.lora
    if lora is not None and engine_keeps_base(system.scenario):
        weights += 2.0 * adapter_parameters(m, lora) / part.layout.pp
    if stage == 0:
        weights += vision_bytes(system) / part.layout.attn_tp
    bucket = 0.0 if system.colocated else sync_bucket(system.scenario)
    return Fixed(
        weights=weights,
        absorbed=absorbed_bytes(m, part.layout)[stage],
        activations=engine_activations(m, part.layout, entry, last=stage == part.layout.pp - 1),
        buffers=value("nccl_buffer_bytes") * (part.layout.gpus_per_engine > 1)
        + value("all_to_all_buffer_bytes") * (part.layout.moe_ep > 1),
        context=value("cuda_context_bytes"),
        graphs=0.0 if entry.enforce_eager else value("engine_graph_bytes"),
        sync=weights if double_buffered(system.scenario) else bucket,
        resident=resident,
    )


def engine_activations(m: ModelSpec, layout: EngineLayout, entry: RolloutEntry, last: bool) -> float:
    """Peak of one forward over `max_num_batched_tokens` tokens n, as the engine's profile run sees it.

    n·2·(2H + the wider of q, k, v with the output and of the MLP's gate, up and product), experts for the tokens of
    all attention-DP ranks: n·attn_dp·k/moe_ep copies of H in and out and 3·I_moe/moe_tp. On the last stage the
    sampler, on max_num_seqs rows of the whole vocabulary.
    """
    n, a, e = entry.max_num_batched_tokens, m.attention, m.experts
    heads = a.heads * (a.head_dim + a.v_head_dim) + a.kv_heads * (a.head_dim + a.v_head_dim)
    widths = [heads / layout.attn_tp]
    if m.moe_layers < m.num_layers:
        widths.append(3 * m.intermediate / layout.dense_tp)
    if e is not None:
        copies = layout.attn_dp * e.top_k / layout.moe_ep
        shared = 3 * e.shared_intermediate / layout.dense_tp
        widths.append(copies * (2 * m.hidden + 3 * e.intermediate / layout.moe_tp) + shared)
    sampler = entry.max_num_seqs * m.vocab * SAMPLER_BYTES if last else 0.0
    return float(np.maximum(2.0 * n * (2 * m.hidden + max(widths)), sampler))


# KV cache ----------


def _kv_tokens(m: ModelSpec, part: RolloutPart, stage: int, kv: float, mean: float) -> int:
    """Whole blocks of tokens; with sliding windows, tokens of sequences of the mean length."""
    per_token = _token_bytes(m, part, stage, mean)
    if per_token == 0:
        return 2**40
    block = part.entry.block_size
    return int(kv / per_token) // block * block


def _token_bytes(m: ModelSpec, part: RolloutPart, stage: int, mean: float) -> float:
    """KV bytes of one token of a sequence of the mean length."""
    return _sequence_bytes(m, part, stage, mean) / mean


def _sequence_bytes(m: ModelSpec, part: RolloutPart, stage: int, tokens: float) -> float:
    layers = part.layout.stages[stage]
    return kv_bytes(m, [tokens], layers, BYTES[part.entry.kv_dtype], part.layout.attn_tp)
