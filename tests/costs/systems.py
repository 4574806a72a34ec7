"""Whole systems for the tests of the cost rooms, from scenario text."""

from __future__ import annotations

from rlsim.scenario.load import loads_scenario
from rlsim.system import System, resolve

WORKLOAD = """
workload:
  prompts: 64
  group_size: 8
  prompt_tokens: {mean: 500, max: 2048}
  response_tokens: {mean: 2000, max: 8192}
"""

LLAMA_70B = """
model: meta-llama/Llama-3.1-70B
cluster: {gpu: h100-sxm, gpus: 64, nic: 50 GB/s}
placement: disaggregated
trainer: {gpus: 32, backend: megatron, tp: 8, pp: 4}
rollout: {gpus: 32, engine: vllm, tp: 8}
"""

QWEN_7B = """
model: Qwen/Qwen2.5-7B
cluster: {gpu: h100-sxm, gpus: 64}
placement: colocated
trainer: {gpus: 64, backend: fsdp2}
rollout: {gpus: 64, engine: vllm, tp: 1}
"""

DEEPSEEK_V3 = """
model: deepseek-ai/DeepSeek-V3
cluster: {gpu: h100-sxm, gpus: 1024, nic: 50 GB/s}
placement: colocated
trainer: {gpus: 1024, backend: megatron, tp: 4, pp: 16, pp_layers: {first: 3, last: 2}, ep: 32, etp: 1}
rollout: {gpus: 1024, engine: sglang, attn_tp: 1, attn_dp: 32, moe_ep: 32, dtype: fp8}
"""


def system(text: str, *overrides: str) -> System:
    """The system of a scenario without its workload, some keys changed ("weight_sync.strategy=p2p")."""
    return resolve(loads_scenario(text + WORKLOAD, overrides=overrides).variants[0])
