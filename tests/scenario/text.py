"""A small valid scenario, and its text with pieces replaced."""

from __future__ import annotations

BASE = """\
name: small
model: Qwen/Qwen2.5-7B
cluster: {gpu: h100-sxm, gpus: 16, nic: 50 GB/s}
workload:
  prompts: 32
  group_size: 8
  prompt_tokens: {mean: 100, max: 1024}
  response_tokens: {mean: 500, p99: 1900, max: 2048}
placement: disaggregated
schedule: async
async: {max_staleness: 2}
trainer: {gpus: 8, backend: megatron, tp: 2, pp: 2}
rollout: {gpus: 8, tp: 2}
run: {steps: 3}
variants:
  together: {placement: colocated, schedule: sync, trainer: {gpus: 16}, rollout: {gpus: 16}}
"""


def changed(*pairs: tuple[str, str]) -> str:
    """The small scenario with each first text replaced by the second; the first must be there."""
    text = BASE
    for old, new in pairs:
        assert old in text, old
        text = text.replace(old, new)
    return text
