"""Exports: golden texts, numbers that are the scenario's, rules that frameworks assert, nothing dropped silently."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from rlsim.cli import app
from rlsim.errors import UserError
from rlsim.frameworks import NAMES, export
from rlsim.frameworks.sheet import Row, value_at
from rlsim.scenario.load import load_scenario
from rlsim.scenario.schema import Scenario
from tests.frameworks.exported import KINDS, read, scenario, text
from tests.frameworks.golden import path

SCENARIOS = Path(__file__).parents[2] / "scenarios"
ROLLOUT = "actor_rollout_ref.rollout."
ACTOR = "actor_rollout_ref.actor."

# Key of the framework -> what the scenario says it is.
Says = dict[str, Callable[[Scenario], Any]]
SAYS: dict[str, Says] = {
    "verl": {
        "trainer.nnodes": lambda s: s.trainer.gpus // 8,
        f"{ACTOR}ppo_mini_batch_size": lambda s: s.workload.prompts // s.workload.updates.mini_batches,
        f"{ROLLOUT}n": lambda s: s.workload.group_size,
        f"{ROLLOUT}tensor_model_parallel_size": lambda s: s.rollout[0].attn_tp,
        f"{ROLLOUT}gpu_memory_utilization": lambda s: s.rollout[0].memory_utilization,
        f"{ROLLOUT}max_num_seqs": lambda s: s.rollout[0].max_num_seqs,
        "data.max_response_length": lambda s: s.workload.response_tokens.max,
        "trainer.save_freq": lambda s: s.run.checkpoint_every,
    },
    "slime": {
        "actor-num-nodes": lambda s: s.trainer.gpus // 8,
        "rollout-batch-size": lambda s: s.workload.prompts,
        "n-samples-per-prompt": lambda s: s.workload.group_size,
        "global-batch-size": lambda s: s.workload.samples // s.workload.updates.mini_batches,
        "rollout-num-gpus-per-engine": lambda s: s.rollout[0].gpus_per_engine,
        "sglang-mem-fraction-static": lambda s: s.rollout[0].memory_utilization,
        "sglang-max-running-requests": lambda s: s.rollout[0].max_num_seqs * s.rollout[0].attn_dp,
        "rollout-max-response-len": lambda s: s.workload.response_tokens.max,
        "save-interval": lambda s: s.run.checkpoint_every,
    },
    "openrlhf": {
        "actor.num_nodes": lambda s: s.trainer.gpus // 8,
        "vllm.num_engines": lambda s: s.rollout[0].gpus // s.rollout[0].gpus_per_engine,
        "vllm.tensor_parallel_size": lambda s: s.rollout[0].attn_tp,
        "rollout.batch_size": lambda s: s.workload.prompts,
        "train.batch_size": lambda s: s.workload.samples // s.workload.updates.mini_batches,
        "rollout.max_new_tokens": lambda s: s.workload.response_tokens.max,
        "ckpt.save_steps": lambda s: s.run.checkpoint_every,
    },
    "areal": {
        "train_dataset.batch_size": lambda s: s.workload.prompts,
        "gconfig.n_samples": lambda s: s.workload.group_size,
        "actor.ppo_n_minibatches": lambda s: s.workload.updates.mini_batches,
        "gconfig.max_new_tokens": lambda s: s.workload.response_tokens.max,
        "sglang.mem_fraction_static": lambda s: s.rollout[0].memory_utilization,
        "saver.freq_steps": lambda s: s.run.checkpoint_every,
    },
    "nemo-rl": {
        "grpo.num_prompts_per_step": lambda s: s.workload.prompts,
        "grpo.num_generations_per_prompt": lambda s: s.workload.group_size,
        "policy.train_global_batch_size": lambda s: s.workload.samples // s.workload.updates.mini_batches,
        "policy.generation.vllm_cfg.tensor_parallel_size": lambda s: s.rollout[0].attn_tp,
        "policy.generation.vllm_cfg.gpu_memory_utilization": lambda s: s.rollout[0].memory_utilization,
        "policy.generation.max_new_tokens": lambda s: s.workload.response_tokens.max,
        "checkpointing.save_period": lambda s: s.run.checkpoint_every,
    },
    "trl": {
        "num_processes": lambda s: s.trainer.gpus,
        "num_generations": lambda s: s.workload.group_size,
        "per_device_train_batch_size": lambda s: s.trainer.micro_batch_size,
        "max_completion_length": lambda s: s.workload.response_tokens.max,
    },
}
CHANGES = (
    (),
    ("workload.prompts=256", "workload.group_size=16", "rollout.memory_utilization=0.55", "run.checkpoint_every=7"),
    ("workload.response_tokens={mean: 700, max: 2048}", "rollout.tp=1", "rollout.max_num_seqs=96"),
)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("framework", NAMES)
def test_golden(framework: str, kind: str) -> None:
    """Read by hand against each framework's keys. Mend with `python -m tests.frameworks.golden`."""
    assert text(framework, kind) + "\n" == path(framework, kind).read_text(encoding="utf-8")


