"""What the processes of the distributed tests do: every case by every strategy, compared byte for byte."""

from __future__ import annotations

import json
import traceback
from pathlib import Path

import torch
import torch.distributed as dist

from rlsim.architecture import ModelSpec
from rlsim.grids import EngineLayout, TrainLayout
from rlsim.reshard.distributed import STRATEGIES, transfer
from rlsim.reshard.plan import plan_between
from rlsim.reshard.state import shard

from . import brute
from .layouts import engines, trainer
from .small_models import BIAS, GPT_OSS, MLA, MOE, NORM, checkpoint

WORLD = 6
CASES: list[tuple[ModelSpec, TrainLayout, EngineLayout]] = [
    (NORM, trainer(NORM, tp=2, gpus=2), engines(NORM, count=2, attn_tp=2)),
    (BIAS, trainer(BIAS, tp=4), engines(BIAS, attn_tp=2)),  # groups cut by TP, tied
    (MOE, trainer(MOE, tp=2, ep=4, etp=1, gpus=4), engines(MOE, count=2)),
    (MLA, trainer(MLA, "fsdp2", gpus=3), engines(MLA, attn_dp=3, moe_ep=3)),
    (NORM, trainer(NORM, "fsdp2", gpus=3), engines(NORM, count=3)),  # an engine between two others
    (GPT_OSS, trainer(GPT_OSS, tp=2, etp=2), engines(GPT_OSS, count=2, attn_tp=2, moe_ep=2)),
]
DTYPES = (torch.bfloat16, torch.float32, torch.int32, torch.float8_e4m3fn, torch.bfloat16, torch.bfloat16)


def work(rank: int, folder: str) -> None:
    """One process: all cases, all strategies; writes what went wrong."""
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{folder}/store", rank=rank, world_size=WORLD)
    wrong: list[str] = []
    for number, (m, source, target) in enumerate(CASES):
        try:
            wrong += _case(rank, m, source, target, DTYPES[number])
        except Exception:
            wrong.append(traceback.format_exc())
            break
    Path(folder, f"{rank}.json").write_text(json.dumps(wrong))
    dist.destroy_process_group()


def _case(rank: int, m: ModelSpec, source: TrainLayout, target: EngineLayout, dtype: torch.dtype) -> list[str]:
    hf = {name: (x % 251).to(dtype) for name, x in checkpoint(m).items()}
    plan = plan_between(m, source, target)
    assert source.gpus + target.gpus == WORLD
    held = shard(hf, m, source, rank) if rank < source.gpus else {}
    wrong = []
    for strategy in STRATEGIES:
        found = transfer(plan, held, strategy, bucket=2048)
        wanted = (
            brute.engine(hf, m, target, (rank - source.gpus) % target.gpus_per_engine) if rank >= source.gpus else {}
        )
        if found.keys() != wanted.keys():
            wrong.append(f"{m.name} {strategy}: names {sorted(found.keys() ^ wanted.keys())}")
        wrong += [
            f"{m.name} {strategy}: {name}"
            for name, x in wanted.items()
            if name in found and not torch.equal(found[name].view(torch.uint8), x.contiguous().view(torch.uint8))
        ]
    return wrong
