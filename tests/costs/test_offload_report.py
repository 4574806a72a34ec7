"""The offload ledger and its alternatives."""

from __future__ import annotations

from functools import partial

import pytest

from rlsim.costs.kernels import kernels_for
from rlsim.costs.offload import switch_cost
from rlsim.costs.offload_report import OffloadReport, offload_report
from rlsim.costs.roles import critic_costs
from rlsim.memory import measure
from rlsim.views.memory import ledger_lines

from .systems import LLAMA_70B, QWEN_7B, system

FULL = """
model: Qwen/Qwen3-32B
cluster: {gpu: h100-sxm, gpus: 16}
trainer: {backend: megatron, tp: 4, micro_batch_tokens: 4096}
rollout: {engine: vllm, tp: 4, memory_utilization: 0.7}
"""
EIGHT = QWEN_7B.replace("gpus: 64", "gpus: 8")
BF16 = "trainer.param_dtype=bf16"


def report(text: str, *overrides: str) -> OffloadReport:
    s = system(text, *overrides)
    found = offload_report(s, switch_cost(s), critic_costs(s, partial(kernels_for, roofline_only=True)))
    assert found is not None
    return found


def test_rows_are_the_switch_by_role() -> None:
    s, found = system(EIGHT, BF16), report(EIGHT, BF16)
    rows = {row.role: row for row in found.rows}
    # 4 and 8 bytes of 12 for masters and moments: 3.81 and 7.62 GB, 0.32 and 0.63 s at 12 GB/s
    assert rows["master weights"].moved == pytest.approx(3.808e9, rel=1e-3)
    assert rows["moments"].offload_seconds == pytest.approx(7.616e9 / 12e9, rel=1e-3)
    assert (rows["gradients"].moved, rows["gradients"].memory) == (0.0, "none")
    assert rows["gradients"].mapped > 0
    switch = switch_cost(s)
    both = sum(row.offload_seconds + row.onload_seconds for row in found.rows) + found.fixed_seconds
    assert both == pytest.approx(switch.offload_seconds + switch.onload_seconds)
    assert found.seconds == pytest.approx(both)


def test_pageable_and_critic() -> None:
    found = report(EIGHT, BF16, "offload.pinned=false", "workload.algorithm=ppo")
    rows = {row.role: row for row in found.rows}
    assert rows["moments"].memory == "pageable"
    assert rows["moments"].offload_seconds == pytest.approx(7.616e9 / 4e9, rel=1e-3)
    assert rows["critic moments"].moved == pytest.approx(8 * 7.07e9 / 8, rel=1e-2)
    assert rows["critic moments"].waits_in == "critic's passes"
    assert report(EIGHT, BF16, "workload.reference_model=true").rows[-1].role == "reference weights"


def test_options_are_measured_as_if_the_file_said_so() -> None:
    found = report(EIGHT, BF16)
    assert [option.keys for option in found.options][:4] == [(), ("optimizer",), ("params",), ("grads",)]
    assert len(found.options) == 8
    assert found.now.keys == ("optimizer", "params", "grads")
    for option in found.options:
        overrides = [
            f"offload.{key}={'true' if key in option.keys else 'false'}" for key in ("optimizer", "params", "grads")
        ]
        alone = measure(system(EIGHT, BF16, *overrides))
        assert (option.kv_tokens, option.fits) == (alone.kv_tokens_per_engine, not alone.problems)
    # what leaves adds to the KV cache, and to the switch
    assert found.without.kv_tokens <= found.now.kv_tokens
    assert found.without.seconds < found.now.seconds
    assert found.cheapest == found.without
    assert not found.needed


def test_a_full_gpu_needs_offload() -> None:
    # 32B, tp 4 on 16 GPUs: (2 + 4)·8.2e9 and 12·32.8e9/16 bytes are 74 GB of 85 for the states, the engine's weights 16
    found = report(FULL)
    assert found.needed
    assert found.cheapest is not None
    assert found.cheapest.keys
    whole = found.cheapest_whole
    assert whole is not None
    assert whole.kv_tokens >= 0.999 * found.now.kv_tokens
    assert whole.seconds >= found.cheapest.seconds
    lines = ledger_lines(found.as_dict())
    assert "offload is needed" in lines[1]


def test_two_pools_have_no_ledger() -> None:
    s = system(LLAMA_70B)
    assert offload_report(s, switch_cost(s), None) is None
