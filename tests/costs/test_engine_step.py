"""Iterations of an engine, op by op: floors, monotony, agreement with the table package's own composition."""

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from rlsim import catalog
from rlsim.costs import engine_step, surface_table
from rlsim.costs.engine_step import EngineShape
from rlsim.costs.kernels import kernels_for
from rlsim.costs.surface_table import SurfaceTable


def shape(model: str, tp: int = 1, dp: int = 1, ep: int = 1, dtype: str = "bf16", pp: int = 1) -> EngineShape:
    return EngineShape(
        catalog.model(model),
        attn_tp=tp,
        attn_dp=dp,
        pp=pp,
        moe_tp=tp * dp // ep,
        moe_ep=ep,
        dtype=dtype,
        kv_dtype="bf16",
        domain=8,
    )


def table(gpu: str, engine: str, engine_shape: EngineShape, seqs: int = 64) -> SurfaceTable:
    return surface_table.build(kernels_for(catalog.gpu(gpu), engine), engine_shape, seqs, 8192)


def test_seventy_billion_on_eight_gpus_reads_its_weights() -> None:
    # 141.1 GB less the embedding table (2.1 GB), over 8 GPUs at 3.35 TB/s: 5.19 ms
    t = table("h100-sxm", "vllm", shape("meta-llama/Llama-3.1-70B", tp=8))
    assert t.rank.min() > 5.19e-3
    assert t.rank[0, 0] < 2.5 * 5.19e-3


@pytest.mark.parametrize("gpu", ["h100-sxm", "h20"])
def test_monotone_in_batch_and_context(gpu: str) -> None:
    t = table(gpu, "sglang", shape("deepseek-ai/DeepSeek-V3", dp=32, ep=32, dtype="fp8"))
    assert (np.diff(t.rank, axis=0) >= 0).all()
    assert (np.diff(t.rank, axis=1) >= 0).all()
    assert (np.diff(t.joint) >= 0).all()
    assert (np.diff(t.prefill) >= 0).all()
    assert t.prefill[0] == 0


def test_shares_of_provenance_add_up() -> None:
    for gpu in ("h100-sxm", "h800", "h20"):
        t = table(gpu, "vllm", shape("Qwen/Qwen2.5-7B"))
        assert sum(t.provenance.values()) == pytest.approx(1.0)
        assert t.provenance["measured"] > 0 if gpu == "h100-sxm" else t.provenance["measured"] == 0


def test_wide_expert_parallel_decode_is_near_what_is_published() -> None:
    """DeepSeek-V3 on 9 nodes of H100 (EP 72, even experts), 256 sequences a GPU at 2,000 tokens: 22,282 tokens/s a node
    (LMSYS, 2025); 8·256/22,282 = 91.9 ms an iteration. Kernels alone are a lower bound of the time."""
    k = kernels_for(catalog.gpu("h100-sxm"), "sglang")
    s = EngineShape(catalog.model("deepseek-ai/DeepSeek-V3"), 1, 72, 1, 1, 72, "fp8", "bf16", 8, False, "balanced")
    own = engine_step.decode_rank(k, s, np.array([256.0]), np.array([2000.0])).total[0, 0]
    joint = engine_step.decode_joint(k, s, np.array([256.0 * 72])).total[0]
    assert own + joint == pytest.approx(91.9e-3, rel=0.2)


def test_small_moe_layers_take_no_milliseconds_each() -> None:
    """64 tokens a rank, EP 32: expert GEMMs and all-to-all well under 1 ms a layer."""
    k = kernels_for(catalog.gpu("h100-sxm"), "sglang")
    s = shape("deepseek-ai/DeepSeek-V3", dp=32, ep=32, dtype="fp8")
    joint = engine_step.decode_joint(k, s, np.array([64.0 * 32])).total[0]
    assert joint / 58 < 0.7e-3


