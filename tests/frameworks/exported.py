"""Two scenarios that every framework can be given, and what an exported text says, read back."""

from __future__ import annotations

import re
from typing import Any

import yaml

from rlsim.frameworks import export
from rlsim.scenario.load import loads_scenario
from rlsim.scenario.schema import Scenario

WORK = """
workload:
  prompts: 128
  group_size: 8
  prompt_tokens: {mean: 150, max: 512}
  response_tokens: {mean: 1500, max: 6144}
  updates: {mini_batches: 4}
  reference_model: true
run: {checkpoint_every: 20, eval: {every: 10, prompts: 500}}
"""
DENSE = (
    WORK
    + """
name: dense
model: Qwen/Qwen2.5-7B
cluster: {gpu: h100-sxm, gpus: 16}
placement: colocated
trainer: {micro_batch_size: 2}
rollout: {tp: 2, memory_utilization: 0.6, max_num_seqs: 192}
remedies: {consolidate: {below: 0.25}}
"""
)
MOE = (
    WORK
    + """
name: moe
model: Qwen/Qwen3-30B-A3B
cluster: {gpu: h100-sxm, gpus: 48}
placement: disaggregated
schedule: async
async: {max_staleness: 3}
trainer: {gpus: 32, micro_batch_tokens: 20480}
rollout: {gpus: 16, tp: 4, memory_utilization: 0.8, max_num_seqs: 128, kv_dtype: fp8}
"""
)
BACKEND = {
    "verl": ("fsdp2", "vllm"),
    "slime": ("megatron", "sglang"),
    "openrlhf": ("zero", "vllm"),
    "areal": ("fsdp2", "sglang"),
    "nemo-rl": ("fsdp2", "vllm"),
    "trl": ("zero", "vllm"),
}
MEGATRON = ("trainer.backend=megatron", "trainer.tp=2", "trainer.pp=2", "trainer.ep=8", "trainer.etp=1")
KINDS = ("dense", "moe")


def scenario(framework: str, kind: str, *overrides: str) -> Scenario:
    """The dense scenario with the framework's back ends; the MoE one on Megatron where the framework has it."""
    backend, engine = BACKEND[framework]
    sets = [f"trainer.backend={backend}", f"rollout.engine={engine}"]
    if framework == "slime":
        sets.append("trainer.tp=2")
    if kind == "moe":
        sets.append(f"async.policy={framework}")
        if framework in ("verl", "slime", "areal", "nemo-rl"):
            sets += MEGATRON
        if framework == "trl":
            sets += ["trainer.micro_batch_tokens=null", "trainer.micro_batch_size=2", "workload.updates.mini_batches=1"]
    return loads_scenario(DENSE if kind == "dense" else MOE, overrides=[*sets, *overrides]).variants[0]


def text(framework: str, kind: str, *overrides: str) -> str:
    return export(framework, scenario(framework, kind, *overrides))


def read(framework: str, printed: str) -> dict[str, Any]:
    """Key -> value of an exported text, whatever its form. Dotted keys; flags that stand alone are True."""
    if framework in ("areal", "nemo-rl", "trl"):
        found: dict[str, Any] = {}
        for document in yaml.safe_load_all(printed):
            found |= flat(document)
        return found
    lines = [line.strip().rstrip("\\").strip() for line in printed.splitlines() if not line.startswith("#")]
    if framework == "verl":
        pairs = [line.split("=", 1) for line in lines[1:]]
        return {key.lstrip("+"): value_of(value) for key, value in pairs}
    flags = [re.fullmatch(r"--(\S+)(?: (.*))?", line) for line in lines[1:]]
    return {m[1]: True if m[2] is None else value_of(m[2]) for m in flags if m is not None}


def value_of(written: str) -> Any:
    return yaml.safe_load(written)


def flat(tree: dict[str, Any], prefix: str = "") -> dict[str, Any]:
    out: dict[str, Any] = {}
    for key, value in tree.items():
        out |= flat(value, f"{prefix}{key}.") if isinstance(value, dict) else {f"{prefix}{key}": value}
    return out
