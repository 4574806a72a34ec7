"""Prices by a profile's measured curves: every role's sum on paper, and the run's provenance."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from rlsim import api
from rlsim.catalog.profiles import profile
from rlsim.costs import measured
from rlsim.costs.controller import controller_costs
from rlsim.costs.kernels import kernels_for
from rlsim.costs.measured_training import MeasuredTraining, measured_training
from rlsim.costs.offload import switch_cost
from rlsim.costs.rollout import engine_surface
from rlsim.costs.training import TrainingCosts
from rlsim.costs.transfer import weight_sync_cost
from rlsim.errors import UserError
from rlsim.scenario import load_scenario
from rlsim.system import System, resolve

CONFIG = """{"architectures": ["Qwen2ForCausalLM"], "model_type": "qwen2", "hidden_size": 128, "intermediate_size": 512,
"num_attention_heads": 4, "num_key_value_heads": 4, "num_hidden_layers": 2, "vocab_size": 64,
"max_position_embeddings": 1024, "tie_word_embeddings": true}"""
SCENARIO = """
model: config.json
cluster: {gpu: cpu, gpus: 4, gpus_per_node: 4}
workload:
  prompts: 4
  group_size: 4
  prompt_tokens: {mean: 16, max: 16}
  response_tokens: {mean: 64, p99: 180, max: 200}
trainer: {gpus: 4, backend: fsdp2, micro_batch_size: 2}
rollout: {gpus: 4, engine: vllm, tp: 1, max_num_seqs: 8}
costs: {profile: cpu.yaml}
run: {steps: 2}
"""
PROFILE = """
measured:
  decode: {fixed_s: {value: 0.002, stderr: 0.0002}, sequence_s: 1.0e-4, context_token_s: 1.0e-7}
  prefill: {fixed_s: 0.001, token_s: 1.0e-5, pair_s: 1.0e-9}
  train: {fixed_s: 0.05, micro_batch_s: 0.01, token_s: {value: 1.0e-4, low: 0.8e-4, high: 1.2e-4}}
  logprob: {knots: {at: [100, 200], seconds: [0.01, 0.03]}, scale: 2}
  weight_sync: {fixed_s: 0.01, byte_s: 1.0e-9, engine_s: 0.003}
  offload: {fixed_s: 0.001, byte_s: 1.0e-9}
  onload: {fixed_s: 0.002}
  controller: {step_s: 0.02, call_s: 0.001, sample_s: 1.0e-5, token_s: 1.0e-8}
