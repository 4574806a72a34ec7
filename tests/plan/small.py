"""A small system that a search is through with in seconds."""

from __future__ import annotations

from rlsim.scenario.load import loads_scenario
from rlsim.scenario.schema import Scenario

TEXT = """
model: Qwen/Qwen2.5-Math-1.5B
framework: verl
cluster: {gpu: h100-sxm, gpus: 8}
workload: {prompts: 16, group_size: 4, prompt_tokens: {mean: 100, max: 200}, response_tokens: {mean: 200, max: 600}}
trainer: {backend: fsdp2, micro_batch_tokens: 8192}
rollout: {engine: vllm, tp: 1, memory_utilization: 0.6, max_num_seqs: 64}
run: {steps: 2}
"""
ONLY = {
    "trainer.ulysses": [1, 2],
    "trainer.fsdp_size": [None],
    "trainer.reshard_after_forward": [True],
    "trainer.gpus": [2, 4],
    "rollout.attn_tp": [1, 2],
    "rollout.max_num_seqs": [16, 64],
}


def small() -> Scenario:
    return loads_scenario(TEXT).variants[0]
