"""Bytes and seconds of a checkpoint on paper."""

from __future__ import annotations

import pytest

from rlsim.costs.checkpoint import checkpoint_cost
from rlsim.memory import host_memory
from rlsim.memory_checkpoint import checkpoint_bytes
from rlsim.scenario import loads_scenario
from rlsim.system import System, resolve

TEXT = """
name: case
model: meta-llama/Llama-3.1-70B
cluster: {gpu: h100-sxm, gpus: 128, gpus_per_node: 8, nic: 50 GB/s}
workload: {prompts: 32, group_size: 4, prompt_tokens: {mean: 200, max: 512}, response_tokens: {mean: 900, max: 4096}}
placement: disaggregated
schedule: sync
trainer: {gpus: 64, TRAINER}
rollout: {gpus: 64, tp: 8}
run: {steps: 3, checkpoint_every: 10, checkpoint: {CHECKPOINT}}
"""


def system(checkpoint: str = "mode: sync", trainer: str = "backend: megatron, tp: 8") -> System:
    return resolve(loads_scenario(TEXT.replace("CHECKPOINT", checkpoint).replace("TRAINER", trainer)).variants[0])


def test_a_70b_checkpoint_is_about_a_terabyte() -> None:
    # 70.6e9 parameters · 14 B = 988 GB on 64 ranks: 15.4 GB each, 123.5 GB a node.
    size = checkpoint_bytes(system())
    assert size.total == pytest.approx(988e9, rel=0.005)
    assert size.rank == pytest.approx(15.4e9, rel=0.01)
    assert size.node == pytest.approx(8 * size.rank)


def test_fp32_storage_is_its_own_master() -> None:
    size = checkpoint_bytes(system(trainer="backend: fsdp2, param_dtype: fp32"))
    assert size.total == pytest.approx(847e9, rel=0.005)


def test_the_slowest_of_rank_node_and_storage_writes() -> None:
    # 988 GB over 5 GB/s: 198 s; over 100 GB/s the node's 123.5 GB at 4 GB/s: 30.9 s; at 50 GB/s the rank's 15.4 s.
    assert checkpoint_cost(system()).write_seconds == pytest.approx(198, rel=0.01)
    fast = checkpoint_cost(system("storage: 100 GB/s"))
    assert fast.write_seconds == pytest.approx(30.9, rel=0.01)
    assert checkpoint_cost(system("storage: 100 GB/s, node_storage: 50 GB/s")).write_seconds == pytest.approx(
        15.4, rel=0.01
    )


def test_asynchronous_saves_block_for_the_copy_to_the_host() -> None:
    # 15.4 GB at 12 GB/s pinned: 1.3 s, and the plan.
    cost = checkpoint_cost(system("mode: async"))
    assert cost.blocking_seconds == pytest.approx(cost.plan_seconds + 1.29, rel=0.01)
    assert cost.background_seconds == cost.write_seconds
    half = cost.scaled(0.5)
    assert half.blocking_seconds == cost.blocking_seconds / 2
    assert half.background_seconds == cost.background_seconds / 2


def test_the_host_holds_what_is_on_its_way() -> None:
    assert "checkpoint on its way" not in host_memory(system()).parts
    held = host_memory(system("mode: async")).parts["checkpoint on its way"]
    assert held == pytest.approx(123.5e9, rel=0.01)


def test_a_given_size_counts() -> None:
    assert checkpoint_bytes(system("state: 640 GB")).rank == pytest.approx(10e9)