"""


def cpu_system(folder: Path, text: str = PROFILE) -> System:
    (folder / "config.json").write_text(CONFIG)
    (folder / "cpu.yaml").write_text(text)
    (folder / "mini.yaml").write_text(SCENARIO)
    return resolve(load_scenario(folder / "mini.yaml").variants[0])


def test_a_decode_iteration_and_one_with_prompts(tmp_path: Path) -> None:
    system = cpu_system(tmp_path)
    surface = engine_surface(system, system.rollout[0], 10_000)
    # 2 ms + 4 · 0.1 ms + 4 · 500 tokens · 0.1 µs
    assert surface.row(4, 500) == pytest.approx(0.002 + 0.0004 + 0.0002)
    # alone: 1 ms + 100 · 10 µs + 5,050 pairs · 1 ns; beside decodes the fixed part is theirs
    assert surface.chunk(0, 100, 5050) == pytest.approx(0.001 + 0.001 + 5.05e-6)
    assert surface.mixed(4, 500, 100, 5050) == pytest.approx(0.0026 + 0.001 + 5.05e-6)
    assert surface.provenance == {"measured": 1.0}


def test_passes_follow_the_slowest_rank_of_each_micro_batch(tmp_path: Path) -> None:
    system = cpu_system(tmp_path)
    passes = measured_training(TrainingCosts(system, kernels_for(system.trainer_pool.gpu)))
    # 4 ranks, 2 micro-batches of 2 samples each; FSDP ranks meet in every layer. All samples of 50 tokens:
    lengths = np.full(16, 50)
    assert passes.update(lengths).seconds == pytest.approx(0.05 + 2 * (0.01 + 100 * 1e-4))
    assert sum(passes.update(lengths).parts.values()) == pytest.approx(passes.update(lengths).seconds)
    # a curve: 100 tokens 10 ms; 300 tokens 50 ms along the last slope; twice that by its scale
    assert passes.logprob(lengths).seconds == pytest.approx(2 * (0.01 + 0.01))
    assert passes.logprob(np.full(16, 150)).seconds == pytest.approx(2 * (0.05 + 0.05))
    assert passes.update(lengths).sources["measured"] == passes.update(lengths).seconds


def test_sync_switch_and_driver(tmp_path: Path) -> None:
    system = cpu_system(tmp_path)
    sync = weight_sync_cost(system)
    assert sync.seconds == pytest.approx(0.01 + sync.bytes_total * 1e-9 + 4 * 0.003)
    assert sync.alternatives == {sync.strategy: sync.seconds}
    switch = switch_cost(system)
    assert switch.offload_seconds == pytest.approx(0.001 + switch.bytes_per_gpu * 1e-9)
    assert switch.onload_seconds == pytest.approx(0.002)
    driver = controller_costs(system)
    assert (driver.step_fixed_seconds, driver.dispatch_seconds) == (0.02, 0.001)
    assert driver.batch_seconds(1e6, 1000) == pytest.approx(1e6 * 1e-8 + 1000 * 1e-5)


def test_a_run_says_that_it_rests_on_measurements(tmp_path: Path) -> None:
    summary = api.simulate(cpu_system(tmp_path).scenario).summary()
    assert summary["provenance"] == {"measured": pytest.approx(1.0), "scaled": 0.0, "roofline": 0.0}
    interval = summary["prediction_interval_s"]
    assert interval["p10"] < summary["step_time_s"]["mean"] < interval["p90"]


def test_roles_without_curves_keep_their_own_models(tmp_path: Path) -> None:
    system = cpu_system(tmp_path, "measured: {train: {token_s: 1.0e-4}}\n")
    modelled = TrainingCosts(system, kernels_for(system.trainer_pool.gpu))
    passes, lengths = measured_training(modelled), np.full(16, 50)
    assert isinstance(passes, MeasuredTraining)
    assert passes.logprob(lengths) == modelled.logprob(lengths)
    assert passes.update(lengths).seconds == pytest.approx(200 * 1e-4)
    assert measured.controller(system.profile) is None
    assert weight_sync_cost(system).sources["measured"] == 0.0


@pytest.mark.parametrize(
    ("text", "says", "fix"),
    [
        ("measured: 3\n", "not a mapping of roles", "train"),
        ("measured: {tran: {token_s: 1}}\n", "no role 'tran'", "train"),
        ("measured: {train: 3}\n", "not a mapping of terms", "fixed_s"),
        ("measured: {train: {tokens_s: 1}}\n", "no term 'tokens_s'", "token_s"),
        ("measured: {train: {token_s: fast}}\n", "'fast' is not a number", "SI"),
        ("measured: {train: {token_s: -1}}\n", "-1 is not possible", "≥ 0"),
        ("measured: {train: {token_s: {stderr: 1}}}\n", "value missing", "plain number"),
        ("measured: {train: {token_s: {value: 1, low: 2, high: 3}}}\n", "does not hold the value 1", "low ≤"),
        ("measured: {decode: {fixed_s: 1}}\n", "decode without prefill", "prefill"),
        ("measured: {train: {knots: {at: [1], seconds: [1]}}}\n", "1 positions", "two or more"),
        ("measured: {train: {knots: {at: [2, 1], seconds: [1, 2]}}}\n", "not ascending", "ascending"),
        ("measured: {train: {knots: {at: [1, 2], seconds: [x, 2]}}}\n", "not a list of numbers", "seconds"),
        ("measured: {train: {knots: {at: [1, 2], seconds: [1, 2]}, token_s: 1}}\n", "no term 'token_s'", "scale"),
        ("correlations: 3\n", "not a list", "between"),
        ("correlations: [{between: [gemm_derate], value: 0}]\n", "is not a correlation", "between"),
        ("correlations: [{between: [gemm_derat, dp_overlap], value: 0}]\n", "no parameter 'gemm_derat'", "gemm_derate"),
        ("correlations: [{between: [gemm_derate, dp_overlap], value: 2}]\n", "2 is not a correlation", "-1 to 1"),
    ],
)
def test_mistakes_in_the_section(tmp_path: Path, text: str, says: str, fix: str) -> None:
    path = tmp_path / "mine.yaml"
    path.write_text(text)
    with pytest.raises(UserError) as caught:
        profile(str(path))
    assert says in caught.value.message
    assert fix in str(caught.value.fix)
    assert caught.value.file == str(path)


def test_a_measured_sync_keeps_the_floor_of_the_links(tmp_path: Path) -> None:
    """A curve that claims less than the links allow is shown beside the floor, not under it."""
    curve = "weight_sync: {byte_s: 1.0e-15}"
    known = cpu_system(
        tmp_path, PROFILE.replace("weight_sync: {fixed_s: 0.01, byte_s: 1.0e-9, engine_s: 0.003}", curve)
    )
    plain = cpu_system(tmp_path, "measured: {train: {fixed_s: 0.05}}\n")
    assert weight_sync_cost(known).floor_seconds == weight_sync_cost(plain).floor_seconds
    assert weight_sync_cost(known).seconds < weight_sync_cost(known).floor_seconds
