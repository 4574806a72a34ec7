"""Layouts of a few GPUs, without a scenario."""

from __future__ import annotations

from rlsim.architecture import ModelSpec
from rlsim.grids import EngineLayout, Stages, TrainLayout, consecutive, engine_stage_sizes


def trainer(m: ModelSpec, backend: str = "megatron", gpus: int = 0, tp: int = 1, pp: int = 1, vpp: int = 1,
            ep: int = 1, etp: int | None = None, shard: int | None = None) -> TrainLayout:  # fmt: skip
    etp = tp if etp is None else etp
    gpus = gpus or pp * max(tp, ep * etp)
    replicas = gpus // (tp * pp)
    return TrainLayout(
        backend=backend, gpus=gpus, gpus_per_node=8, tp=tp, pp=pp, vpp=vpp, cp=1, ulysses=1, ep=ep, etp=etp,
        dp=replicas, edp=gpus // (etp * ep * pp), shard=shard or replicas, zero_stage=1 if backend == "megatron" else 3,
        sequence_parallel=tp > 1, stages=stages(m.num_layers, pp, vpp),
    )  # fmt: skip


def stages(layers: int, pp: int, vpp: int) -> Stages:
    runs = consecutive((layers // (pp * vpp),) * (pp * vpp))
    return tuple(tuple(i for v in range(vpp) for i in runs[v * pp + p]) for p in range(pp))


def engines(m: ModelSpec, count: int = 1, attn_tp: int = 1, attn_dp: int = 1, pp: int = 1, moe_ep: int = 1,
            engine: str = "vllm") -> EngineLayout:  # fmt: skip
    width = attn_tp * attn_dp
    return EngineLayout(
        engines=count, gpus_per_engine=pp * width, pp=pp, attn_tp=attn_tp, attn_dp=attn_dp, moe_tp=width // moe_ep,
        moe_ep=moe_ep, stages=consecutive(engine_stage_sizes(m.num_layers, pp)), gpus_per_node=8, engine=engine,
    )  # fmt: skip
