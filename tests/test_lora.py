"""Adapters counted on paper, and what they leave of a trainer's bytes, passes and weight sync."""

from __future__ import annotations

from functools import partial

import numpy as np
import pytest

from rlsim import catalog
from rlsim.costs.kernels import kernels_for
from rlsim.costs.offload import switch_cost
from rlsim.costs.rollout import engine_surface
from rlsim.costs.training import TrainingCosts
from rlsim.costs.transfer_build import sync_case
from rlsim.errors import UserError
from rlsim.lora import adapter_parameters, adapter_params, adapter_tensors
from rlsim.memory import measure
from rlsim.memory_trainer import state_bytes
from rlsim.model import parameters
from rlsim.scenario.schema import Lora
from tests.costs.systems import QWEN_7B, system

LLAMA8 = "meta-llama/Llama-3.1-8B"
EIGHT = QWEN_7B.replace("Qwen/Qwen2.5-7B", LLAMA8)
LORA = "model={base: meta-llama/Llama-3.1-8B, lora: {rank: 16}}"
MERGED = "model={base: meta-llama/Llama-3.1-8B, lora: {rank: 16, sync: merged}}"
KERNELS = partial(kernels_for, roofline_only=True)


@pytest.mark.parametrize(
    ("name", "targets", "rank", "expected"),
    [
        # 32·16·(2·(4096 + 4096) + 2·(4096 + 1024) + 3·(4096 + 14336))
        (LLAMA8, "all-linear", 16, 41_943_040),
        # PEFT's default for Llama, q and v: 32·8·(8192 + 5120)
        (LLAMA8, ("q_proj", "v_proj"), 8, 3_407_872),
        # 80·16·(2·16384 + 2·(8192 + 1024) + 3·(8192 + 28672))
        ("meta-llama/Llama-3.1-70B", "all-linear", 16, 207_093_760),
        # 48·8·(attention: (2048 + 4096)·2 + 2·(2048 + 512)); 128 experts of 3·(2048 + 768)
        ("Qwen/Qwen3-30B-A3B", "all-linear", 8, 48 * 8 * (2 * 6144 + 2 * 2560 + 128 * 3 * 2816)),
    ],
)
def test_known_sizes(name: str, targets: str | tuple[str, ...], rank: int, expected: int) -> None:
    assert adapter_parameters(catalog.model(name), Lora(rank=rank, targets=targets)) == expected


def test_ranks_hold_it_all_together() -> None:
    m, lora = catalog.model("Qwen/Qwen3-30B-A3B"), Lora(rank=8)
    text = QWEN_7B.replace("Qwen/Qwen2.5-7B", m.name).replace("fsdp2", "megatron, pp: 4, ep: 8, etp: 1")
    layout = system(text).trainer
    stages = [adapter_params(m, layout, stage, lora) for stage in range(4)]
    assert sum(stage.dense + 8 * stage.expert for stage in stages) == adapter_parameters(m, lora)
    # tensor parallelism cuts B of column-parallel weights and A of row-parallel ones, and copies the others
    cut = system(text.replace("pp: 4, ep: 8", "tp: 2, pp: 4")).trainer
    dense = sum(adapter_params(m, cut, stage, lora).dense for stage in range(4))
    whole = sum(stage.dense for stage in stages)
    assert whole / 2 < dense < whole


def test_unknown_target() -> None:
    with pytest.raises(UserError, match="no linear layer w_in"):
        system(EIGHT, "model={base: meta-llama/Llama-3.1-8B, lora: {rank: 8, targets: [w_in]}}")


def test_bytes_of_the_trainer() -> None:
    full, lora = system(EIGHT), system(EIGHT, LORA)
    states = state_bytes(lora, 0)
    # fp32 storage over 64 GPUs: 4 B of base and adapters, 4 and 8 B of adapters
    adapters = 41_943_040
    assert states["weights"] == 4 * (parameters(lora.model) + adapters) / 64
    assert states["gradients"] == 4 * adapters / 64
    assert states["optimizer states"] == 8 * adapters / 64
    assert states["weights"] == pytest.approx(state_bytes(full, 0)["weights"], rel=0.006)


