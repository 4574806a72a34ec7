from __future__ import annotations

from pathlib import Path

import pytest

from rlsim.errors import UserError
from rlsim.scenario import inert_blocks, load_scenario, loads_scenario, scenario_from_dict

from .text import BASE, changed

SCENARIOS = sorted((Path(__file__).parents[2] / "scenarios").glob("*.yaml"))


def test_base_first_then_variants() -> None:
    file = loads_scenario(BASE)
    assert [s.variant for s in file.variants] == ["base", "together"]
    assert file.name == "small"
    assert file.variant("together").placement == "colocated"
    assert file.select(None) == file.variants


def test_quantities_are_si() -> None:
    base = loads_scenario(BASE).variants[0]
    assert base.cluster.nic == 50e9
    assert base.weight_sync.bucket is None
    assert loads_scenario(BASE + "weight_sync: {bucket: 1 GiB}\n").variants[0].weight_sync.bucket == 2.0**30
    assert base.costs.gpu_hour is None


def test_shorthands() -> None:
    base = loads_scenario(BASE).variants[0]
    assert base.model.base == "Qwen/Qwen2.5-7B"
    assert base.framework.name == "generic"
    (entry,) = base.rollout
    assert (entry.attn_tp, entry.attn_dp, entry.moe_tp, entry.moe_ep) == (2, 1, 2, 1)
    as_list = loads_scenario(changed(("rollout: {gpus: 8, tp: 2}", "rollout: [{gpus: 8, tp: 2}]")))
    assert as_list.variants == loads_scenario(BASE).variants
    constant = loads_scenario(changed(("prompt_tokens: {mean: 100, max: 1024}", "prompt_tokens: 100"))).variants[0]
    assert constant.workload.prompt_tokens.distribution == "constant"


def test_gpus_left_out() -> None:
    rest = loads_scenario(changed(("rollout: {gpus: 8, tp: 2}", "rollout: {tp: 2}"))).variants[0]
    assert rest.rollout[0].gpus == 8  # 16 of the cluster, less the trainer's 8
    everything = loads_scenario(
        changed(
            ("disaggregated", "colocated"),
            ("schedule: async", "schedule: sync"),
            ("trainer: {gpus: 8, ", "trainer: {"),
            ("rollout: {gpus: 8, ", "rollout: {"),
        )
    ).variants[0]
    assert (everything.trainer.gpus, everything.rollout[0].gpus) == (16, 16)


def test_micro_batches_default_to_tokens() -> None:
    assert loads_scenario(BASE).variants[0].trainer.micro_batch_tokens == 16384
    sized = loads_scenario(changed(("pp: 2}", "pp: 2, micro_batch_size: 4}"))).variants[0].trainer
    assert (sized.micro_batch_tokens, sized.micro_batch_size) == (None, 4)


def test_returned_logprobs_follow_the_workload() -> None:
    assert not loads_scenario(BASE).variants[0].rollout[0].return_logprobs
    assert loads_scenario(BASE, overrides=["workload.logprob=rollout"]).variants[0].rollout[0].return_logprobs


def test_without_partial_rollout_a_sync_drains() -> None:
    assert loads_scenario(BASE).variants[0].async_.on_sync == "interrupt"
    assert loads_scenario(BASE, overrides=["async.partial_rollout=false"]).variants[0].async_.on_sync == "drain"


def test_name_defaults_to_the_file(tmp_path: Path) -> None:
    path = tmp_path / "my_case.yaml"
    path.write_text(changed(("name: small\n", "")))
    assert load_scenario(path).name == "my_case"


def test_paths_are_relative_to_the_file(tmp_path: Path) -> None:
    (tmp_path / "lengths.csv").write_text("prompt_id,prompt_tokens,response_tokens\n0,10,20\n")
    path = tmp_path / "case.yaml"
    path.write_text(changed(("{mean: 500, p99: 1900, max: 2048}", "{trace: lengths.csv}")))
    spec = load_scenario(path).variants[0].workload.response_tokens
    assert spec.trace == str(tmp_path / "lengths.csv")


def test_one_variant_alone_may_be_right() -> None:
    overrides = ["trainer.gpus=4", "rollout.gpus=12"]
    with pytest.raises(UserError, match="co-located"):
        loads_scenario(BASE, overrides=overrides)
    assert loads_scenario(BASE, overrides=overrides, variant="base").variants[0].trainer.gpus == 4


def test_from_dict_takes_si_numbers_and_text() -> None:
    plain = loads_scenario(BASE).variants[0].to_dict()
    assert scenario_from_dict(plain) == loads_scenario(BASE).variants[0]
    plain["cluster"]["nic"] = 25e9
    assert scenario_from_dict(plain).cluster.nic == 25e9


def test_inert_blocks() -> None:
    base, together = loads_scenario(BASE + "offload: {pinned: true}\n").variants
    assert inert_blocks(base) == ["offload (placement is not colocated)"]
    assert inert_blocks(together) == ["async (schedule is not async)"]
    base, together = loads_scenario(BASE + "weight_sync: {overlap: true}\n").variants
    assert inert_blocks(base) == []
    assert inert_blocks(together) == ["async (schedule is not async)", "weight_sync.overlap (schedule is not async)"]
    (off,) = loads_scenario(
        BASE, overrides=["schedule=one-step-off", "weight_sync.overlap=true"], variant="base"
    ).variants
    assert "weight_sync.overlap (schedule is not async)" in inert_blocks(off)


@pytest.mark.parametrize(
    ("overrides", "inert"),
    [
        (["trainer.zero_stage=2"], "trainer.zero_stage (backend is megatron)"),
        (["trainer.param_dtype=bf16"], "trainer.param_dtype (backend is megatron)"),
        (["trainer.reshard_after_forward=false"], "trainer.reshard_after_forward (weights are not sharded)"),
        (["trainer.sequence_parallel=true", "trainer.tp=1"], "trainer.sequence_parallel (tp is 1)"),
        (["trainer.dispatcher=deepep"], "trainer.dispatcher (ep is 1)"),
        (
            ["trainer.logprob_micro_batch_tokens=8192", "workload.logprob=rollout"],
            "trainer.logprob_micro_batch_tokens (there is no log-prob or reference pass)",
        ),
        (
            ["remedies.consolidate.early_logprob=true", "workload.logprob=rollout"],
            "remedies.consolidate.early_logprob (there is no log-prob pass)",
        ),
        (
            ["workload.dynamic_sampling={refill: replace, fetch: 8}", "workload.pass_rate=0.5"],
            "workload.dynamic_sampling.fetch (refill is replace)",
        ),
        (["framework=trl", "offload.params=true"], "offload.params (framework trl keeps them on the GPU)"),
    ],
)
def test_keys_without_effect_are_listed(overrides: list[str], inert: str) -> None:
    (together,) = loads_scenario(BASE, overrides=overrides, variant="together").variants
    assert inert_blocks(together) == ["async (schedule is not async)", inert]


@pytest.mark.parametrize("path", SCENARIOS, ids=lambda path: path.stem)
def test_shipped_scenarios_load_and_ask_a_question(path: Path) -> None:
    assert load_scenario(path).variants
    first = path.read_text(encoding="utf-8").splitlines()[0]
    assert first.startswith("# ")
    assert first.endswith("?")


@pytest.mark.parametrize("name", ["600b_moe", "7b_64gpu"])
def test_four_regimes(name: str) -> None:
    file = load_scenario(next(path for path in SCENARIOS if path.stem == name))
    assert {s.variant for s in file.variants} == {"colocated-sync", "disaggregated-sync", "one-step-off", "async"}
