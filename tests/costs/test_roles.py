"""Critic, reference and reward model priced as systems of their own."""

from __future__ import annotations

from functools import partial

import numpy as np
import pytest

from rlsim.architecture import value_model
from rlsim.catalog import model
from rlsim.costs.kernels import kernels_for
from rlsim.costs.roles import critic_costs, replica_costs, scoring_passes
from rlsim.errors import UserError
from rlsim.model import matmul_weights_per_token, parameters, tensors
from rlsim.roles import role_system

from .systems import QWEN_7B, system

KERNELS = partial(kernels_for, roofline_only=True)
TWO_POOLS = QWEN_7B.replace("colocated", "disaggregated").replace("gpus: 64, backend", "gpus: 16, backend")
TWO_POOLS = TWO_POOLS.replace("rollout: {gpus: 64", "rollout: {gpus: 32")
PPO = "workload.algorithm=ppo"
LENGTHS = np.full(512, 2500)


def test_value_head_has_one_output() -> None:
    m = model("Qwen/Qwen2.5-7B")
    v = value_model(m)
    # the LM head's 152,064 x 3,584 becomes 1 x 3,584
    assert parameters(m) - parameters(v) == (152064 - 1) * 3584
    assert matmul_weights_per_token(m) - matmul_weights_per_token(v) == (152064 - 1) * 3584
    assert sum(t.size for t in tensors(v)) == parameters(v)
    # a tied head becomes one of its own
    small = model("Qwen/Qwen2.5-1.5B") if model("Qwen/Qwen2.5-1.5B").tied else m
    assert parameters(value_model(small)) == parameters(small) + (small.hidden if small.tied else 0) - (
        0 if small.tied else (m.vocab - 1) * m.hidden
    )


def test_shared_critic_costs_a_little_less_than_the_policy() -> None:
    s = system(QWEN_7B, PPO)
    critic = critic_costs(s, KERNELS)
    assert critic is not None
    assert critic.gpus == 0
    # 7.07 B weights a token of which the LM head is 0.54: 8% less, and no passes over the logits
    update = critic.passes.update(LENGTHS)
    assert update.parts["logits"] < 1e-3 * update.seconds
    assert critic.passes.logprob(LENGTHS).flops == pytest.approx(
        2 * matmul_weights_per_token(critic.passes.case.model) * LENGTHS.sum(), rel=0.1
    )
    # states over the host link each way: (4 + 8)·7.07e9/64 at 12 GB/s = 0.11 s, and 0.3 s of the switch itself
    assert critic.onload_seconds == pytest.approx(12 * 7.07e9 / 64 / 12e9 + 0.3, rel=0.05)
    assert critic_costs(system(QWEN_7B), KERNELS) is None


def test_critic_of_another_size_on_its_own_gpus() -> None:
    s = system(TWO_POOLS, PPO, "roles.critic={gpus: 16, tp: 2, model: Qwen/Qwen2.5-1.5B}")
    critic = critic_costs(s, KERNELS)
    assert critic is not None
    assert (critic.gpus, critic.onload_seconds) == (16, 0.0)
    layout = critic.passes.case.layout
    assert (layout.tp, layout.dp) == (2, 8)
    assert critic.passes.case.model.hidden == 1536


def test_replicas_take_samples_one_by_one() -> None:
    s = system(TWO_POOLS, "workload.reference_model=true", "roles.reference={gpus: 8, tp: 2}")
    replicas = replica_costs(s, "reference", KERNELS)
    assert replicas is not None
    assert replicas.workers == 4
    # forward of 4,096 tokens of 7B: 2·7.07e9·4096 FLOPs on 2 GPUs of 989 TFLOP/s is 29 ms at peak
    seconds = float(replicas.seconds(np.array([4096]))[0])
    assert 0.029 < seconds < 0.12
    # twice as long takes a little more than twice the time; 1/16 not less than 1/16
    assert 2.0 <= float(replicas.seconds(np.array([8192]))[0]) / seconds < 2.4
    assert replica_costs(system(TWO_POOLS, "workload.reference_model=true"), "reference", KERNELS) is None


def test_reward_model_on_the_trainers_gpus_comes_from_the_host() -> None:
    s = system(QWEN_7B, "workload.reward={kind: model}", "roles.reward_model={model: Qwen/Qwen2.5-1.5B}")
    passes = scoring_passes(s, KERNELS)
    assert passes is not None
    step = passes.logprob(LENGTHS, "reward")
    assert step.parts["reference_in"] == pytest.approx(
        passes.logprob(LENGTHS, "reward").seconds - passes.logprob(LENGTHS).seconds
    )
    # 2·1.31e9/64 bytes (without the LM head) at 12 GB/s
    assert step.parts["reference_in"] == pytest.approx(2 * parameters(passes.case.model) / 64 / 12e9, rel=0.02)


def test_a_role_that_does_not_divide_is_named() -> None:
    s = system(TWO_POOLS, "workload.reference_model=true", "roles.reference={gpus: 3, tp: 3}")
    with pytest.raises(UserError, match=r"roles.reference"):
        role_system(s, "reference")