@pytest.mark.parametrize("changes", CHANGES, ids=["as it is", "batch", "engine"])
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("framework", NAMES)
def test_exported_numbers_are_the_scenarios(framework: str, kind: str, changes: tuple[str, ...]) -> None:
    one = scenario(framework, kind, *changes)
    said = read(framework, export(framework, one))
    for key, value in SAYS[framework].items():
        assert said[key] == value(one), key


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("framework", NAMES)
def test_tables_read_both_ways(framework: str, kind: str) -> None:
    """Each row's key is in the text with the scenario's value, and its way back gives that value again."""
    one = scenario(framework, kind)
    said = read(framework, export(framework, one))
    module = importlib.import_module(f"rlsim.frameworks.{framework.replace('-', '_')}")
    tables = [
        table
        for name, table in vars(module).items()
        if isinstance(table, tuple) and table and isinstance(table[0], Row) and not (name == "TORCH" and kind == "moe")
    ]
    checked = 0
    for row in (row for table in tables for row in table):
        value = value_at(one, row.scenario)
        assert row.back(row.to(value)) == value
        found = [key for key in said if key == row.key or key.endswith(f".{row.key}")]
        if found and value not in (None, False):
            assert any(said[key] == row.to(value) for key in found), row.key
            checked += 1
    assert checked >= 1


RULES = [
    ("verl", "dense", "workload.prompts=126", "no multiple of the mini-batch"),
    ("verl", "dense", "workload.prompts=20", "40 samples are no multiple of the 16 data-parallel ranks"),
    ("verl", "dense", "trainer.backend=zero", "verl has no zero"),
    ("slime", "dense", "rollout.engine=vllm", "slime has no vllm"),
    ("slime", "moe", "workload.prompts=129", "global-batch-size 258 is no multiple of the 8"),
    ("openrlhf", "dense", "trainer.zero_stage=2", "ds.enable_sleep needs ZeRO stage 3"),
    ("openrlhf", "dense", "trainer.micro_batch_size=3", "train.batch_size 256 is no multiple"),
    ("openrlhf", "moe", "rollout.ep=4", "openrlhf has no 4"),
    ("areal", "dense", "workload.prompts=100", "samples are no multiple"),
    ("nemo-rl", "dense", "trainer.micro_batch_size=3", "train_global_batch_size 256 is no multiple"),
    ("nemo-rl", "dense", "workload.updates.epochs=2", "nemo-rl has no 2"),
    ("trl", "dense", "trainer.micro_batch_size=3", "completions an update are no multiple"),
    ("trl", "dense", "trainer.backend=megatron", "trl has no megatron"),
]


@pytest.mark.parametrize(("framework", "kind", "change", "rule"), RULES)
def test_what_a_framework_refuses_is_refused(framework: str, kind: str, change: str, rule: str) -> None:
    with pytest.raises(UserError, match=rule):
        text(framework, kind, change)


def test_nemo_rl_carves_whole_nodes_out_of_a_cluster() -> None:
    with pytest.raises(UserError, match="takes whole ones of 8 GPUs"):
        text("nemo-rl", "moe", "trainer.gpus=36", "rollout.gpus=4", "cluster.gpus=40", "trainer={tp: 1, pp: 1, ep: 1}")


@pytest.mark.parametrize("framework", NAMES)
def test_what_has_no_counterpart_is_told(framework: str) -> None:
    printed = text(framework, "dense")
    assert "# not expressible: remedies.consolidate = as by default" in printed
    told = text(framework, "dense", "rollout.preemption=swap", "routing=length-aware")
    assert "# not expressible: rollout.preemption = swap" in told
    assert "# not expressible: routing = length-aware" in told


def test_several_kinds_of_engine_or_gpu_are_refused() -> None:
    for file in ("heterogeneous.yaml", "prefill_decode.yaml"):
        several = [s for s in load_scenario(SCENARIOS / file).variants if len(s.rollout) > 1 or s.cluster.pools]
        with pytest.raises(UserError, match="one kind of"):
            export("verl", several[0])


def test_an_unknown_framework_gets_the_nearest_name() -> None:
    with pytest.raises(UserError, match="no export to 'nemo_rl'") as error:
        export("nemo_rl", scenario("verl", "dense"))
    assert error.value.fix == "nemo-rl"


def test_the_command_prints_it_and_run_emits_it() -> None:
    file = str(SCENARIOS / "7b_64gpu.yaml")
    printed = CliRunner().invoke(app, ["export", "verl", file, "--variant", "one-step-off"])
    assert printed.exit_code == 0
    assert "verl.experimental.one_step_off_policy.main_ppo" in printed.stdout
    emitted = CliRunner().invoke(app, ["run", file, "--variant", "one-step-off", "--steps", "1", "--emit", "verl"])
    assert printed.stdout.strip() in emitted.stdout


def test_dp_attention_engines_share_sglangs_request_limit() -> None:
    """SGLang divides its limit on requests over attention-DP ranks; rlsim's is per rank: 256 · 32 = 8,192."""
    said = read("slime", export("slime", load_scenario(SCENARIOS / "600b_moe.yaml", variant="async").variants[0]))
    assert said["sglang-max-running-requests"] == 8192
    assert said["rollout-num-gpus-per-engine"] == 32
    assert said["sglang-dp-size"] == 32
