"""Grids, divisibility and exact slices: shard boundaries after the frameworks' own rules, worked out by hand."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from rlsim import catalog
from rlsim.errors import UserError
from rlsim.layout import (
    engine_layout,
    engine_rank_bytes,
    engine_stage_sizes,
    sync_bytes,
    train_layout,
    train_params,
    train_rank_bytes,
    trainer_dp_width,
)
from rlsim.model import ModelSpec, parameters
from rlsim.shards import (
    WeightClass,
    common_layers,
    engine_box,
    engine_grid,
    layer_count,
    train_box,
    train_grid,
    weight_classes,
)
from rlsim.slices import owners
from tests.layout_cases import case

QWEN7, QWEN30, LLAMA70, DSV3 = (
    "Qwen/Qwen2.5-7B",
    "Qwen/Qwen3-30B-A3B",
    "meta-llama/Llama-3.1-70B",
    "deepseek-ai/DeepSeek-V3",
)
BIG = {"gpus": 512, "tp": 4, "pp": 16, "pp_layers": {"first": 3, "last": 2}, "ep": 32, "etp": 1}
WIDE = {"gpus": 512, "engine": "sglang", "attn_tp": 1, "attn_dp": 32, "moe_ep": 32, "dtype": "fp8"}


def layouts(model: str, trainer: dict[str, Any], rollout: dict[str, Any] | None = None, **blocks: Any):
    scenario = case(model, trainer, rollout, **blocks)
    spec = catalog.model(model)
    return spec, train_layout(scenario, spec), engine_layout(scenario, scenario.rollout[0], spec)


def weight_class(spec: ModelSpec, name: str) -> WeightClass:
    return next(cls for cls in weight_classes(spec) if name in cls.name)


# Grids ----------


def test_megatron_identities():
    _, train, engine = layouts(DSV3, BIG, WIDE, placement="disaggregated")
    # DP = 512/(4·16·1) = 8; EDP = 512/(1·32·16) = 1
    assert (train.dp, train.edp, trainer_dp_width(train)) == (8, 1, 8)
    assert train.layers_per_stage == (3, *(4,) * 14, 2)
    assert (engine.engines, engine.gpus_per_engine, engine.nodes_per_engine) == (16, 32, 4)


def test_interleaved_stages():
    # L = 48, P = 4, two chunks: stage 1 holds 6-11 and 30-35
    _, train, _ = layouts(QWEN30, {"gpus": 8, "pp": 4, "vpp": 2})
    assert train.stages[1] == (6, 7, 8, 9, 10, 11, 30, 31, 32, 33, 34, 35)


def test_engine_stage_sizes():
    assert engine_stage_sizes(61, 4) == (15, 15, 16, 15)
    assert engine_stage_sizes(10, 4) == (2, 3, 3, 2)
    assert engine_stage_sizes(7, 4) == (2, 2, 2, 1)


def test_dense_and_expert_coordinates_of_one_rank():
    # W = 32, T4·CP2·DP2·P2 and ETP1·EP8·EDP2·P2: dense (1, 1, 1, 1) = expert (ep 5, edp 1, pp 1) = rank 29
    _, train, _ = layouts(QWEN30, {"gpus": 32, "tp": 4, "cp": 2, "pp": 2, "ep": 8, "etp": 1})
    grid = train_grid(train)
    assert [int(axis[29]) for axis in (grid.tp, grid.ep, grid.stage)] == [1, 5, 1]


def test_hsdp_replicas():
    _, train, _ = layouts(QWEN7, {"gpus": 32, "backend": "fsdp2", "fsdp_size": 8, "ulysses": 4})
    assert (train.dp, train.shard, train.replicas, train.dense_replicas) == (8, 8, 4, 32)


# Checks ----------


@pytest.mark.parametrize(
    ("model", "trainer", "key", "fix"),
    [
        (QWEN7, {"gpus": 64, "tp": 8}, "trainer.tp", "4"),
        (QWEN7, {"gpus": 64, "pp": 8}, "trainer.pp", "7"),
        (DSV3, {"gpus": 512, "pp": 16, "ep": 32, "etp": 1}, "trainer.pp", "{first: 3, last: 2}"),
        (QWEN7, {"gpus": 64, "backend": "fsdp2", "ulysses": 8}, "trainer.ulysses", "4"),
        (QWEN7, {"gpus": 64, "ep": 2}, "trainer.ep", "1"),
        (QWEN30, {"gpus": 48, "ep": 24}, "trainer.ep", "16"),
        (QWEN30, {"gpus": 64, "tp": 4, "ep": 8, "sequence_parallel": False}, "trainer.sequence_parallel", "true"),
        (QWEN30, {"gpus": 64, "pp": 4, "vpp": 5}, "trainer.vpp", "4"),
        (QWEN30, {"gpus": 64, "pp": 4, "pp_layers": [10, 12, 12, 12]}, "trainer.pp_layers", "48"),
        (QWEN7, {"gpus": 64, "backend": "fsdp2", "ulysses": 1, "vpp": 2}, "trainer.vpp", "1"),
        (QWEN7, {"gpus": 64, "backend": "zero", "cp": 2}, "trainer.cp", "ulysses"),
    ],
)
def test_trainer_mistakes_name_the_key_and_what_would_be_right(model, trainer, key, fix):
    with pytest.raises(UserError) as error:
        layouts(model, trainer)
    assert error.value.key == key
    assert fix in (error.value.fix or "")


@pytest.mark.parametrize(
    ("model", "rollout", "key", "fix"),
    [
        (QWEN7, {"gpus": 64, "tp": 8}, "rollout.attn_tp", "4"),
        (QWEN7, {"gpus": 64, "attn_dp": 2, "moe_tp": 2}, "rollout.attn_dp", "1"),
        (QWEN30, {"gpus": 64, "tp": 8, "dtype": "fp8"}, "rollout.moe_tp", "6"),
        (QWEN30, {"gpus": 64, "engine": "sglang", "attn_dp": 64, "moe_ep": 64, "pp": 1}, None, None),
        (DSV3, {"gpus": 48, "engine": "sglang", "attn_dp": 24, "moe_ep": 24}, "rollout.moe_ep", "32"),
    ],
)
def test_engine_mistakes_name_the_key_and_what_would_be_right(model, rollout, key, fix):
    scenario = case(model, {"gpus": rollout["gpus"]}, rollout)
    spec = catalog.model(model)
    if key is None:
        assert engine_layout(scenario, scenario.rollout[0], spec).engines == 1
        return
    with pytest.raises(UserError) as error:
        engine_layout(scenario, scenario.rollout[0], spec)
    assert error.value.key == key
    assert fix in (error.value.fix or "")


# Slices ----------


@pytest.mark.parametrize("name", catalog.models())
def test_classes_are_the_whole_model(name):
    spec = catalog.model(name)
    every = (tuple(range(spec.num_layers)),)
    assert sum(cls.size * int(layer_count(cls, every, spec)[0]) for cls in weight_classes(spec)) == parameters(spec)


def test_megatron_query_heads_interleave_with_fewer_groups_than_ranks():
    # Qwen2.5-3B, 16 query heads in 2 groups, T 4: rank 2 has heads 8-12, rank 3 heads 13-15 with k1 and v1
    spec, train, engine = layouts("Qwen/Qwen2.5-3B", {"gpus": 4, "tp": 4}, {"gpus": 4, "tp": 4})
    q, k = weight_class(spec, "q_proj.weight"), weight_class(spec, "k_proj.weight")
    box = train_box(q, train, train_grid(train), spec.attention)
    assert (int(box.row_lo[2]), int(box.row_hi[2]), int(box.row_hi[3])) == (8 * 128, 13 * 128, 16 * 128)
    keys = train_box(k, train, train_grid(train), spec.attention)
    assert keys.volume.tolist() == [0, 128 * 2048, 0, 128 * 2048]
    # the engine's ranks 2 and 3 both copy k1
    held = engine_box(k, engine, engine_grid(engine), spec.attention)
    assert held.row_lo.tolist() == [0, 0, 128, 128]


def test_vocabulary_padding():
    # 151936: Megatron T 8 pads to 152576 (19072 a rank), the engine to a multiple of 64 (18992 a rank)
    spec, train, engine = layouts("Qwen/Qwen3-8B", {"gpus": 8, "tp": 8}, {"gpus": 8, "tp": 8})
    embed = weight_class(spec, "embed_tokens")
    box = train_box(embed, train, train_grid(train), spec.attention)
    assert (int(box.row_hi[0]), int(box.row_lo[7]), int(box.row_hi[7])) == (19072, 7 * 19072, 151936)
    assert int(engine_box(embed, engine, engine_grid(engine), spec.attention).row_hi[0]) == 18992


def test_uneven_expert_deal_and_fsdp_chunks():
    spec, _, engine = layouts(QWEN30, {"gpus": 48}, {"gpus": 48, "attn_tp": 1, "attn_dp": 24, "moe_ep": 24})
    gate = weight_class(spec, "experts.*.gate_proj")
    box = engine_box(gate, engine, engine_grid(engine, engines=1), spec.attention)
    # 128 experts over 24 ranks: 8 ranks with 6, 16 with 5
    assert (box.expert_hi - box.expert_lo).tolist() == [6] * 8 + [5] * 16
    # FSDP2 cuts dim 0 in chunks of ceil(3584/24) = 150 rows: the last rank has 134
    spec, train, _ = layouts(QWEN7, {"gpus": 24, "backend": "fsdp2"})
    out = train_box(weight_class(spec, "o_proj"), train, train_grid(train), spec.attention)
    assert int((out.row_hi - out.row_lo)[0]) == 150
    assert int((out.row_hi - out.row_lo)[-1]) == 134


# Bytes ----------


def test_70b_at_tp8_is_17_6_gb_per_gpu():
    spec, train, engine = layouts(LLAMA70, {"gpus": 64, "tp": 8}, {"gpus": 64, "tp": 8})
    assert engine_rank_bytes(spec, engine)[0] == pytest.approx(17.64e9, rel=1e-3)
    sync = sync_bytes(spec, train, engine)
    assert sync.total_unique == pytest.approx(141.1e9, rel=1e-3)
    assert sync.per_engine_gpu_max == pytest.approx(17.64e9, rel=1e-3)
    assert sync.source_owners == 8
    # replicas share the work: 17.6 GB over 8 copies
    assert sync.source_send_max == pytest.approx(17.64e9 / 8, rel=1e-3)


def test_70b_at_tp16_copies_kv_heads():
    spec, _, tp8 = layouts(LLAMA70, {"gpus": 64, "tp": 8}, {"gpus": 64, "tp": 8})
    _, _, tp16 = layouts(LLAMA70, {"gpus": 64, "tp": 8}, {"gpus": 64, "tp": 16})
    kv = 80 * 2 * 1024 * 8192 * 2.0  # k and v of all layers, bf16
    norms = (160 + 1) * 8192 * 2.0
    expected = (engine_rank_bytes(spec, tp8)[0] - norms) / 2 + norms + kv / 16
    assert engine_rank_bytes(spec, tp16)[0] == pytest.approx(expected, rel=1e-6)


def test_parameters_of_all_ranks_add_up():
    spec, train, _ = layouts(DSV3, BIG, WIDE, placement="disaggregated")
    experts = sum(train_params(spec, train, stage).expert for stage in range(16)) * 32
    assert experts == 58 * 256 * 3 * 7168 * 2048
    # stage 1: four MoE layers with 8 of 256 experts each
    assert train_params(spec, train, 1).expert == 4 * 8 * 3 * 7168 * 2048
    assert owners(train) == 512


def test_fsdp_shards_weights_evenly():
    spec, train, _ = layouts(LLAMA70, {"gpus": 64, "backend": "fsdp2"})
    assert train_rank_bytes(spec, train, 4.0) == pytest.approx(4 * parameters(spec) / 64, rel=0.01)


def test_fp8_weights_have_scales_and_leave_the_embedding_in_bf16():
    spec, _, engine = layouts(LLAMA70, {"gpus": 64, "tp": 8}, {"gpus": 64, "tp": 4, "dtype": "fp8"})
    rest = 2 * 128256 * 8192 + 161 * 8192
    matrices = parameters(spec) - rest
    norms = 161 * 8192 * 2.0
    expected = matrices * (1 + 4 / 128**2) / 4 + (rest * 2.0 - norms) / 4 + norms
    assert engine_rank_bytes(spec, engine, 1.0)[0] == pytest.approx(expected, rel=1e-6)


def test_identical_layouts_have_nothing_to_move():
    spec, train, engine = layouts("Qwen/Qwen2.5-1.5B", {"gpus": 8, "tp": 1}, {"gpus": 8, "tp": 1})
    sync = sync_bytes(spec, train, engine, colocated=True)
    assert (sync.missing_gpu_max, sync.missing_node_max) == (0, 0)
    apart = sync_bytes(spec, train, engine)
    assert apart.missing_gpu_max == apart.per_engine_gpu_max == apart.total_unique


TRAINERS = [
    (QWEN30, {"gpus": 16, "tp": 4, "pp": 2, "ep": 4, "etp": 1}),
    (QWEN30, {"gpus": 16, "tp": 2, "pp": 4, "vpp": 2, "ep": 2}),
    (QWEN30, {"gpus": 16, "backend": "fsdp2", "fsdp_size": 8, "ep": 4}),
    ("Qwen/Qwen2.5-3B", {"gpus": 16, "tp": 8, "pp": 2}),
    ("Qwen/Qwen2.5-3B", {"gpus": 16, "backend": "zero", "zero_stage": 3}),
    ("openai/gpt-oss-20b", {"gpus": 16, "tp": 2, "pp": 2, "ep": 4}),
]
ENGINES = [
    {"gpus": 16, "tp": 4},
    {"gpus": 16, "pp": 2, "attn_tp": 8, "moe_tp": 8},
    {"gpus": 16, "engine": "sglang", "attn_tp": 2, "attn_dp": 4, "moe_tp": 2, "moe_ep": 4},
]


CASES = [
    (model, trainer, rollout)
    for rollout in ENGINES
    for model, trainer in TRAINERS
    if rollout.get("attn_dp", 1) == 1 or catalog.model(model).experts is not None  # attention-DP spreads experts
]


@pytest.mark.parametrize(("model", "trainer", "rollout"), CASES)
def test_slices_cover_the_model_and_overlap_as_counted(model, trainer, rollout):
    """Every engine holds the whole model; what a GPU already has agrees with a count element by element, on one
    matrix of each class thinned to a grid of rows and columns.
    """
    spec = catalog.model(model)
    if spec.architecture == "GptOssForCausalLM" and rollout.get("moe_tp", 1) > 2:
        rollout = {"gpus": 16, "tp": 8, "ep": 4}
    _, train, engine = layouts(model, trainer, rollout)
    sync = sync_bytes(spec, train, engine, colocated=True)
    everything, held = 0, 0
    missing = np.zeros(16)
    src_grid, dst_grid = train_grid(train), engine_grid(engine)
    for cls in weight_classes(spec):
        src = train_box(cls, train, src_grid, spec.attention)
        dst = engine_box(cls, engine, dst_grid, spec.attention)
        common = common_layers(cls, train.stages, engine.stages, spec)
        needed = layer_count(cls, engine.stages, spec)
        first = _elements(cls, dst, range(engine.gpus_per_engine), dst_grid.stage, needed)
        everything += first
        held += cls.size * int(needed.sum())
        for gpu in range(16):
            a = [set(range(int(src[i][gpu]), int(src[i + 1][gpu]))) for i in (0, 2, 4)]
            b = [set(range(int(dst[i][gpu]), int(dst[i + 1][gpu]))) for i in (0, 2, 4)]
            shared = np.prod([len(x & y) for x, y in zip(a, b, strict=True)])
            want = np.prod([len(y) for y in b]) * needed[dst_grid.stage[gpu]]
            missing[gpu] += (want - shared * common[src_grid.stage[gpu], dst_grid.stage[gpu]]) * 2
    assert everything == held
    assert sync.missing_gpu_max == pytest.approx(missing.max(), rel=1e-12)
    assert sync.missing_gpu_max <= sync.per_engine_gpu_max
    assert sync.missing_node_max <= sync.per_engine_node_max + 1e-6
    assert sync.per_engine_total >= sync.total_unique


def _elements(cls, box, ranks, stage, needed) -> int:
    """Elements of distinct slices on these ranks, in all layers."""
    distinct = {(int(stage[r]), *(int(bound[r]) for bound in box)) for r in ranks}
    return sum((e1 - e0) * (r1 - r0) * (c1 - c0) * int(needed[s]) for s, e0, e1, r0, r1, c0, c1 in distinct)