@pytest.mark.parametrize(("tp", "dp", "ep"), [(1, 16, 8), (2, 8, 8), (4, 4, 8), (4, 4, 4), (1, 16, 16)])
def test_every_expert_parallel_group_takes_in_all_tokens(tp: int, dp: int, ep: int) -> None:
    """1,024 tokens enter an engine of 16 GPUs: each of the 16/ep groups exchanges all of them, 1,024/ep a GPU, however
    attention is cut; the 16/ep GPUs that share an expert gather and scatter 1,024/ep rows of 7,168·2 B.
    """
    k = kernels_for(catalog.gpu("h100-sxm"), "sglang")
    s = shape("deepseek-ai/DeepSeek-V3", tp=tp, dp=dp, ep=ep, dtype="fp8")
    parts = engine_step.decode_joint(k, s, np.array([1024.0])).parts
    moe = s.moe_shape
    assert moe is not None
    assert moe.moe_tp == 16 // ep
    exchange, _ = k.all_to_all_seconds(np.array([1024.0 / ep]), moe, "decode", 8 // moe.moe_tp, 1.0)
    assert parts["all-to-all"][0] == pytest.approx(58 * float(exchange[0]))
    ops = ("all_gather", "reduce_scatter")
    both = sum(float(k.nccl_seconds(op, 1024 / ep * 7168 * 2, moe.moe_tp, 8)[0]) for op in ops)
    assert parts.get("gather and scatter", np.zeros(1))[0] == pytest.approx(58 * both)


def test_experts_work_on_the_prompts_of_all_ranks() -> None:
    """DeepSeek-V3 on 32 attention ranks, EP 32. All ranks with 8,192 tokens: 262,144 rows x 8 experts x 6·7,168·2,048
    FLOP x 58 layers / 32 GPUs / 1,979 TFLOP/s = 0.17 s at the peak. One rank alone: 1/32 of it, 5.3 ms, less than the
    58 x 8 experts x 3·7,168·2,048 B = 20.4 GB that a GPU reads, 6.1 ms. Its tokens leave and come back at its own pace.
    """
    k = kernels_for(catalog.gpu("h100-sxm"), "sglang")
    s = shape("deepseek-ai/DeepSeek-V3", dp=32, ep=32, dtype="fp8")
    alone, full = engine_step.prefill_joint(k, s, np.array([8192.0, 32 * 8192.0])).total
    assert full > 0.17
    assert 6.1e-3 < alone < full / 8
    rank = engine_step.prefill_chunk(k, s, np.array([8192.0])).parts
    assert "experts" not in rank
    # top-8 over 4 nodes: at least the rows that leave once and come back in bf16 over a 50 GB/s NIC, 58 layers
    assert rank["all-to-all"][0] > 58 * 8192 * 7168 * (1 + 2) / 50e9


def test_plain_engines_have_no_joint_prefill() -> None:
    k = kernels_for(catalog.gpu("h100-sxm"), "vllm")
    s = shape("Qwen/Qwen3-30B-A3B", tp=2, ep=2)
    assert engine_step.prefill_joint(k, s, np.array([512.0, 8192.0])).total.tolist() == [0.0, 0.0]
    assert "experts" in engine_step.prefill_chunk(k, s, np.array([512.0])).parts


def test_a_prompt_alone_reads_the_head_too() -> None:
    """Qwen2.5-7B: 152,064·3,584·2 B = 1.090 GB of head at 3.35 TB/s: 0.325 ms, in `base` and not in the chunk."""
    k, s = kernels_for(catalog.gpu("h100-sxm"), "vllm"), shape("Qwen/Qwen2.5-7B")
    head = engine_step.prefill_head(k, s)
    assert 0.325e-3 < head < 1.5 * 0.325e-3
    t = table("h100-sxm", "vllm", s)
    assert t.base == pytest.approx(engine_step.prefill_chunk(k, s, np.ones(1)).total[0] + head)
    assert t.prefill[0] == 0


def test_a_head_over_all_attention_ranks_works_on_the_whole_batch() -> None:
    """DeepSeek-V3, 8 attention ranks in one node, 64 sequences each. Own heads: each rank reads 129,280·7,168·2 B =
    1.853 GB, 0.553 ms at 3.35 TB/s. Shared: an eighth of that, 0.069 ms, but the logits of all 512 go to every rank:
    7/8·512·129,280·2 B = 115.8 MB at 450 GB/s, 0.257 ms.
    """
    k = kernels_for(catalog.gpu("h100-sxm"), "sglang")
    own = shape("deepseek-ai/DeepSeek-V3", dp=8, ep=8, dtype="fp8")
    shared = replace(own, head_tp=8)
    b, c, total = np.array([64.0]), np.array([2048.0]), np.array([512.0])
    alone = engine_step.decode_rank(k, own, b, c).parts["lm head"][0, 0]
    assert 0.553e-3 < alone < 1.5 * 0.553e-3
    assert "lm head" not in engine_step.decode_rank(k, shared, b, c).parts
    assert "lm head" not in engine_step.decode_joint(k, own, total).parts
    together = engine_step.decode_joint(k, shared, total).parts["lm head"][0]
    assert 0.069e-3 + 0.257e-3 < together < 2 * (0.069e-3 + 0.257e-3)


def test_pipeline_with_few_sequences_passes_all_stages() -> None:
    one = table("h100-sxm", "vllm", shape("Qwen/Qwen3-32B", tp=2))
    two = table("h100-sxm", "vllm", shape("Qwen/Qwen3-32B", tp=2, pp=2))
    assert two.rank[0, 0] > one.rank[0, 0]
    # 64 sequences: two micro-batches of 32, each reading all weights once on its way: no iteration is halved
    assert 0.7 * one.rank[-1, 0] < two.rank[-1, 0] < one.rank[-1, 0]


def test_hops_between_nodes_take_the_nic() -> None:
    """64 rows of 8,192·2 B = 1.049 MB: 2.33 µs over NVLink (450 GB/s), 26.2 µs over 80% of a 50 GB/s NIC; 15 µs a hop.
    TP 8, PP 4: four hops, each to another node. TP 4, PP 4: 16 GPUs on two nodes, so two of the four. TP 2, PP 4: none.
    """
    k, b = kernels_for(catalog.gpu("h100-sxm"), "vllm"), np.array([64.0])
    for tp, far in ((8, 4), (4, 2), (2, 0)):
        hops = engine_step.pipeline_hops(k, shape("meta-llama/Llama-3.1-70B", tp=tp, pp=4), b)[0]
        assert hops == pytest.approx(4 * 15e-6 + (4 - far) * 2.33e-6 + far * 26.2e-6, rel=2e-3)


def test_sliding_windows_stop_the_growth_with_context() -> None:
    t = table("h100-sxm", "vllm", shape("openai/gpt-oss-20b"))
    k = kernels_for(catalog.gpu("h100-sxm"), "vllm")
    near, _ = k.attention_decode_seconds(64, 1024, 64, 8, 64, "bf16", 128)
    far, _ = k.attention_decode_seconds(64, 65536, 64, 8, 64, "bf16", 128)
    assert float(far) == pytest.approx(float(near), rel=0.3)
    assert any("sliding-window" in note for note in t.notes)


@pytest.mark.parametrize(
    ("model", "gpu", "system", "engine", "tp"),
    [
        ("Qwen/Qwen2.5-7B", "h100-sxm", "h100_sxm", "vllm", 1),
        ("meta-llama/Llama-3.1-70B", "h100-sxm", "h100_sxm", "vllm", 8),
        ("meta-llama/Llama-3.1-8B", "h200", "h200_sxm", "trtllm", 1),
    ],
)
def test_agrees_with_the_table_package_for_dense_models(
    model: str, gpu: str, system: str, engine: str, tp: int, tmp_path: Path
) -> None:
    """Its composition of the same tables: decode within 15%, prefill of 2k-8k tokens within 10%."""
    from aiconfigurator_core import sdk

    source = Path(catalog.__file__).parent / "models" / (model.replace("/", "--") + ".json")
    content = json.loads(source.read_text())
    (tmp_path / "config.json").write_text(json.dumps(content.get("config", content)))
    handle = sdk.EngineHandle.compile(str(tmp_path), system, engine, tp_size=tp, gemm_quant_mode="bfloat16")
    k, s = kernels_for(catalog.gpu(gpu), engine), shape(model, tp=tp)
    for b in (1, 32, 256):
        for c in (512, 4096):
            mine = engine_step.decode_rank(k, s, np.array([float(b)]), np.array([float(c)])).total[0, 0]
            assert mine == pytest.approx(handle.decode_step_latency(b, c, 2) * 1e-3, rel=0.15)
    pair, _ = engine_step.prefill_pair(k, s)
    for n in (2048, 8192):
        mine = engine_step.prefill_chunk(k, s, np.array([float(n)])).total[0] + pair * n * (n + 1) / 2
        assert mine == pytest.approx(handle.predict_prefill_latency(1, n) * 1e-3, rel=0.1)
