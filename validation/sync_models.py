"""Models and layouts for weight syncs that are really carried out: made to a size in bytes, one tensor set for all."""

from __future__ import annotations

from collections.abc import Mapping

import torch

from rlsim.architecture import Attention, Layer, ModelSpec
from rlsim.grids import EngineLayout, TrainLayout
from rlsim.reshard.state import checkpoint_shapes

LAYERS, HIDDEN, VOCAB = 4, 512, 2048
WIRE = 2.0
"""bf16."""


def model_of(size: float) -> ModelSpec:
    """A dense model of about `size` bytes in bf16, its width in the MLP chosen for it."""
    fixed = 2 * VOCAB * HIDDEN + LAYERS * HIDDEN * HIDDEN * 3
    ffn = max(64, round((size / WIRE - fixed) / (LAYERS * 3 * HIDDEN) / 64) * 64)
    return ModelSpec(
        name=f"dense-{size / 1e6:g}MB", architecture="LlamaForCausalLM", vocab=VOCAB, hidden=HIDDEN, intermediate=ffn,
        tied=False, experts=None, layers=(Layer(),) * LAYERS, max_context=4096, source="made to size",
        attention=Attention("gqa", 8, 4, 64, 64),
    )  # fmt: skip


def layouts(m: ModelSpec, trainers: int, receivers: int) -> tuple[TrainLayout, EngineLayout]:
    """FSDP2 over `trainers` hosts of one rank, `receivers` engines of one rank on a host each."""
    every = tuple(range(m.num_layers))
    source = TrainLayout(
        backend="fsdp2", gpus=trainers, gpus_per_node=1, tp=1, pp=1, vpp=1, cp=1, ulysses=1, ep=1, etp=1, dp=trainers,
        edp=trainers, shard=trainers, zero_stage=3, sequence_parallel=False, stages=(every,),
    )  # fmt: skip
    target = EngineLayout(
        engines=receivers, gpus_per_engine=1, pp=1, attn_tp=1, attn_dp=1, moe_tp=1, moe_ep=1, stages=(every,),
        gpus_per_node=1, engine="vllm",
    )  # fmt: skip
    return source, target


def checkpoint(m: ModelSpec) -> dict[str, torch.Tensor]:
    """Whole tensors in bf16, the same in every process; small whole numbers, so that bytes can be compared."""
    generator = torch.Generator(device="cpu").manual_seed(1)
    return {
        name: torch.randint(-99, 100, shape, generator=generator, dtype=torch.int8, device="cpu").to(torch.bfloat16)
        for name, shape in checkpoint_shapes(m).items()
    }


def wrong(found: Mapping[str, torch.Tensor], wanted: Mapping[str, torch.Tensor]) -> list[str]:
    """Names of tensors that are missing, superfluous or differ in a byte."""
    differ = [
        n
        for n in wanted
        if n in found and not torch.equal(found[n].cpu().view(torch.uint8), wanted[n].view(torch.uint8))
    ]
    return sorted(found.keys() ^ wanted.keys()) + differ
