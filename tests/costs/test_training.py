"""Whole passes: parts add up, physics' floor holds, more work and slower parts never cost less."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rlsim.costs.kernels import kernels_for
from rlsim.costs.training import StepTime, TrainingCosts
from rlsim.costs.training_layer import held_parameters, streamed_bytes
from rlsim.model import forward_flops, matmul_weights_per_token
from rlsim.slices import train_params
from tests.costs.systems import DEEPSEEK_V3, LLAMA_70B, QWEN_7B, system
from tests.costs.training_double import FLOPS, STREAM, costs

RNG = np.random.default_rng(0)
LENGTHS = np.minimum(RNG.lognormal(7.6, 0.6, 512), 10000).astype(np.int64)
TEXTS = {"llama": LLAMA_70B, "qwen": QWEN_7B, "deepseek": DEEPSEEK_V3}


def adds_up(step: StepTime) -> None:
    assert sum(step.parts.values()) == pytest.approx(step.seconds, rel=1e-12)
    assert sum(step.sources.values()) == pytest.approx(step.seconds, rel=1e-9)
    assert all(v >= -1e-9 for v in step.parts.values()), step.parts
    assert step.seconds >= step.floor_seconds


@pytest.mark.parametrize("name", TEXTS)
def test_passes_add_up_on_measured_kernels(name: str) -> None:
    resolved = system(TEXTS[name])
    prices = TrainingCosts(resolved, kernels_for(resolved.trainer_pool.gpu))
    update, logprob = prices.update(LENGTHS), prices.logprob(LENGTHS)
    adds_up(update)
    adds_up(logprob)
    assert logprob.seconds < update.seconds
    assert "optimizer" not in logprob.parts
    assert update.flops == pytest.approx(3 * forward_flops(resolved.model, LENGTHS))
    assert update.sources["measured"] > 0


@settings(max_examples=30, deadline=None)
@given(
    st.sampled_from(list(TEXTS)),
    st.lists(st.integers(1, 8192), min_size=64, max_size=256),
    st.sampled_from(["verl", "nemo-rl", "generic"]),
    st.sampled_from(["none", "tokens"]),
)
def test_no_pass_undercuts_its_floor(name: str, lengths: list[int], framework: str, balance: str) -> None:
    prices = costs(TEXTS[name], f"framework={framework}", f"trainer.balance={balance}")
    adds_up(prices.update(np.array(lengths)))
    adds_up(prices.logprob(np.array(lengths)))


def test_the_same_lengths_cost_the_same() -> None:
    assert costs(LLAMA_70B).update(LENGTHS) == costs(LLAMA_70B).update(LENGTHS)


def test_one_rank_one_micro_batch_is_pencil_and_paper() -> None:
    # 64 samples of 2,048 on 64 ranks: a micro-batch each. Forward, backward (twice) and full recompute: four times the
    # layers' GEMMs at 500 TFLOP/s and their streaming at 2 TB/s; three times the head's GEMM; the embedding; and each
    # gathered weight copied twice (4 B) and its gradient cast (6 B); embedding and head copied once.
    prices = costs(QWEN_7B)
    step = prices.update(np.full(64, 2048))
    m = prices.case.model
    head = 2 * m.vocab * m.hidden * 2048 / FLOPS
    layers = 2 * (matmul_weights_per_token(m) - m.vocab * m.hidden) * 2048 / FLOPS
    streamed = m.num_layers * streamed_bytes(prices.case, m.layers[0]) * 2048 / STREAM
    copies = m.num_layers * sum(held_parameters(prices.case, m.layers[0])) * 14 / STREAM
    copies += 2 * m.vocab * m.hidden * (4 + 6) / STREAM
    embedding = 2048 * m.hidden * 2 * 6 / STREAM
    assert step.micro_batches == 1
    assert step.parts["imbalance"] == pytest.approx(0.0, abs=1e-12)
    assert step.parts["bubble"] == pytest.approx(0.0, abs=1e-12)
    assert step.parts["compute"] == pytest.approx(4 * (layers + streamed) + 3 * head + copies + embedding, rel=1e-3)


def test_nothing_hides_the_gather_of_embedding_and_head() -> None:
    """All layers' traffic beside long compute; left over, for each of two micro-batches, 2·545.0 M weights of the
    embedding and head: 2 B gathered and 4 B reduced at 100 GB/s, 65.4 ms; in a log-prob pass 21.8 ms of gathers.
    """
    prices = costs(QWEN_7B, "trainer.micro_batch_tokens=8192")
    update, logprob = prices.update(np.full(128, 8192)), prices.logprob(np.full(128, 8192))
    assert (update.micro_batches, logprob.micro_batches) == (2, 2)
    assert update.parts["dp_comm"] == pytest.approx(2 * 65.4e-3, rel=1e-3)
    assert logprob.parts["dp_comm"] == pytest.approx(2 * 21.8e-3, rel=1e-3)


def test_the_reference_comes_in_from_the_host() -> None:
    """Llama 70B at TP 8, PP 4, an end stage: (20·855.7 M + 1.051 B)/8·2 B = 4.54 GB at 12 GB/s, 0.3785 s.
    Qwen 7B with FSDP2 over 64: 15.23 GB/64 = 0.238 GB, 19.8 ms; pageable at 4 GB/s three times that.
    """
    prices = costs(LLAMA_70B, "workload.reference_model=true")
    actor, reference = prices.logprob(LENGTHS), prices.logprob(LENGTHS, "reference")
    adds_up(reference)
    held = max(train_params(prices.case.model, prices.case.layout, stage).dense for stage in range(4))
    assert 2 * held == pytest.approx(4.54e9, rel=2e-3)
    assert reference.seconds - actor.seconds == pytest.approx(2 * held / 12e9)
    assert reference.parts["reference_in"] == pytest.approx(0.3785, rel=2e-3)
    shards = costs(QWEN_7B, "workload.reference_model=true")
    assert shards.reference_in == pytest.approx(15.23e9 / 64 / 12e9, rel=1e-2)
    pageable = costs(QWEN_7B, "workload.reference_model=true", "offload.pinned=false")
    assert pageable.reference_in == pytest.approx(3 * shards.reference_in)


def test_recompute_costs_a_forward() -> None:
    none = costs(LLAMA_70B, "trainer.recompute=none").update(LENGTHS)
    selective = costs(LLAMA_70B, "trainer.recompute=selective").update(LENGTHS)
    full = costs(LLAMA_70B, "trainer.recompute=full").update(LENGTHS)
    assert none.parts["attention"] < selective.parts["attention"] == pytest.approx(full.parts["attention"])
    assert none.parts["compute"] == pytest.approx(selective.parts["compute"])
    assert none.parts["compute"] < full.parts["compute"]
    assert none.flops == full.flops


def test_balance_shortens_the_step() -> None:
    ordered = np.sort(LENGTHS)
    none = costs(QWEN_7B, "trainer.balance=none").update(ordered)
    tokens = costs(QWEN_7B, "trainer.balance=tokens").update(ordered)
    assert tokens.parts["imbalance"] < none.parts["imbalance"]
    assert tokens.seconds < none.seconds


def test_a_pipeline_has_a_bubble_and_chunks_shrink_it() -> None:
    plain = costs(LLAMA_70B).update(LENGTHS)
    chunks = costs(LLAMA_70B, "trainer.vpp=2").update(LENGTHS)
    assert plain.parts["bubble"] > 0
    assert chunks.parts["bubble"] < plain.parts["bubble"]


def test_packing_beats_padding() -> None:
    packed = costs(QWEN_7B).update(LENGTHS)
    padded = costs(QWEN_7B, "trainer.packing=false").update(LENGTHS)
    assert packed.seconds < padded.seconds


def test_nemo_rl_pads_its_packs_in_a_pipeline() -> None:
    generic = costs(LLAMA_70B).update(LENGTHS)
    nemo = costs(LLAMA_70B, "framework=nemo-rl").update(LENGTHS)
    assert nemo.parts["compute"] >= generic.parts["compute"]


def test_the_hosts_floor_binds_on_small_micro_batches() -> None:
    free = costs(DEEPSEEK_V3, "trainer.micro_batch_tokens=2048").update(LENGTHS)
    slow = costs(DEEPSEEK_V3, "trainer.micro_batch_tokens=2048", moe_layer_floor_s=0.05).update(LENGTHS)
    assert free.parts["moe_floor"] == 0.0
    assert slow.parts["moe_floor"] > 0.0
    assert slow.seconds > free.seconds


def test_moe_layers_stall_on_every_pass() -> None:
    # micro-batches x layers of a stage x (forward + recompute and backward) x 1 ms more, whatever the GPU time
    text = DEEPSEEK_V3
    free, slow = costs(text).update(LENGTHS), costs(text, moe_layer_sync_s=0.001).update(LENGTHS)
    assert slow.parts["moe_floor"] > 0.0
    assert slow.seconds - free.seconds > free.micro_batches * 3 * 0.001


def test_log_probs_have_their_own_budget() -> None:
    small = costs(LLAMA_70B, "trainer.logprob_micro_batch_tokens=10240").logprob(LENGTHS)
    large = costs(LLAMA_70B, "trainer.logprob_micro_batch_tokens=65536").logprob(LENGTHS)
    assert small.micro_batches > large.micro_batches


@settings(max_examples=20, deadline=None)
@given(
    st.sampled_from(list(TEXTS)), st.sampled_from(["nic_efficiency", "nvlink_efficiency", "optimizer_hbm_efficiency"])
)
def test_a_faster_resource_never_slows_a_pass(name: str, parameter: str) -> None:
    slow = costs(TEXTS[name], **{parameter: 0.4}).update(LENGTHS)
    fast = costs(TEXTS[name], **{parameter: 0.8}).update(LENGTHS)
    assert fast.seconds <= slow.seconds * (1 + 1e-12)


def test_the_slowest_of_many_gpus_paces() -> None:
    assert costs(QWEN_7B, gpu_speed_spread=0.02).case.slowest == pytest.approx(1.047, abs=0.002)


def test_nothing_to_train_on_costs_nothing() -> None:
    assert costs(QWEN_7B).update(np.array([], dtype=np.int64)).seconds == 0.0


@settings(max_examples=15, deadline=None)
@given(st.integers(1, 200), st.integers(0, 1000))
def test_few_samples_leave_ranks_idle_and_still_add_up(n: int, seed: int) -> None:
    lengths = np.random.default_rng(seed).integers(1, 4000, n)
    adds_up(costs(LLAMA_70B).update(lengths))
    adds_up(costs(QWEN_7B, "framework=verl").logprob(lengths))
