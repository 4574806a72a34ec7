"""Images in the prompt: tokens, the encoder's work, its bytes; and an optimizer on NVMe."""

from __future__ import annotations

from functools import partial

import numpy as np
import pytest

from rlsim.costs.kernels import kernels_for
from rlsim.costs.rollout import engine_surface
from rlsim.costs.training import TrainingCosts
from rlsim.costs.vision import encoder_flops
from rlsim.errors import UserError
from rlsim.memory import measure
from rlsim.memory_lengths import sequence_lengths
from rlsim.memory_trainer import state_bytes
from rlsim.workload import sample_batch

from .systems import QWEN_7B, system

KERNELS = partial(kernels_for, roofline_only=True)
IMAGES = "workload.images={per_prompt: 1.5, tokens: 1000}"
LENGTHS = np.full(512, 2500)


def test_prompts_grow() -> None:
    text, images = system(QWEN_7B).scenario.workload, system(QWEN_7B, IMAGES).scenario.workload
    before, after = (sample_batch(w, np.random.default_rng(0), 0) for w in (text, images))
    added = after.prompt_tokens - before.prompt_tokens
    # of 64 prompts about half have a second image; the responses are the same
    assert set(added.tolist()) == {1000, 2000}
    assert 20 < (added == 2000).sum() < 44
    assert (after.response_tokens == before.response_tokens).all()
    assert sequence_lengths(images).mean == sequence_lengths(text).mean + 1500
    assert sequence_lengths(images).longest == sequence_lengths(text).longest + 2000


def test_whole_images_are_not_drawn() -> None:
    work = system(QWEN_7B, "workload.images={per_prompt: 2, tokens: 300}").scenario.workload
    plain = system(QWEN_7B).scenario.workload
    a, b = (sample_batch(w, np.random.default_rng(3), 0).prompt_tokens for w in (work, plain))
    assert (a - b == 600).all()


def test_encoder_in_every_pass() -> None:
    s = system(QWEN_7B, IMAGES)
    # 2·0.675e9·4 = 5.4 GFLOP a token; 512 samples · 1,500 tokens over 64 GPUs at 0.4·989.5e12
    assert encoder_flops(s.profile) == 5.4e9
    seconds = 512 * 1500 * 5.4e9 / (64 * 0.4 * s.trainer_pool.gpu.peak_flops["bf16"])
    passes = TrainingCosts(s, KERNELS(s.trainer_pool.gpu))
    for step in (passes.logprob(LENGTHS), passes.update(LENGTHS)):
        assert step.parts["vision"] == pytest.approx(seconds)
        assert sum(step.parts.values()) == pytest.approx(step.seconds)
    plain = TrainingCosts(system(QWEN_7B), KERNELS(s.trainer_pool.gpu))
    assert "vision" not in plain.update(LENGTHS).parts


def test_encoder_in_the_prefill() -> None:
    s, plain = system(QWEN_7B, IMAGES), system(QWEN_7B)
    with_images, without = (engine_surface(x, x.rollout[0], 100_000) for x in (s, plain))
    # 1,500 of 2,000 tokens of a mean prompt are of images
    each = 0.75 * 5.4e9 / (0.4 * s.rollout[0].pool.gpu.peak_flops["bf16"])
    added = np.interp(4096.0, with_images.prefill_knots, with_images.prefill_seconds - without.prefill_seconds)
    assert added == pytest.approx(4096 * each)
    assert with_images.row(64, 2000.0) == without.row(64, 2000.0)


def test_encoder_bytes() -> None:
    s, plain = system(QWEN_7B, IMAGES), system(QWEN_7B)
    # 1.35 GB in bf16: sharded over 64 on the trainer, whole in an engine of one GPU
    assert state_bytes(s, 0)["weights"] - state_bytes(plain, 0)["weights"] == pytest.approx(1.35e9 / 64)
    engines = [measure(x).tightest.breakdown.parts["weights"] for x in (s, plain)]
    assert engines[0] - engines[1] == pytest.approx(1.35e9)


def test_images_need_room_for_a_response() -> None:
    with pytest.raises(UserError, match="leaves no token for a response"):
        system(QWEN_7B, "workload.images={per_prompt: 3, tokens: 1000}", "workload.total_tokens={max: 5000}")


def test_optimizer_on_nvme() -> None:
    lengths = np.full(512, 2500)

    def optimizer(device: str) -> float:
        s = system(QWEN_7B, f"trainer.optimizer_device={device}")
        return TrainingCosts(s, KERNELS(s.trainer_pool.gpu)).update(lengths).parts["optimizer"]

    # 24 B of 7.616e9/64 parameters at 20/8 GB/s is 1.14 s, slower than the CPU's step; (4 + 2) B over PCIe
    assert optimizer("nvme") == pytest.approx(24 * 7.616e9 / 64 / 2.5e9 + 6 * 7.616e9 / 64 / 12e9, rel=0.01)
    assert optimizer("gpu") < optimizer("cpu") < optimizer("nvme")
    host = measure(system(QWEN_7B, "trainer.optimizer_device=nvme")).host.parts
    assert "optimizer states" not in host
    # gradients wait there in fp32: 4·7.616e9/64 on each of 8 GPUs
    assert host["gradients"] == pytest.approx(8 * 4 * 7.616e9 / 64, rel=1e-3)
