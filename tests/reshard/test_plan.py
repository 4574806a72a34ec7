"""Plans against brute force, byte for byte, and against the golden values of the layout rules."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from rlsim import catalog
from rlsim.architecture import ModelSpec
from rlsim.grids import EngineLayout, TrainLayout
from rlsim.reshard.engines import engine_side
from rlsim.reshard.execute import execute
from rlsim.reshard.plan import Plan, classes_of, plan_between
from rlsim.reshard.state import shard, unshard
from rlsim.reshard.trainers import trainer_side
from rlsim.reshard.verify import verify
from rlsim.slices import sync_bytes

from . import brute, small_models
from .layouts import engines, trainer
from .small_models import BIAS, DENSE, GPT_OSS, MIXTRAL, MLA, MOE, NORM, checkpoint

State = Mapping[str, torch.Tensor]


def same(found: State, wanted: State) -> None:
    assert found.keys() == wanted.keys()
    for name, x in wanted.items():
        assert found[name].shape == x.shape, name
        assert torch.equal(found[name], x), name


def brute_trainer(hf: dict[str, torch.Tensor], m: ModelSpec, layout: TrainLayout, rank: int) -> State:
    if layout.backend == "megatron":
        return brute.megatron(hf, m, layout, rank)
    return (brute.fsdp2 if layout.backend == "fsdp2" else brute.zero3)(hf, layout, rank)


CASES = [
    (DENSE, trainer(DENSE, tp=2), engines(DENSE, attn_tp=4)),
    (DENSE, trainer(DENSE, tp=2, pp=2, gpus=8), engines(DENSE, count=2, attn_tp=2, pp=2)),
    (DENSE, trainer(DENSE, tp=8), engines(DENSE, attn_tp=8)),  # groups cut by TP on both sides
    (BIAS, trainer(BIAS, tp=4), engines(BIAS, attn_tp=4)),
    (BIAS, trainer(BIAS, tp=2, pp=2), engines(BIAS, attn_tp=2, pp=2)),  # tied, with pipeline stages
    (NORM, trainer(NORM, tp=2, pp=2, vpp=2), engines(NORM, attn_tp=1)),
    (NORM, trainer(NORM, "fsdp2", gpus=7), engines(NORM, attn_tp=8)),
    (NORM, trainer(NORM, "zero", gpus=5), engines(NORM, attn_tp=2)),
    (MOE, trainer(MOE, tp=2, ep=4, etp=1, gpus=8), engines(MOE, attn_tp=2, attn_dp=2, moe_ep=4)),
    (MOE, trainer(MOE, tp=2, pp=2, ep=2, etp=2), engines(MOE, attn_tp=4)),
    (MOE, trainer(MOE, "fsdp2", gpus=4), engines(MOE, attn_tp=4, moe_ep=2)),
    (MIXTRAL, trainer(MIXTRAL, tp=1, ep=8, etp=1), engines(MIXTRAL, attn_tp=2, moe_ep=2)),
    (MIXTRAL, trainer(MIXTRAL, "zero", gpus=3), engines(MIXTRAL, attn_dp=3, moe_ep=3)),  # 8 experts over 3
    (MLA, trainer(MLA, tp=4, ep=8, etp=1, gpus=8), engines(MLA, attn_dp=8, moe_ep=8, engine="sglang")),
    (MLA, trainer(MLA, tp=2, ep=2, etp=1, gpus=4), engines(MLA, attn_tp=4, moe_ep=4)),
    (GPT_OSS, trainer(GPT_OSS, tp=2, ep=2, etp=1), engines(GPT_OSS, attn_tp=2, moe_ep=2)),
    (GPT_OSS, trainer(GPT_OSS, tp=2, etp=2), engines(GPT_OSS, attn_tp=4)),
    (GPT_OSS, trainer(GPT_OSS, "fsdp2", gpus=3), engines(GPT_OSS, attn_tp=2)),
]
IDS = [f"{m.name}-{a.backend}-{i}" for i, (m, a, _) in enumerate(CASES)]


@pytest.mark.parametrize(("m", "source", "target"), CASES, ids=IDS)
def test_every_byte_is_brute_forces(m: ModelSpec, source: TrainLayout, target: EngineLayout) -> None:
    hf = checkpoint(m)
    plan = plan_between(m, source, target)
    assert verify(plan).right
    held = [brute_trainer(hf, m, source, rank) for rank in range(source.gpus)]
    for rank, state in enumerate(execute(plan, held)):
        same(state, brute.engine(hf, m, target, rank % target.gpus_per_engine))


@pytest.mark.parametrize(("m", "source", "target"), CASES, ids=IDS)
def test_round_trip_is_the_identity(m: ModelSpec, source: TrainLayout, target: EngineLayout) -> None:
    hf = checkpoint(m)
    for layout, ranks in ((source, source.gpus), (target, target.gpus_per_engine)):
        same(unshard([shard(hf, m, layout, rank) for rank in range(ranks)], m, layout), hf)


def test_every_architecture_is_proved_at_full_size() -> None:
    """The shapes of the real thing; TP, PP and EP that its heads and experts allow."""
    for spec in catalog.models():
        m = catalog.model(spec) if isinstance(spec, str) else spec
        experts = m.experts is not None
        tp = 2 if m.attention.heads % 4 else 4
        source = trainer(m, tp=2, ep=4 if experts else 1, etp=1, gpus=8)
        assert verify(plan_between(m, source, engines(m, attn_tp=tp, moe_ep=tp if experts else 1))).right, m.name


@st.composite
def cases(draw: st.DrawFn) -> tuple[ModelSpec, TrainLayout, EngineLayout]:
    """Head and group counts, TP below and above the KV heads, uneven vocabulary, experts and stages."""
    kv, per = draw(st.sampled_from([(1, 4), (2, 4), (4, 2), (8, 1), (4, 4)]))
    d = draw(st.sampled_from([2, 4]))
    layers = draw(st.integers(2, 4))
    moe = draw(st.booleans())
    m = small_models.model(
        "random", small_models.gqa(kv * per, kv, d, qkv_bias=draw(st.booleans())), vocab=draw(st.integers(3, 400)),
        hidden=draw(st.sampled_from([8, 12])), intermediate=16, tied=draw(st.booleans()),
        layers=tuple(small_models.Layer(moe=moe and i > 0) for i in range(layers)),
        experts=small_models.Experts(draw(st.sampled_from([4, 6, 7])), 2, 32) if moe else None,
    )  # fmt: skip
    backend = draw(st.sampled_from(["megatron", "megatron", "fsdp2", "zero"]))
    tp = draw(st.sampled_from([1, 2, 4])) if backend == "megatron" else 1
    pp = draw(st.sampled_from([p for p in (1, 2) if layers % p == 0])) if backend == "megatron" else 1
    ep = 2 if moe and backend == "megatron" and m.experts and m.experts.count % 2 == 0 and draw(st.booleans()) else 1
    gpus = pp * max(tp, ep) * draw(st.sampled_from([1, 2])) if backend == "megatron" else draw(st.integers(1, 7))
    source = trainer(m, backend, gpus, tp, pp, ep=ep, etp=1)
    attn_tp = draw(st.sampled_from([n for n in (1, 2, 4, 8) if kv * per % n == 0 and (kv % n == 0 or n % kv == 0)]))
    attn_dp = draw(st.sampled_from([1, 2, 3])) if moe else 1
    wide = attn_tp * attn_dp
    moe_ep = draw(st.sampled_from([e for e in (1, 2, 3, 4) if wide % e == 0 and 32 % (wide // e) == 0] or [wide]))
    if not moe or 32 % (wide // moe_ep):
        moe_ep, attn_dp = 1, 1
    engine = engines(m, draw(st.integers(1, 2)), attn_tp, attn_dp, draw(st.sampled_from([1, 2])), moe_ep)
    return m, source, engine


@settings(max_examples=40, deadline=None)
@given(cases())
def test_random_layouts(case: tuple[ModelSpec, TrainLayout, EngineLayout]) -> None:
    m, source, target = case
    hf = checkpoint(m)
    plan = plan_between(m, source, target, colocated=target.gpus <= source.gpus)
    assert verify(plan).faults == ()
    held = [brute_trainer(hf, m, source, rank) for rank in range(source.gpus)]
    for rank, state in enumerate(execute(plan, held)):
        same(state, brute.engine(hf, m, target, rank % target.gpus_per_engine))


# Golden values ----------


def rows_of(plan: Plan, rank: int, tensor: str) -> list[tuple[int, int, int, int]]:
    """(source TP rank, source row, destination row, rows) of one destination tensor of layer 0."""
    (block,) = plan.blocks([0], [0])
    r = block.runs
    found = []
    for k in np.flatnonzero(r.dst_rank == rank).tolist():
        source, target = block.sources[r.src_tensor[k]], block.targets[r.dst_tensor[k]]
        if target.name.endswith(tensor):
            at = (int(r.src_rank[k]), int(r.src_at[k]) // source.cols, int(r.dst_at[k]) // target.cols, int(r.rows[k]))
            found.append(at)
    return found


@pytest.mark.parametrize(
    ("name", "train_tp", "infer_tp", "rank", "tensor", "wanted"),
    [
        ("Qwen/Qwen3-30B-A3B", 2, 8, 5, "qkv_proj.weight", [(1, 512, 0, 768)]),
        ("Qwen/Qwen3-30B-A3B", 2, 4, 3, "qkv_proj.weight", [(1, 1280, 0, 1280)]),
        ("Qwen/Qwen2.5-7B", 4, 2, 1, "qkv_proj.weight",
         [(2, 0, 0, 896), (3, 0, 896, 896), (2, 896, 1792, 128), (3, 896, 1920, 128), (2, 1024, 2048, 128),
          (3, 1024, 2176, 128)]),
        ("Qwen/Qwen2.5-3B", 4, 4, 3, "qkv_proj.weight", [(2, 512, 0, 128), (3, 0, 128, 640)]),
        ("Qwen/Qwen2.5-7B", 4, 2, 1, "gate_up_proj.weight",
         [(2, 0, 0, 4736), (3, 0, 4736, 4736), (2, 4736, 9472, 4736), (3, 4736, 14208, 4736)]),
        ("Qwen/Qwen2.5-7B", 2, 4, 3, "gate_up_proj.weight", [(1, 4736, 0, 4736), (1, 14208, 4736, 4736)]),
    ],
)  # fmt: skip
def test_golden_runs(
    name: str, train_tp: int, infer_tp: int, rank: int, tensor: str, wanted: list[tuple[int, int, int, int]]
) -> None:
    m = catalog.model(name)
    plan = plan_between(m, trainer(m, tp=train_tp), engines(m, attn_tp=infer_tp))
    assert rows_of(plan, rank, tensor) == wanted


def test_golden_vocabulary() -> None:
    """151,936 rows: Megatron TP=2 pads to 152,064 (76,032 a rank), engines at TP=8 hold 18,992: they never line up."""
    m = catalog.model("Qwen/Qwen3-30B-A3B")
    (block,) = plan_between(m, trainer(m, tp=2), engines(m, attn_tp=8)).blocks([-1])
    sizes = {t.name: t.rows for t in (*block.sources, *block.targets)}
    assert sizes["embedding.word_embeddings.weight"] == 76032
    assert sizes["model.embed_tokens.weight"] == 18992
    (block,) = plan_between(m, trainer(m, tp=8), engines(m, attn_tp=1)).blocks([-1])
    assert {t.name: t.rows for t in block.sources}["embedding.word_embeddings.weight"] == 19072


def test_fsdp2_and_zero3_chunks() -> None:
    """FSDP2: D0 = 10 over 4 is 3, 3, 3, 1; ZeRO-3: 10 elements over 4 likewise, 7 over 8 is 1 each and one empty."""
    m = small_models.model("rows", small_models.gqa(2, 2, 2), vocab=10, hidden=4)
    hf = checkpoint(m)
    layout = trainer(m, "fsdp2", gpus=4)
    assert [len(shard(hf, m, layout, r)["model.embed_tokens.weight"]) for r in range(4)] == [3, 3, 3, 1]
    norm = small_models.model("norm", small_models.gqa(2, 2, 2), hidden=7)
    held = [shard(checkpoint(norm), norm, trainer(norm, "zero", gpus=8), r) for r in range(8)]
    assert ["model.norm.weight" in state for state in held] == [True] * 7 + [False]


def test_golden_experts_and_ranks() -> None:
    """10 experts over 4 ranks: 3, 3, 2, 2; dense (tp 1, dp 1, pp 1) of TP4·DP4·PP2 is rank 1 + 4·(1 + 4·1) = 21."""
    m = small_models.model(
        "ten", small_models.gqa(8, 4, 4), layers=(small_models.Layer(moe=True),) * 2, intermediate=64,
        experts=small_models.Experts(10, 2, 16),
    )  # fmt: skip
    cls = next(c for c in classes_of(m, 0) if c.name.endswith("gate_proj.weight"))
    (side,) = engine_side(cls, 0, m, engines(m, attn_tp=4, moe_ep=4))
    experts = [sorted(side.pieces.expert[side.pieces.owner == r].tolist()) for r in range(4)]
    assert [(e[0], len(e)) for e in experts] == [(0, 3), (3, 3), (6, 2), (8, 2)]
    o_proj = next(c for c in classes_of(m, 1) if c.name == "self_attn.o_proj.weight")
    ranks = trainer_side(o_proj, 1, m, trainer(m, tp=4, pp=2, ep=1, etp=1, gpus=32)).ranks
    assert ranks[1].tolist() == [17, 21, 25, 29]


def test_golden_virtual_stages() -> None:
    """L = 48, P = 4, V = 2: stage 1 holds layers 6-11 and 30-35; layer 32 is number 2 of its second chunk."""
    m = small_models.model("deep", small_models.gqa(2, 2, 2), layers=(small_models.Layer(),) * 48)
    layout = trainer(m, pp=4, vpp=2)
    assert layout.stages[1] == (*range(6, 12), *range(30, 36))
    cls = classes_of(m, 32)[0]
    assert trainer_side(cls, 32, m, layout).local[0].name.startswith("model1.decoder.layers.2.")


def test_tensor_parallel_and_fsdp2_together() -> None:
    """TP 2 x FSDP2 over 3: the tensor-parallel slice first, then its rows in chunks of ceil(rows/3)."""
    m, hf = NORM, checkpoint(NORM)
    source, target = trainer(m, "fsdp2", gpus=6, tp=2), engines(m, attn_tp=4)
    held = []
    for rank in range(6):
        t, s = rank % 2, rank // 2
        state = {}
        for name, x in hf.items():
            if x.dim() == 2 and ("o_proj" in name or "down_proj" in name):
                x = x.chunk(2, dim=1)[t]
            elif x.dim() == 2:
                x = x.chunk(2, dim=0)[t]
            chunks = x.chunk(3, dim=0)  # of 4 rows: 2, 2 and none
            if s < len(chunks):
                state[name] = chunks[s].contiguous()
        held.append(state)
        same(shard(hf, m, source, rank), state)
    for rank, state in enumerate(execute(plan_between(m, source, target), held)):
        same(state, brute.engine(hf, m, target, rank))


# Bytes and replicas ----------


def test_bytes_agree_with_the_slices_of_the_layouts() -> None:
    """70B in bf16, TP 8: 17.6 GB into each GPU; every engine needs its copy."""
    m = catalog.model("meta-llama/Llama-3.1-70B")
    source, target = trainer(m, tp=4, pp=2, gpus=32), engines(m, count=3, attn_tp=8)
    plan, exact = plan_between(m, source, target), sync_bytes(m, source, target)
    assert plan.bytes_max_in == exact.per_engine_gpu_max == pytest.approx(17.64e9, rel=1e-3)
    assert plan.bytes_total == pytest.approx(3 * exact.per_engine_total, rel=1e-12)
    # everybody gets everything: 8 times what it needs
    assert plan.targets * plan.model_bytes / plan.bytes_total == pytest.approx(8, rel=0.001)


def test_replicas_share_the_sending() -> None:
    """Four data-parallel replicas and eight engines: each replica serves two, so all send the same."""
    m = DENSE
    plan = plan_between(m, trainer(m, tp=2, gpus=8), engines(m, count=8, attn_tp=2))
    out = plan.moved.sum(axis=1).reshape(4, 2)
    assert (out == out[0]).all()


def test_colocated_keeps_what_is_there() -> None:
    """The same layout on the same GPUs moves nothing, as long as groups are whole and the vocabulary lines up."""
    plan = plan_between(DENSE, trainer(DENSE, tp=2, gpus=4), engines(DENSE, count=2, attn_tp=2), colocated=True)
    assert plan.bytes_total == 0.0  # 200 rows padded to 256 on both sides
    (block,) = plan.blocks([0])
    assert (block.runs.src_rank == block.runs.dst_rank).all()


def test_row_parallel_weights_stay_one_run() -> None:
    """o_proj from TP 2 to TP 4: one strided rectangle for each rank, not a run for each of 4,096 rows."""
    m = catalog.model("meta-llama/Llama-3.1-8B")
    (block,) = plan_between(m, trainer(m, tp=2), engines(m, attn_tp=4)).blocks([0])
    names = np.array([t.name for t in block.targets])[block.runs.dst_tensor]
    assert (names == "model.layers.0.self_attn.o_proj.weight").sum() == 4
