"""The switch of whole systems against the bytes on paper."""

from __future__ import annotations

import pytest

from rlsim.costs.offload import state_bytes, switch_cost
from tests.costs.systems import DEEPSEEK_V3, LLAMA_70B, QWEN_7B, system


def test_a_disaggregated_system_switches_nothing() -> None:
    cost = switch_cost(system(LLAMA_70B))
    assert (cost.offload_seconds, cost.onload_seconds, cost.ledger) == (0.0, 0.0, ())


def test_7b_on_64_gpus() -> None:
    """7.6156e9 / 64 parameters a GPU: fp32 storage 4 B is the master, two moments 8 B: 1.43 GB in all."""
    state = state_bytes(system(QWEN_7B))
    assert state.optimizer + state.parameters == pytest.approx(12 * 7.6156e9 / 64, rel=1e-3)
    bf16 = state_bytes(system(QWEN_7B, "trainer.param_dtype=bf16"))
    assert bf16.optimizer == pytest.approx(1.428e9, rel=1e-3)


def test_671b_on_1024_gpus() -> None:
    """12 * 671.03e9 / 1024 = 7.86 GB a GPU on average; uneven stages put 8.7 GB on the busiest."""
    state = state_bytes(system(DEEPSEEK_V3))
    assert 7.86e9 <= state.optimizer <= 1.15 * 7.86e9


def test_pinned_against_pageable() -> None:
    """The same bytes at 12 and at 4 GB/s."""
    pinned, pageable = (switch_cost(system(QWEN_7B, f"offload.pinned={flag}")) for flag in ("true", "false"))
    moved = pinned.bytes_per_gpu
    assert pageable.bytes_per_gpu == moved
    assert pageable.offload_seconds - pinned.offload_seconds == pytest.approx(moved / 4e9 - moved / 12e9)


def test_offload_is_needed_only_where_the_roles_do_not_fit_together() -> None:
    """7B on 64: 1.9 GB of states beside 85% of 80 GB fit; DeepSeek-V3 on 1,024 has 19 GB of them."""
    assert not switch_cost(system(QWEN_7B)).needed
    assert switch_cost(system(DEEPSEEK_V3)).needed


def test_parts_add_up() -> None:
    cost = switch_cost(system(DEEPSEEK_V3))
    assert sum(cost.parts.values()) == pytest.approx(cost.offload_seconds + cost.onload_seconds)


def test_an_optimizer_on_the_host_does_not_move() -> None:
    roles = {row.role for row in switch_cost(system(QWEN_7B, "trainer.optimizer_device=cpu")).ledger}
    assert "optimizer states" not in roles
