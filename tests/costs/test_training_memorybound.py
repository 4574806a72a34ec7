"""Streaming work: optimizer, accumulation, logits."""

from __future__ import annotations

import numpy as np
import pytest

from rlsim.costs import training_memorybound as streaming
from rlsim.costs.training_sharding import stage_parameters
from rlsim.model import parameters
from tests.costs.systems import LLAMA_70B, QWEN_7B
from tests.costs.training_double import FLOPS, STREAM, case


def test_the_optimizer_streams_its_local_shard() -> None:
    c = case(QWEN_7B, optimizer_hbm_efficiency=0.5)
    # 24 B of states, 2·4 B of gradient, 2 B of weight per parameter of 1/64 of the model, at half of 3.35 TB/s
    want = parameters(c.model) / 64 * 34 / (3.35e12 / 2)
    assert streaming.optimizer_seconds(c, 0) == pytest.approx(want, rel=1e-3)


def test_the_host_is_slower() -> None:
    on_gpu = streaming.optimizer_seconds(case(QWEN_7B), 0)
    c = case(QWEN_7B)
    assert streaming.optimizer_seconds(_on_cpu(c), 0) > on_gpu


def _on_cpu(c: streaming.Case) -> streaming.Case:
    from dataclasses import replace

    return replace(c, options=c.options.model_copy(update={"optimizer_device": "cpu"}))


def test_gradients_accumulate_in_fp32() -> None:
    c = case(LLAMA_70B)
    forward, backward = streaming.accumulation_seconds(c, 1e9, 0.0)
    assert forward == 0.0
    assert backward == pytest.approx(8e9 / STREAM)


def test_gathered_weights_are_copied_into_place() -> None:
    forward, backward = streaming.accumulation_seconds(case(QWEN_7B), 1e9, 0.0)
    # read and write 2 B each way; gradients 2 B read, 4 B written
    assert forward == pytest.approx(4e9 / STREAM)
    assert backward == pytest.approx(10e9 / STREAM)


def test_logits_are_streamed_in_fp32() -> None:
    c = case(QWEN_7B, logits_passes=10.0)
    gemm, logits, source = streaming.head_seconds(c, np.array([1000.0]), True)
    assert float(gemm[0]) == pytest.approx(3 * 2 * 1000 * 152064 * 3584 / FLOPS)
    assert float(logits[0]) == pytest.approx(1000 * 152064 * 4 * 10 / STREAM)
    _, forward, _ = streaming.head_seconds(c, np.array([1000.0]), False)
    assert float(forward[0]) == pytest.approx(float(logits[0]) / 2)
    assert source == "measured"


def test_embedding_and_head_stand_at_the_ends() -> None:
    c = case(LLAMA_70B)
    assert stage_parameters(c, 0)[0] > stage_parameters(c, 1)[0] < stage_parameters(c, 3)[0]