def test_reference_is_the_base() -> None:
    on = "workload.reference_model=true"
    lora = system(EIGHT, LORA, on)
    assert "reference weights" not in measure(lora).moments["reference"].parts
    assert "reference weights" not in measure(lora).host.parts
    passes = TrainingCosts(lora, KERNELS(lora.trainer_pool.gpu))
    lengths = np.full(512, 2500)
    assert passes.logprob(lengths, "reference").seconds == passes.logprob(lengths).seconds


def test_frozen_weights_get_no_gradient_gemms() -> None:
    lengths = np.full(512, 2500)
    full, lora = system(EIGHT, "trainer.recompute=none"), system(EIGHT, LORA, "trainer.recompute=none")
    passes = [TrainingCosts(s, KERNELS(s.trainer_pool.gpu)) for s in (full, lora)]
    updates = [p.update(lengths) for p in passes]
    # forward 1 and backward 2 GEMM times become 1 and 1; attention keeps 3.5: 2/3 of the FLOPs but attention's
    assert updates[1].flops / updates[0].flops == pytest.approx(2 / 3, rel=0.03)
    assert updates[1].seconds < updates[0].seconds
    assert updates[1].parts["optimizer"] < 0.02 * updates[0].parts["optimizer"]
    # one forward costs more: adapters are beside every projection
    assert passes[1].logprob(lengths).seconds > passes[0].logprob(lengths).seconds


def test_adapters_alone_are_sent() -> None:
    case = sync_case(system(EIGHT, LORA))
    # 41.9 M in bf16 is 84 MB, A and B of 7 weights in 32 layers; fp32 storage is what verl would send, generic bf16
    assert case.model_bytes == 2 * 41_943_040
    assert case.tensors == 448 == adapter_tensors(catalog.model(LLAMA8), Lora(rank=16))
    assert case.receivers[0].recv_gpu == case.model_bytes
    merged, full = sync_case(system(EIGHT, MERGED)), sync_case(system(EIGHT))
    assert merged == full


def test_engine_beside_adapters() -> None:
    plain, lora, merged = system(EIGHT), system(EIGHT, LORA), system(EIGHT, MERGED)
    base, beside, after = (engine_surface(s, s.rollout[0], 100_000) for s in (plain, lora, merged))
    host = plain.profile.value("engine_step_base_s") + 64 * plain.profile.value("engine_step_per_seq_s")
    assert beside.row(64, 2000.0) - host == pytest.approx(1.2 * (base.row(64, 2000.0) - host))
    assert after.row(64, 2000.0) == base.row(64, 2000.0)
    # asleep, its base weights go to the host: the adapters' sync does not bring them again
    ledger = {row.role: row for row in switch_cost(lora).ledger}
    assert ledger["engine weights"].moved > 16e9
    assert {row.role: row for row in switch_cost(merged).ledger}["engine weights"].moved == 0.0


@pytest.mark.parametrize(("gpus", "measured"), [(8, 7.28), (16, 3.95)])
def test_published_updates_with_adapters(gpus: int, measured: float) -> None:
    # NeMo Automodel's performance summary, Qwen2.5-32B with LoRA on DGX-H100: TP 2, FSDP2, 32 samples of 4,096 tokens,
    # micro-batches of 2. Rank and recompute are not stated; its default rank is 8. Nothing is fitted on these rows.
    text = f"""
model: {{base: Qwen/Qwen2.5-32B, lora: {{rank: 8}}}}
cluster: {{gpu: h100-sxm, gpus: {gpus}, nic: 50 GB/s}}
trainer: {{backend: fsdp2, tp: 2, micro_batch_size: 2, recompute: none, param_dtype: bf16}}
rollout: {{tp: 8}}
"""
    s = system(text)
    update = TrainingCosts(s, kernels_for(s.trainer_pool.gpu)).update(np.full(32, 4096))
    assert update.seconds == pytest.approx(measured, rel=0.12)
