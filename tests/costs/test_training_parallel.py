"""Communication of a layer: how many collectives of which size, and what stays exposed."""

from __future__ import annotations

import numpy as np
import pytest

from rlsim.costs import training_parallel as parallel
from tests.costs.systems import DEEPSEEK_V3, LLAMA_70B, QWEN_7B
from tests.costs.training_double import LINK, case

TOKENS = np.array([8192.0])
NOTHING = np.zeros(1)


def test_sequence_parallel_gathers_and_scatters() -> None:
    c = case(LLAMA_70B, tp_overlap=0.0)
    got = parallel.tensor_parallel(c, c.model.layers[0], TOKENS, np.ones(1), NOTHING)
    one = 8192 * 8192 * 2 / LINK
    # forward 2 all-gathers and 2 reduce-scatters, backward 4 and 2
    assert float(got.forward[0]) == pytest.approx(4 * one)
    assert float(got.backward[0]) == pytest.approx(6 * one)


def test_megatron_hides_half_of_the_backwards_behind_gemms() -> None:
    c = case(LLAMA_70B, tp_overlap=1.0)
    one = 8192 * 8192 * 2 / LINK
    long = parallel.tensor_parallel(c, c.model.layers[0], TOKENS, np.ones(1), NOTHING)
    assert float(long.backward[0]) == pytest.approx(2 * one)
    short = parallel.tensor_parallel(c, c.model.layers[0], TOKENS, np.array([one]), NOTHING)
    assert float(short.backward[0]) == pytest.approx(4 * one)


def test_user_buffers_hide_all_but_one_piece_of_a_gemm() -> None:
    c = case(LLAMA_70B, tp_overlap=1.0, tp_pipelined_overlap=1.0)
    one = 8192 * 8192 * 2 / LINK
    got = parallel.tensor_parallel(c, c.model.layers[0], TOKENS, np.ones(1), np.ones(1))
    # forward: 4 collectives beside 7 of 8 pieces; backward: of what is left (2 gathers), the same share
    assert float(got.forward[0]) == pytest.approx(4 * one / 8)
    assert float(got.backward[0]) == pytest.approx(2 * one / 8)


def test_without_sequence_parallel_there_are_all_reduces() -> None:
    c = case(LLAMA_70B, "trainer.sequence_parallel=false", tp_overlap=0.0)
    got = parallel.tensor_parallel(c, c.model.layers[0], TOKENS, NOTHING, NOTHING)
    assert float(got.forward[0]) == pytest.approx(2 * 2 * 8192 * 8192 * 2 / LINK)


def test_one_rank_needs_nothing() -> None:
    c = case(QWEN_7B)
    got = parallel.tensor_parallel(c, c.model.layers[0], TOKENS, NOTHING, NOTHING)
    assert float(got.forward[0]) == float(got.backward[0]) == 0.0
    assert float(parallel.expert_parallel(c, TOKENS)[0][0]) == 0.0
    assert float(parallel.stage_send(c, TOKENS)[0]) == 0.0


def test_all_to_all_crosses_nodes_through_each_ranks_nic() -> None:
    c = case(DEEPSEEK_V3)
    # 8192/4 rows of 8·7168·2 B, 24 of 32 ranks on other nodes, 50 GB/s; dispatch and combine
    seconds, source = parallel.expert_parallel(c, TOKENS)
    assert float(seconds[0]) == pytest.approx(2 * 2048 * 8 * 7168 * 2 * 24 / 32 / 50e9)
    assert source == "roofline"


def test_deepep_sends_less() -> None:
    plain, _ = parallel.expert_parallel(case(DEEPSEEK_V3), TOKENS)
    deep, source = parallel.expert_parallel(case(DEEPSEEK_V3, "trainer.dispatcher=deepep"), TOKENS)
    assert float(deep[0]) < float(plain[0])
    assert source == "scaled"


def test_the_busiest_rank_paces_every_dispatcher() -> None:
    """Twice the rows: DeepEP 2·2,048 of 7,168·(2 + 2) B at the double's 100 GB/s = 1.174 ms; an all-gather none."""
    for dispatcher, factor in (("alltoall", 2.0), ("deepep", 2.0), ("allgather", 1.0)):
        key = f"trainer.dispatcher={dispatcher}"
        even, _ = parallel.expert_parallel(case(DEEPSEEK_V3, key), TOKENS)
        hot, _ = parallel.expert_parallel(case(DEEPSEEK_V3, key, expert_imbalance=2.0), TOKENS)
        assert float(hot[0]) == pytest.approx(factor * float(even[0]))
        if dispatcher == "deepep":
            assert float(hot[0]) == pytest.approx(1.174e-3, rel=1e-3)


def test_the_ring_hides_behind_attention() -> None:
    c = case(LLAMA_70B, "trainer.cp=2", "trainer.pp=2")
    # one hop of 2·4096·1·128·2 B over the 8-GPU domain's edge: the NIC
    hop = 4096 * 256 * 2 / 50e9
    bare = parallel.context_parallel(c, TOKENS, NOTHING, 2.5)
    assert float(bare.forward[0]) == pytest.approx(hop)
    assert float(bare.backward[0]) == pytest.approx(2 * hop)
    hidden = parallel.context_parallel(c, TOKENS, np.array([4 * hop]), 2.5)
    assert float(hidden.forward[0]) == 0.0


def test_ulysses_exchanges_q_k_v_and_o() -> None:
    c = case(QWEN_7B, "trainer.ulysses=4")
    got = parallel.context_parallel(c, TOKENS, NOTHING, 2.5)
    # rows 2048, heads 28 + 4 + 4 + 28 of 128: the double moves the whole send buffer at 100 GB/s
    assert float(got.forward[0]) == pytest.approx(2048 * 64 * 128 * 2 / LINK)


def test_a_stage_hands_its_rows_on() -> None:
    c = case(LLAMA_70B)
    assert float(parallel.stage_send(c, TOKENS)[0]) == pytest.approx(8192 / 8 * 8192 * 2 / 50e9)
