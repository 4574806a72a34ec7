"""The NeMo-RL converter gives the layout that the recipe has."""

from __future__ import annotations

from dataclasses import replace

import pytest

from rlsim.scenario import scenario_from_dict
from rlsim.system import resolve
from validation.published import nemo_rl, records
from validation.published.records import Record, SkipError

RECORDS = {r.id.removeprefix("nemo-"): r for r in records.load() if "resolved_recipe" in r.config}
V4 = "v0.4.0-h100-grpo-"


@pytest.mark.parametrize("record", RECORDS.values(), ids=list(RECORDS))
def test_layouts_are_the_recipes(record: Record) -> None:
    r = record.config["resolved_recipe"]
    system = resolve(scenario_from_dict(nemo_rl.scenario(record)))
    t, engine = system.trainer, system.rollout[0].layout
    assert (t.tp, t.pp, t.cp, t.ep, t.etp) == (r["train_tp"], r["train_pp"], r["train_cp"], r["train_ep"], 1)
    assert (t.gpus, engine.engines * engine.gpus_per_engine) == (r["training_gpus"], r["generation_gpus"])
    assert (engine.attn_tp, engine.moe_ep) == (r["gen_tp"], r["gen_ep"])
    assert system.colocated == r["colocated"]
    assert system.profile.name == "nemo-rl"


def test_deepseek_has_uneven_stages() -> None:
    system = resolve(scenario_from_dict(nemo_rl.scenario(RECORDS[V4 + "deepseek-v3-256g-onpol-bf16"])))
    assert [len(stage) for stage in system.trainer.stages] == [3] + [4] * 14 + [2]


def test_workload_of_a_recipe() -> None:
    scenario = scenario_from_dict(nemo_rl.scenario(RECORDS[V4 + "llama3-1-8b-16g-onpol-bf16"]))
    work = scenario.workload
    # 64 prompts x 32 = 2,048 samples in batches of 512; 1,192 tokens in all of which 1,060 are generated
    assert (work.samples, work.updates.mini_batches, work.reference_model) == (2048, 4, True)
    assert work.prompt_tokens.mean == pytest.approx(132.0)
    assert (work.response_tokens.mean, work.response_tokens.max) == (1060, 4096 - 132)
    assert (scenario.trainer.micro_batch_tokens, scenario.trainer.logprob_micro_batch_tokens) == (4096, 8192)
    assert (scenario.trainer.recompute, scenario.schedule) == ("full", "sync")


def test_one_step_off_is_bounded_staleness_with_its_engines_defaults() -> None:
    scenario = scenario_from_dict(nemo_rl.scenario(RECORDS[V4 + "qwen3-32b-64g-1off-bf16"]))
    assert (scenario.schedule, scenario.async_.max_staleness, scenario.async_.on_sync) == ("async", 1, "in-flight")
    assert (scenario.rollout[0].max_num_seqs, scenario.rollout[0].max_num_batched_tokens) == (128, 2048)


def test_fp8_recipes_are_listed_only() -> None:
    record = RECORDS[V4 + "qwen3-32b-32g-onpol-bf16"]
    fp8 = replace(record, config={**record.config, "precision_generation": "fp8"})
    with pytest.raises(SkipError):
        nemo_rl.scenario(fp8)


def test_versions_and_repeats() -> None:
    same = "h100-grpo-qwen3-32b-32g-onpol-bf16"
    assert nemo_rl.version(RECORDS["v0.4.0-" + same]) == "v0.4.0"
    assert nemo_rl.layout(RECORDS["v0.4.0-" + same]) == nemo_rl.layout(RECORDS["v0.5.0-" + same])
    other = "h100-grpo-qwen3-30b3a-32g-onpol-bf16"
    assert nemo_rl.layout(RECORDS["v0.4.0-" + other]) != nemo_rl.layout(RECORDS["v0.5.0-" + other])
