"""Bytes by role against numbers on paper and against published peaks; problems and the changes that mend them."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from rlsim import catalog
from rlsim.activations import layer_activations, micro_batches_in_flight
from rlsim.costs.offload import switch_cost
from rlsim.costs.transfer_build import sync_case
from rlsim.layout import train_params
from rlsim.memory import GIB, MemoryReport, check_memory, measure
from rlsim.memory_fixes import changed_system
from rlsim.memory_lengths import sequence_lengths
from rlsim.memory_trainer import activation_bytes, micro_batch_count, micro_batch_tokens, state_bytes
from rlsim.model import parameters
from rlsim.scenario import scenario_from_dict
from rlsim.shards import weight_classes
from rlsim.system import System, resolve
from tests.layout_cases import case

QWEN7, LLAMA8, LLAMA70 = "Qwen/Qwen2.5-7B", "meta-llama/Llama-3.1-8B", "meta-llama/Llama-3.1-70B"
LLAMA405, DSV3 = "meta-llama/Llama-3.1-405B", "deepseek-ai/DeepSeek-V3"
V3_TRAINER = {"tp": 4, "pp": 16, "pp_layers": {"first": 3, "last": 2}, "ep": 32, "etp": 1}
V3_ENGINE = {"engine": "sglang", "attn_tp": 1, "attn_dp": 32, "moe_ep": 32, "dtype": "fp8"}


def system(model: str, trainer: dict[str, Any], rollout: dict[str, Any] | None = None, **blocks: Any) -> System:
    return resolve(case(model, trainer, rollout, **blocks))


# Model states ----------


def test_optimizer_states_of_671b_on_1024_and_256_gpus():
    # 12·671.03e9/1024 = 7.86 GB if every byte were spread evenly; pipeline stages differ by some layers
    for gpus, expected in ((1024, 7.86e9), (256, 31.5e9)):
        fsdp = system(DSV3, {"gpus": gpus, "backend": "fsdp2", "param_dtype": "bf16", "ep": 32})
        assert state_bytes(fsdp, 0)["optimizer states"] == pytest.approx(expected, rel=2e-3)
    megatron = system(DSV3, {"gpus": 1024, **V3_TRAINER}, {"gpus": 1024, **V3_ENGINE})
    stages = [state_bytes(megatron, stage)["optimizer states"] for stage in range(16)]
    assert sum(stages) / 16 == pytest.approx(7.86e9, rel=0.02)


def test_optimizer_states_of_7b_on_64_gpus():
    # 12·7.616e9/64 = 1.43 GB
    assert state_bytes(system(QWEN7, {"gpus": 64}), 0)["optimizer states"] == pytest.approx(1.43e9, rel=2e-3)


def test_megatron_formula():
    # (2 + 4)·(N_d + N_e) + 12·(N_d/(DP·CP) + N_e/EDP)
    s = system("Qwen/Qwen3-30B-A3B", {"gpus": 64, "tp": 2, "cp": 2, "pp": 2, "ep": 8, "etp": 1})
    held = train_params(s.model, s.trainer, 0)
    states = state_bytes(s, 0)
    assert (s.trainer.dp, s.trainer.edp) == (8, 4)
    assert sum(states.values()) == 6 * (held.dense + held.expert) + 12 * (held.dense / 16 + held.expert / 4)


@pytest.mark.parametrize(
    ("trainer", "per_parameter"),
    [
        ({"backend": "fsdp2"}, (4 / 8, 4 / 8, 8 / 8)),
        ({"backend": "fsdp2", "param_dtype": "bf16", "grad_dtype": "bf16"}, (2 / 8, 2 / 8, 12 / 8)),
        ({"backend": "zero", "zero_stage": 1}, (2, 4, 12 / 8)),
        ({"backend": "zero", "zero_stage": 2}, (2, 4 / 8, 12 / 8)),
        ({"backend": "zero", "zero_stage": 3}, (2 / 8, 4 / 8, 12 / 8)),
    ],
)
def test_sharded_states(trainer, per_parameter):
    s = system(LLAMA8, {"gpus": 8, **trainer})
    states = state_bytes(s, 0)
    assert tuple(states.values()) == pytest.approx([x * parameters(s.model) for x in per_parameter])


# Activations ----------


def test_full_recompute_keeps_layer_inputs():
    # 2·tokens·H·layers·min(m, p − stage) / tp, with SP: stage 0 of 4 holds 4 micro-batches of 20 layers
    s = system(LLAMA70, {"gpus": 64, "tp": 8, "pp": 4, "recompute": "full", "micro_batch_tokens": 8192})
    a = layer_activations(s.model, s.trainer, moe=False)
    kept = 2 * 8192 * 8192 * 20 * 4 / 8
    working = activation_bytes(s, 0) - kept
    assert 0 < working / 8192 < 2 * (a.whole + a.gathered)


def test_layer_of_llama_70b_without_recompute():
    # per token, TP 1: residual and norms 4·2·8192, q k v (8192 + 2·1024)·2, output 8192·2 + 64·4, MLP 3·28672·2
    s = system(LLAMA70, {"gpus": 8})
    a = layer_activations(s.model, s.trainer, moe=False)
    assert a.whole == 8 * 8192 + 2 * 10240 + 2 * 8192 + 4 * 64 + 6 * 28672


def test_micro_batches_in_flight():
    s = system("Qwen/Qwen3-8B", {"gpus": 8, "pp": 4})
    assert [micro_batches_in_flight(s.trainer, stage, 16) for stage in range(4)] == [4, 3, 2, 1]
    assert micro_batches_in_flight(s.trainer, 0, 2) == 2
    # 3 chunks: warm-up 2·3 + 2·4 = 14 passes and one more, each of a third of the stage
    chunked = replace(s.trainer, vpp=3)
    assert micro_batches_in_flight(chunked, 0, 16) == 15 / 3


def test_micro_batch_is_at_least_the_longest_sequence():
    s = case(QWEN7, {"gpus": 8, "micro_batch_tokens": 4096, "logprob_micro_batch_tokens": 65536})
    assert micro_batch_tokens(s) == 8192
    assert micro_batch_tokens(s, logprob=True) == 65536
    sized = case(QWEN7, {"gpus": 8, "micro_batch_size": 4})
    assert micro_batch_tokens(sized) == 4 * 8192
    # 2,048 samples over 8 ranks in fours
    assert micro_batch_count(resolve(sized)) == 64


# Engines ----------


def test_vllm_budget_is_weights_activations_and_kv():
    engine = {"gpus": 8, "tp": 4, "memory_utilization": 0.9}
    report = measure(system(LLAMA70, {"gpus": 8, "tp": 8}, engine, placement="disaggregated"))
    tightest = report.tightest
    assert tightest.fixed + tightest.kv_bytes == pytest.approx(0.9 * catalog.gpu("h100-sxm").hbm_bytes)
    # 80 layers · 2 · 2 KV heads · 128 · 2 bytes = 81,920 bytes per token and GPU
    assert report.kv_tokens_per_rank == int(tightest.kv_bytes / 81920) // 16 * 16


def test_sglang_budget_is_weights_and_kv():
    # of what is free at the start; TP 1 has no communicators
    engine = {"gpus": 8, "tp": 1, "engine": "sglang", "memory_utilization": 0.8}
    s = system(LLAMA8, {"gpus": 8}, engine, placement="disaggregated")
    free = s.rollout[0].pool.gpu.hbm_bytes - s.profile.value("cuda_context_bytes")
    tightest = measure(s).tightest
    assert tightest.fixed == 2 * parameters(s.model)
    assert tightest.fixed + tightest.kv_bytes == pytest.approx(0.8 * free)


def test_mla_cache_is_not_divided_by_tp():
    # 61 · (512 + 64) · 2 bytes = 70,272 bytes per token on each attention rank; 32 of them in an engine
    report = measure(system(DSV3, {"gpus": 512, **V3_TRAINER}, {"gpus": 512, **V3_ENGINE}, placement="disaggregated"))
    assert report.kv_tokens_per_rank == int(report.tightest.kv_bytes / 70272) // 16 * 16
    assert report.kv_tokens_per_engine == 32 * report.kv_tokens_per_rank


def test_sequences_that_fit():
    report = measure(system(QWEN7, {"gpus": 8}))
    # 28 layers · 2 · 4 · 128 · 2 bytes = 57,344 per token; mean 3,200 and longest 8,192 tokens
    assert report.fits_average_sequences == int(report.tightest.kv_bytes // (57344 * 3200))
    assert report.fits_longest_sequences == int(report.tightest.kv_bytes // (57344 * 8192))


def test_kv_cache_of_one_longest_sequence_in_whole_blocks():
    # 7B: 30,808 tokens are 1,926 blocks of 16, 30,816 tokens; between the two no sequence of that length can end
    lengths = {"prompt_tokens": {"mean": 200, "max": 1024}, "response_tokens": {"mean": 3000, "max": 29784}}
    trainer = {"gpus": 8, "backend": "fsdp2", "ulysses": 4}

    def report(share: float) -> MemoryReport:
        engine = {"gpus": 8, "tp": 1, "memory_utilization": share}
        return measure(system(QWEN7, trainer, engine, workload=lengths))

    # 30,808.1 tokens of bytes, but 1,925 whole blocks
    short = report(0.2203729)
    assert (short.kv_tokens_per_rank, short.tightest.longest_tokens) == (30_800, 30_816)
    (problem,) = short.problems
    assert problem.role == "rollout"
    assert problem.need > problem.have
    # 8 tokens more fill the last block
    enough = report(0.2203729 + 9 * 57344 / catalog.gpu("h100-sxm").hbm_bytes)
    assert enough.kv_tokens_per_rank == 30_816
    assert not enough.problems
    assert enough.fits_longest_sequences == 1


def test_sliding_windows_count_tokens_as_the_engine_does():
    # gpt-oss: half the layers stop at 128 tokens, so bytes of a long sequence are fewer than its tokens at the mean
    lengths = {"prompt_tokens": {"mean": 100, "max": 1024}, "response_tokens": {"mean": 200, "max": 31744}}
    found = set()
    for share in (0.5, 0.515, 0.518, 0.521, 0.522, 0.523, 0.526, 0.53):
        engine = {"gpus": 8, "tp": 1, "memory_utilization": share}
        report = measure(system("openai/gpt-oss-20b", {"gpus": 8}, engine, workload=lengths))
        bad = any(p.role == "rollout" for p in report.problems)
        assert bad == (report.kv_tokens_per_rank < 32_768)
        found.add(bad)
    assert found == {True, False}


def test_longest_sequences_follow_both_caps_and_the_limit_of_both():
    caps = {"prompt_tokens": {"mean": 200, "max": 1024}, "response_tokens": {"mean": 3000, "max": 7168}}

    def longest(**changes: Any) -> int:
        return sequence_lengths(case(QWEN7, {"gpus": 8}, workload={**caps, **changes}).workload).longest

    assert longest() == 8192
    assert longest(total_tokens={"max": 8000}) == 8000
    # a constant length is a whole number of tokens, rounded as samples are
    assert longest(prompt_tokens={"distribution": "constant", "mean": 100.7}) == 7168 + 101


def test_what_stays_resident_is_taken_from_the_engine():
    trainer, stays = {"gpus": 8, "tp": 2}, {"optimizer": False, "params": False, "grads": False}
    free = measure(system(QWEN7, trainer))
    full = measure(system(QWEN7, trainer, offload=stays))
    s = system(QWEN7, trainer, offload=stays)
    states = sum(state_bytes(s, 0).values())
    assert full.rollout.parts["trainer resident"] - free.rollout.parts["trainer resident"] == pytest.approx(states)
    assert full.kv_tokens_per_rank < free.kv_tokens_per_rank
    assert full.moments["rollout"].total <= s.trainer_pool.gpu.hbm_bytes


# Host ----------


def test_offloaded_optimizer_of_671b_is_63_gb_per_node():
    report = measure(system(DSV3, {"gpus": 1024, **V3_TRAINER}, {"gpus": 1024, **V3_ENGINE}))
    assert report.host.parts["optimizer states"] == pytest.approx(63e9, rel=0.15)


def test_weights_that_the_framework_keeps_stay_on_the_gpu():
    # OpenRLHF and TRL keep the low-precision weights whatever the file says: 7.6e9 · 2 bytes over ZeRO-3's 8 GPUs
    def with_framework(name: str) -> System:
        return system(QWEN7, {"gpus": 8, "backend": "zero"}, framework=name)

    for name in ("openrlhf", "trl"):
        kept, report = state_bytes(with_framework(name), 0)["weights"], measure(with_framework(name))
        moved = measure(with_framework("generic"))
        stays = report.rollout.parts["trainer resident"] - moved.rollout.parts["trainer resident"]
        assert kept == pytest.approx(2 * 7.616e9 / 8, rel=1e-3)
        assert stays == pytest.approx(kept)
        assert "weights" not in report.host.parts
        assert moved.host.parts["weights"] == 8 * kept
        rows = {row.role for row in switch_cost(with_framework(name)).ledger}
        assert "parameters" not in rows


def test_gradients_and_engine_weights_on_the_host_where_the_framework_moves_them():
    for name, moves in (("generic", False), ("verl", False), ("openrlhf", True), ("nemo-rl", True)):
        s = system(QWEN7, {"gpus": 8, "tp": 4}, framework=name)
        parts = measure(s).host.parts
        assert parts.get("gradients", 0) == (8 * state_bytes(s, 0)["gradients"] if moves else 0)
        assert parts.get("sleeping engine weights", 0) == (8 * 2 * parameters(s.model) if moves else 0)
        moved = {row.role: row.moved for row in switch_cost(s).ledger}
        assert bool(moved["gradients"]) == bool(moved["engine weights"]) == moves


def test_one_bucket_for_memory_and_price():
    # the framework's own (slime 512 MiB, generic 1 GiB) unless the file gives one; two of them at the switch
    for framework, blocks, mib in (
        ("generic", {}, 1024),
        ("slime", {}, 512),
        ("verl", {}, 2048),
        ("slime", {"weight_sync": {"bucket": "3 GiB"}}, 3072),
    ):
        s = system(QWEN7, {"gpus": 8}, framework=framework, **blocks)
        assert sync_case(s).bucket == mib * 2**20
        assert measure(s).moments["weight sync"].parts["weight sync buffer"] == 2 * mib * 2**20
        apart = system(QWEN7, {"gpus": 8}, framework=framework, placement="disaggregated", **blocks)
        assert measure(apart).rollout.parts["weight sync buffer"] == mib * 2**20
        assert sync_case(resolve(scenario_from_dict(s.scenario.to_dict()))).bucket == mib * 2**20


def test_a_second_copy_of_the_weights_only_where_the_schedule_uses_it():
    for schedule, size in (("sync", 2**30), ("one-step-off", 2**30), ("async", 2 * 7.616e9)):
        s = system(QWEN7, {"gpus": 8}, placement="disaggregated", schedule=schedule, weight_sync={"overlap": True})
        assert measure(s).rollout.parts["weight sync buffer"] == pytest.approx(size, rel=1e-3)


# Problems ----------


def test_recompute_is_the_nearest_change():
    s = system(
        LLAMA70, {"gpus": 64, "tp": 8, "pp": 2, "recompute": "none"}, {"gpus": 64, "tp": 8}, placement="disaggregated"
    )
    (problem,) = check_memory(s).problems
    assert problem.role == "trainer"
    assert problem.need > problem.have
    assert "activations" in problem.by
    assert problem.fix.startswith("trainer.recompute: full (")


@pytest.mark.parametrize(
    ("model", "trainer", "rollout", "blocks"),
    [
        (LLAMA70, {"gpus": 16, "tp": 8}, {"gpus": 16, "tp": 2}, {}),
        (LLAMA405, {"gpus": 64, "tp": 8}, {"gpus": 64, "tp": 8}, {}),
        (QWEN7, {"gpus": 8, "tp": 1, "micro_batch_tokens": 131072}, None, {"cluster": {"host_memory": "64 GB"}}),
        (LLAMA8, {"gpus": 8}, {"gpus": 8, "tp": 1, "memory_utilization": 0.2}, {}),
    ],
)
def test_changes_named_do_fit(model, trainer, rollout, blocks):
    s = system(model, trainer, rollout, **blocks)
    report = check_memory(s)
    assert report.problems
    for problem in report.problems:
        if problem.fix.startswith("no change"):
            continue
        changed = changed_system(s, _parse(problem.fix))
        assert changed is not None
        assert problem.role not in {p.role for p in measure(changed).problems}


def _parse(fix: str) -> dict[str, Any]:
    import yaml

    pairs = (part.split(": ", 1) for part in fix.rsplit(" (", 1)[0].split(" and "))
    read = {key: yaml.safe_load(value) for key, value in pairs}
    return {key: tuple(value) if isinstance(value, list) else value for key, value in read.items()}


# Published peaks ----------

ROLES_ALLOCATED = ("weights", "gradients", "optimizer states", "activations", "logits", "gathered layers")


@pytest.mark.parametrize(
    ("model", "layers", "layout", "gib"),
    [
        # SimuMax v1.2, B200, bf16, micro-batches of one sequence of 4,096 tokens (the length is assumed)
        (LLAMA70, 12, {"gpus": 8, "tp": 8}, 28.29),
        (LLAMA70, 12, {"gpus": 8, "tp": 4}, 39.07),
        (LLAMA70, 12, {"gpus": 8, "pp": 2}, 66.55),
        (LLAMA405, 4, {"gpus": 8, "tp": 8}, 38.57),
        (LLAMA405, 4, {"gpus": 8, "tp": 4}, 52.89),
        (LLAMA405, 4, {"gpus": 8, "tp": 2}, 81.59),
    ],
)
def test_published_megatron_peaks(model, layers, layout, gib):
    s = _truncated(model, layers, {**layout, "recompute": "none", "micro_batch_size": 1}, 4096)
    parts = measure(s).moments["train"].parts
    ours = sum(parts.get(role, 0) for role in ROLES_ALLOCATED) / GIB
    print(f"{model} {layers} layers {layout}: {ours:.1f} of {gib} GiB, {ours / gib - 1:+.0%}")
    assert ours == pytest.approx(gib, rel=0.1)


@pytest.mark.parametrize(
    ("model", "layout", "tokens", "size", "gib"),
    [
        # torchtitan, H100 96 GB, maximum reserved; sequence length 8,192 where the table is silent
        (LLAMA8, {"gpus": 8, "recompute": "selective"}, 8192, 2, 82.4),
        (LLAMA8, {"gpus": 128, "recompute": "selective"}, 8192, 2, 67.0),
        (LLAMA8, {"gpus": 8}, 32768, 1, 83.9),
        (LLAMA8, {"gpus": 8, "cp": 4}, 131072, 1, 84.0),
        (LLAMA8, {"gpus": 8, "cp": 8}, 262144, 1, 84.5),
        (LLAMA70, {"gpus": 256, "tp": 8}, 8192, 16, 67.6),
        (LLAMA405, {"gpus": 512, "tp": 8, "pp": 8, "cp": 1, "reshard_after_forward": False}, 32768, 1, 75.3),
        (LLAMA405, {"gpus": 512, "tp": 8, "pp": 8, "cp": 4, "reshard_after_forward": False}, 131072, 1, 77.1),
    ],
)
def test_published_fsdp_peaks(model, layout, tokens, size, gib):
    layers = {"pp_layers": [16] * 6 + [15] * 2} if layout.get("pp") == 8 else {}
    s = _truncated(model, None, {**layout, **layers, "backend": "fsdp2", "micro_batch_size": size}, tokens)
    ours = measure(s).moments["train"].total - measure(s).moments["train"].parts["engine asleep"]
    print(f"{model} {layout}: {ours / GIB:.1f} of {gib} GiB, {ours / GIB / gib - 1:+.0%}")
    assert ours / GIB == pytest.approx(gib, rel=0.2)


def _truncated(model: str, layers: int | None, trainer: dict[str, Any], tokens: int) -> System:
    """A published training run as a system: sequences of one length, the first layers of the model."""
    lengths = {"prompt_tokens": 1, "response_tokens": tokens - 1, "prompts": trainer["gpus"], "group_size": 64}
    scenario = case(model, {**trainer, "pp": 1, "pp_layers": None}, workload=lengths)
    spec = catalog.model(model)
    if layers is not None:
        spec = replace(spec, layers=spec.layers[:layers])
    base = replace(resolve(scenario), model=spec)
    changes = {f"trainer.{k}": tuple(v) if isinstance(v, list) else v for k, v in trainer.items() if k != "gpus"}
    changed = changed_system(base, changes)
    assert changed is not None
    assert weight_classes(spec)
    return changed


def test_a_budget_below_nothing_is_nothing_and_what_is_needed_says_so() -> None:
    """Of 1 GiB, 0.7 is the engine's, but the trainer keeps more than that: the engine has 0, and lacks its weights, one
    longest sequence and what the trainer keeps beyond the 0.7."""
    s = system(QWEN7, {"gpus": 64, "backend": "fsdp2"}, {"gpus": 64, "tp": 1}, cluster={"hbm": "1 GiB"})
    problem = next(p for p in measure(s).problems if p.role == "rollout")
    assert problem.have == 0.0
    assert f"{(problem.need - problem.have) / 2**30:.1f} GiB too much" in problem.by
    assert "would leave" in next(p for p in check_memory(s).problems if p.role == "rollout").fix


def test_prompts_of_a_trace_are_its_prompts(tmp_path):
    """Prompts of 10 and 30 tokens, responses of 100 and 900: on average 20 + 500, at most 30 + 900."""
    path = tmp_path / "trace.csv"
    path.write_text("prompt_id,prompt_tokens,response_tokens\n0,10,100\n1,30,900\n")
    lengths = {"trace": str(path)}
    s = case(QWEN7, {"gpus": 8}, workload={"prompt_tokens": lengths, "response_tokens": lengths})
    assert sequence_lengths(s.workload) == (520.0, 930)
