"""Inference-only records: one engine, saturated with requests of one length.

- TensorRT-LLM's overview: all requests queued at once (3,000 of 1024/1024, 1,500 of 8192/1024 and 1024/8192, 1,000 of
  the 32k cases, as its page says), FP8 weights and KV, 95% of the free memory for KV, `DEPn` = attention DP and EP over
  n GPUs. Played through the rollout engine, with no more sequences at a time than have room to their last token (its
  scheduler evicts none). Its Llama and Qwen checkpoints have one FP8 scale per tensor (tables of that
  format), gpt-oss MXFP4 weights with bf16 arithmetic and KV. What MXFP4 saves in memory is given back as HBM.
- SGLang's and DeepSeek's large EP: one decode iteration at the published batch and context, one prefill of the
  published tokens per device. Both balance experts (EPLB, redundant copies): popularity is uniform, where rlsim's
  rollouts have the skew of real routing; and no LM head is split over attention ranks. EP 72 is taken as 64, the
  nearest size that divides the experts.

TensorRT-LLM and SGLang overlap the scheduler with the GPU: the host's time is at the low end of its prior, which was
made for vLLM.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from rlsim import catalog
from rlsim.costs import surface_table
from rlsim.costs.kernels import kernels_for
from rlsim.costs.rollout import engine_shape, engine_surface, surface_from
from rlsim.memory import check_memory
from rlsim.model import active_parameters, parameters
from rlsim.scenario import scenario_from_dict
from rlsim.sim.fleet import Fleet
from rlsim.sim.request import Request
from rlsim.sim.surface import Surface
from rlsim.system import System, resolve
from validation.published import names
from validation.published.records import Record, SkipError

OVERLAPPED = {"engine_step_base_s": 0.0015, "engine_step_per_seq_s": 8.0e-6}
LARGE_EP = {"popularity": "balanced", "head_tp": 1}
"""Experts balanced, and each attention rank with a whole LM head (SGLang's `--enable-dp-lm-head`)."""
MXFP4_SAVES = 1.0 - 4.25 / 8
"""Bytes a weight against FP8: 4 bits and a scale of 8 bits for 32 of them."""
FORMATS = {"FP8": "FP8 per tensor", "FP4": "NVFP4, memory of FP8", "BF16": ""}
KERNELS: Mapping[str, Mapping[str, Any]] = {"FP8": {"dtype": "fp8_tensor"}, "FP4": {"dtype": "fp4"}, "BF16": {}}
"""Kernels of a checkpoint: NVIDIA's FP8 ones of Llama and Qwen have one scale per tensor, DeepSeek's scale blocks."""
BATCH = 1024
"""Sequences of one rank at most; KV memory decides before that in nearly every case."""


@dataclass(frozen=True)
class Case:
    """One published figure: an engine, and what is asked of it.

    ask      requests (count, prompt, response) | decode (batch, context) | prefill (tokens, prompt length)
    unit     GPUs that the published rate is per
    engine   what is known of the engine and has no key in a scenario
    """

    quantity: str
    scenario: Mapping[str, Any]
    ask: tuple[str, int, int, int]
    unit: int
    measured: float
    note: str = ""
    engine: Mapping[str, Any] = field(default_factory=dict)


def convert(record: Record) -> tuple[Case, ...]:
    """The figures of one record; `SkipError` where it does not say what ran."""
    c, m = record.config, record.measured
    if "output_tok_s_per_gpu" in m:
        return _trtllm(record)
    if "MTP" in str(c.get("phase", "")):
        raise SkipError("speculative decoding is not modelled")
    if "batch_per_device" not in c and "batch_tokens_per_device" not in c:
        raise SkipError("batch and lengths are not in the record")
    return _large_ep(record)


def _trtllm(record: Record) -> tuple[Case, ...]:
    c = record.config
    if c["weights"] not in ("FP8", "BF16", "FP4"):
        raise SkipError(f"{c['weights']} rollout is not modelled")
    kind, size = c["parallelism"].rstrip("0123456789"), int("".join(ch for ch in c["parallelism"] if ch.isdigit()))
    engine = {"attn_dp": size, "attn_tp": 1, "moe_ep": size} if kind == "DEP" else {"tp": size}
    oss = "GPT-OSS" in c["model"]
    cases = []
    for lengths, rate in record.measured["output_tok_s_per_gpu"].items():
        prompt, response = (int(n) for n in lengths.split("/"))
        count = 3000 if max(prompt, response) <= 1024 else 1000 if max(prompt, response) > 8192 else 1500
        rollout = {"gpus": size, "engine": "trtllm", "dtype": "bf16" if c["weights"] == "BF16" else "fp8", **engine}
        rollout["kv_dtype"] = "bf16" if oss else "fp8"
        rollout |= {"memory_utilization": 0.95, "max_num_seqs": min(BATCH, math.ceil(count / _ranks(engine)))}
        rollout["max_num_seqs"] = min(rollout["max_num_seqs"], _without_eviction(record, rollout, prompt, response))
        cases.append(
            Case(
                quantity=f"output_tok_s_per_gpu {lengths}",
                scenario=_scenario(record, rollout, prompt, response),
                ask=("requests", count, prompt, response),
                unit=1,
                measured=float(rate),
                note="MXFP4 weights, bf16 arithmetic"
                if oss
                else ""
                if "DeepSeek" in c["model"]
                else FORMATS[c["weights"]],
                engine={} if oss or "DeepSeek" in c["model"] else KERNELS[c["weights"]],
            )
        )
    return tuple(cases)


def _without_eviction(record: Record, rollout: dict[str, Any], prompt: int, response: int) -> int:
    """Sequences of a rank that TensorRT-LLM's scheduler admits: each has room for its last token reserved."""
    system = resolve(scenario_from_dict(_scenario(record, rollout, prompt, response)))
    return max(1, check_memory(system).kv_tokens_per_rank // (prompt + response))


def _ranks(engine: Mapping[str, int]) -> int:
    return engine.get("attn_dp", 1)


def _large_ep(record: Record) -> tuple[Case, ...]:
    c, m = record.config, record.measured
    ep = int(c["ep"])
    gpus = 64 if ep == 72 else ep
    rollout: dict[str, Any] = {"gpus": gpus, "engine": "sglang", "attn_dp": gpus, "attn_tp": 1, "moe_ep": gpus}
    rollout |= {"dtype": "fp8", "memory_utilization": 0.9}
    note = "EP 72 taken as 64" if ep == 72 else ""
    if c.get("phase", "decode") == "decode":
        batch, context = int(c["batch_per_device"]), int(c["kv_len"])
        rollout["max_num_seqs"] = batch
        case = _scenario(record, rollout, context, 2)
        rate = float(m["tok_s_per_node"])
        return (Case("decode_tok_s_per_node", case, ("decode", batch, context, 0), 8, rate, note, LARGE_EP),)
    tokens = int(c["batch_tokens_per_device"])
    cases = []
    for name, rate in m["tok_s_per_node"].items():
        prompt = int(name.rstrip("K")) * 1024
        chunk = {**rollout, "max_num_seqs": 64, "max_num_batched_tokens": tokens}
        case = _scenario(record, chunk, prompt, 2)
        ask = ("prefill", tokens, prompt, 0)
        cases.append(Case(f"prefill_tok_s_per_node {name}", case, ask, 8, float(rate), note, LARGE_EP))
    return tuple(cases)


def _scenario(record: Record, rollout: dict[str, Any], prompt: int, response: int) -> dict[str, Any]:
    """A disaggregated scenario around the engine; its trainer has to be there and is not used."""
    c = record.config
    gpus = max(8, rollout["gpus"])
    model = catalog.model(names.model(c["model"]))
    saved = MXFP4_SAVES * parameters(model) if "GPT-OSS" in c["model"] else 0.0
    return {
        "name": record.id,
        "model": names.model(c["model"]),
        "cluster": {
            "gpu": names.gpu(c["gpu"]),
            "gpus": 2 * gpus,
            "gpus_per_node": 8,
            "hbm": catalog.gpu(names.gpu(c["gpu"])).hbm_bytes + saved,
        },
        "workload": {
            "prompts": 8 * gpus,
            "group_size": 1,
            "prompt_tokens": {"distribution": "constant", "mean": prompt},
            "response_tokens": {"distribution": "constant", "mean": response},
        },
        "placement": "disaggregated",
        "trainer": {"gpus": gpus, "backend": "fsdp2"},
        "rollout": {**rollout, "gpus": gpus},
    }


def surface(case: Case, values: Mapping[str, float] | None = None) -> tuple[System, Surface]:
    """The engine's system and iteration times."""
    system = resolve(scenario_from_dict(case.scenario))
    profile = system.profile.with_values(**{**OVERLAPPED, **(values or {})})
    system = replace(system, profile=profile)
    part, capacity = system.rollout[0], check_memory(system).kv_tokens_per_rank
    if not case.engine:
        return system, engine_surface(system, part, capacity)
    shape = replace(engine_shape(system, part), **case.engine)
    kernels = kernels_for(part.pool.gpu, part.entry.engine)
    table = surface_table.build(kernels, shape, part.entry.max_num_seqs, part.entry.max_num_batched_tokens)
    return system, surface_from(table, profile, part, capacity, system.model.num_layers)


def price(case: Case, values: Mapping[str, float] | None = None) -> tuple[float, float]:
    """(rate, ceiling): tokens/s per `unit` GPUs as predicted, and at the FLOPs' bound (2 per active weight)."""
    system, engine = surface(case, values)
    gpus = system.rollout[0].layout.gpus_per_engine
    what, a, b, c = case.ask
    if what == "requests":
        fleet = Fleet([(engine, 1)], share_prompts=False)
        fleet.submit([Request(i, i, b, c) for i in range(a)], 0.0)
        seconds, tokens = fleet.drain(0.0)[-1].time, float(a * c)
    elif what == "decode":
        seconds, tokens = engine.row(a, float(b)) + float(engine.joint[a * engine.ranks]), float(a * engine.ranks)
    else:
        pairs = a * (b + 1) / 2
        everywhere = a * engine.ranks
        seconds = engine.mixed(0, 0.0, a, pairs) + engine.joint_prefill(everywhere, 0)
        tokens = float(everywhere)
    peaks = system.trainer_pool.gpu.peak_flops
    peak = peaks.get(system.rollout[0].entry.dtype, peaks["bf16"])
    return tokens / seconds / gpus * case.unit, peak / (2.0 * active_parameters(system.model)) * case.unit
