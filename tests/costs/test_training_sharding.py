"""Weights and gradients between data-parallel ranks."""

from __future__ import annotations

import numpy as np
import pytest

from rlsim.costs import training_sharding as sharding
from rlsim.costs.training_layer import held_parameters
from rlsim.model import parameters
from tests.costs.systems import DEEPSEEK_V3, LLAMA_70B, QWEN_7B
from tests.costs.training_double import case


def test_stages_hold_the_model() -> None:
    c = case(LLAMA_70B)
    held = sum(sharding.stage_parameters(c, s)[0] for s in range(4))
    assert held * 8 == pytest.approx(parameters(c.model), rel=2e-4)


def test_experts_are_split_over_ep() -> None:
    c = case(DEEPSEEK_V3)
    dense, experts = sharding.stage_parameters(c, 5)
    assert experts == 4 * 256 * 3 * 7168 * 2048 / 32
    assert 0 < dense < experts


def test_fsdp_gathers_a_layer_through_all_nics() -> None:
    c = case(QWEN_7B)
    traffic = sharding.layer_traffic(c, c.model.layers[0])
    dense, _ = held_parameters(c, c.model.layers[0])
    # 8 nodes: 7/8 through 8·50 GB/s = 400 GB/s, against the double's 100 GB/s inside the node
    assert traffic.gather == pytest.approx(dense * 2 / 100e9)
    assert traffic.reduce == pytest.approx(2 * traffic.gather)


def test_hybrid_sharding_adds_an_all_reduce_over_replicas() -> None:
    full = sharding.layer_traffic(case(QWEN_7B), case(QWEN_7B).model.layers[0])
    c = case(QWEN_7B, "trainer.fsdp_size=8")
    hybrid = sharding.layer_traffic(c, c.model.layers[0])
    assert hybrid.gather == pytest.approx(full.gather)
    assert hybrid.reduce > full.reduce


def test_embedding_and_head_are_gathered_and_reduced() -> None:
    """Qwen2.5-7B, untied: 152,064·3,584 = 545.0 M each; gathered in bf16 at 100 GB/s 10.9 ms, reduced in fp32 21.8."""
    for traffic in sharding.end_traffic(case(QWEN_7B)):
        assert traffic.gather == pytest.approx(10.9e-3, rel=1e-3)
        assert traffic.reduce == pytest.approx(21.8e-3, rel=1e-3)
    # a tied head is the embedding itself; Megatron gathers nothing in a micro-batch
    tied = case(QWEN_7B.replace("2.5-7B", "2.5-0.5B"))
    assert sharding.end_traffic(tied)[1].gather == 0.0
    assert sharding.end_traffic(case(LLAMA_70B))[0].gather == 0.0


def test_replicas_reduce_the_experts_own_shards() -> None:
    """30B-A3B, 64 GPUs, FSDP over 16, EP 8: a slice of 16 experts (128/8) is sharded over 16/8 = 2 ranks, and each
    shard has 64/(8·2) = 4 replicas; a dense shard 1/16 and 64/16 = 4. Both groups have one member a node (strides 16):
    2·3/4 of the shard through one NIC, 4 B a gradient.
    """
    text = QWEN_7B.replace("Qwen/Qwen2.5-7B", "Qwen/Qwen3-30B-A3B").replace("fsdp2", "fsdp2, ep: 8, fsdp_size: 16")
    c = case(text)
    dense, experts = held_parameters(c, c.model.layers[0])
    assert experts == 16 * 3 * 2048 * 768
    whole = sharding.unit_traffic(c, dense, experts).reduce
    without = dense * 4 / 100e9 + experts * 4 * 1 / 2 / 50e9
    assert whole - without == pytest.approx(2 * 3 / 4 * 4 * (dense / 16 + experts / 2) / 50e9)


def test_megatron_reduces_once_per_update() -> None:
    c = case(LLAMA_70B, "trainer.pp=2")
    assert sharding.layer_traffic(c, c.model.layers[0]).gather == 0.0
    reduce, gather = sharding.update_traffic(c, 0)
    # DP 2, one member a node: half of the slice through one NIC; gradients 4 B, weights 2 B
    dense, _ = sharding.stage_parameters(c, 0)
    assert gather == pytest.approx(dense * 2 / 2 / 50e9)
    assert reduce == pytest.approx(2 * gather)


def test_traffic_beside_compute_costs_its_excess_or_its_share() -> None:
    c = case(QWEN_7B, overlap_sm_share=0.1)
    beside = np.array([10.0, 10.0])
    assert sharding.exposed(c, np.array([12.0, 5.0]), beside).tolist() == pytest.approx([2.0, 0.5])


def test_zero_2_reduces_in_every_micro_batch() -> None:
    text = QWEN_7B.replace("fsdp2", "zero, zero_stage: 2")
    each = case(text, dp_overlap=0.0)
    assert sharding.once_per_update(each, (3.0, 1.0), (9.0, 9.0), 4) == pytest.approx(13.0)
    once = case(LLAMA_70B, dp_overlap=0.0)
    assert sharding.once_per_update(once, (3.0, 1.0), (9.0, 9.0), 4) == pytest.approx(4.0)


def test_hidden_reductions_cost_nothing() -> None:
    c = case(LLAMA_70B, dp_overlap=1.0)
    assert sharding.once_per_update(c, (3.0, 1.0), (9.0, 9.0), 4) == pytest.approx(0.0)
    assert sharding.once_per_update(c, (3.0, 1.0), (2.0, 9.0), 4) == pytest.approx(1.0)
