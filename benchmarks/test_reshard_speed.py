"""How long a plan takes: DeepSeek-V3 from TP4·PP16·EP32 on 512 ranks to 32 engines of TP16/EP16 (goal 5 s, 1 GB)."""

from __future__ import annotations

import resource

from pytest_benchmark.fixture import BenchmarkFixture

from rlsim import catalog
from rlsim.grids import EngineLayout, TrainLayout, consecutive
from rlsim.reshard.plan import Plan, plan_between
from rlsim.reshard.verify import verify

STAGES = consecutive((3, *(4,) * 14, 2))
TRAINER = TrainLayout(
    backend="megatron", gpus=512, gpus_per_node=8, tp=4, pp=16, vpp=1, cp=1, ulysses=1, ep=32, etp=1, dp=8, edp=1,
    shard=8, zero_stage=1, sequence_parallel=True, stages=STAGES,
)  # fmt: skip
ENGINES = EngineLayout(
    engines=32, gpus_per_engine=16, pp=1, attn_tp=16, attn_dp=1, moe_tp=1, moe_ep=16, stages=consecutive((61,)),
    gpus_per_node=8,
)  # fmt: skip


def plan() -> Plan:
    return plan_between(catalog.model("deepseek-ai/DeepSeek-V3"), TRAINER, ENGINES)


def test_bytes_of_the_whole_plan(benchmark: BenchmarkFixture) -> None:
    benchmark(lambda: plan().bytes_total)
    benchmark.extra_info["peak_mb"] = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e3


def test_every_run_of_the_whole_plan(benchmark: BenchmarkFixture) -> None:
    runs = benchmark(lambda: sum(len(block.runs.rows) for block in plan().blocks()))
    assert runs == 1_386_176
    benchmark.extra_info["peak_mb"] = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e3


def test_proof(benchmark: BenchmarkFixture) -> None:
    assert benchmark(lambda: verify(plan())).right
