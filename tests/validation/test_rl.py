"""Records of RL runs as scenarios, by what they say and not by who they are."""

from __future__ import annotations

from dataclasses import replace

import pytest

from validation import predict
from validation.published import facts, names, records, rl, rl_price
from validation.published.records import Record, SkipError
from validation.published.rows import SKIPPED

RECORDS = {r.id: r for r in records.load()}
OWN = Record(
    id="mine",
    kind="rl_step",
    spec="B",
    source="somebody_elses_log",
    config={
        "model": "Qwen/Qwen2.5-7B-Instruct",
        "gpu": "NVIDIA H100 80GB",
        "gpus_total": 8,
        "mode": "colocate sync",
        "train_backend": "FSDP2",
        "rollout_backend": "vLLM",
        "generation_tp": 2,
        "train_batch_size": 64,
        "rollout_n": 8,
        "ppo_mini_batch_size": 32,
        "max_prompt_length": 512,
        "max_response_length": 1024,
    },
    measured={"timing_s/step": {"mean": 60.0}, "timing_s/gen": 30.0, "response_length/mean": 400},
)


def test_a_file_that_nobody_knows_is_predicted() -> None:
    rows = predict.rows_of(OWN, {})
    assert [row.quantity for row in rows] == ["step_time_s", "gen_s"]
    step, gen = rows
    assert 0 < gen.predicted < step.predicted
    assert step.p10 < step.predicted < step.p90
    assert step.predicted > step.floor > 0


def test_the_name_of_a_record_does_not_matter() -> None:
    log = RECORDS["log3-gsm8k-lora-qwen2.5-7b-8gpu"]
    assert rl.convert(replace(log, id="x")).scenario["workload"] == rl.convert(log).scenario["workload"]


def test_verl_log() -> None:
    case = rl.convert(RECORDS["log-gpg-qwen2-7b-fsdp-s2-14"])
    work, trainer = case.scenario["workload"], case.scenario["trainer"]
    assert (work["prompts"], work["group_size"], work["updates"]["mini_batches"]) == (1024, 5, 4)
    assert work["response_tokens"] == {"mean": 253.715, "max": 1024, "clip_ratio": 0.018}
    assert (trainer["backend"], trainer["micro_batch_size"]) == ("fsdp2", 16)
    # 6·7.6e9·1.817e6 / (130.7 s · 8 · 0.258) = 308 TFLOP/s: an A100 in verl's table
    assert case.scenario["cluster"]["gpu"] == "a100-80g"
    assert case.measured["gen_s"] == 64.891


def test_verl_documentation() -> None:
    case = rl.convert(RECORDS["verl-fa-7b-async-32-32"])
    assert (case.scenario["placement"], case.scenario["schedule"]) == ("disaggregated", "async")
    assert case.scenario["workload"]["prompts"] == 32 * 4 * 4
    assert (case.scenario["trainer"]["gpus"], case.scenario["rollout"]["gpus"]) == (32, 32)
    assert list(case.measured) == ["step_time_s"], "in asynchronous runs `gen` is a wait"


def test_phases_of_a_step_add_up_to_less_than_it() -> None:
    priced, found = rl_price.price(rl.convert(RECORDS["log-ppo-qwen2.5-0.5b-1gpu-s1-9"]))
    parts = {name: p.seconds for name, p in priced.items()}
    assert set(parts) == {"gen_s", "ref_s", "values_s", "update_critic_s", "update_actor_s"}
    assert sum(parts.values()) < found.seconds


def test_padding_costs_what_the_limits_are() -> None:
    case = rl.convert(RECORDS["log-ppo-qwen2.5-0.5b-1gpu-s1-9"])
    assert case.padded == 1024 + 512
    padded, _ = rl_price.price(case)
    packed, _ = rl_price.price(replace(case, padded=None))
    assert padded["ref_s"].seconds > packed["ref_s"].seconds


@pytest.mark.parametrize(
    ("written", "found"),
    [
        ("Qwen2.5-0.5B-Instruct (actor, ref, critic)", "Qwen/Qwen2.5-0.5B"),
        ("LLAMA3.1_405B", "meta-llama/Llama-3.1-405B"),
        ("DeepSeek-V3 FP8", "deepseek-ai/DeepSeek-V3"),
        ("GLM-4.5-Air (BF16)", "zai-org/GLM-4.5-Air"),
        ("R1-Distill-Qwen-7B", "Qwen/Qwen2.5-Math-7B"),
    ],
)
def test_models(written: str, found: str) -> None:
    assert names.model(written) == found


@pytest.mark.parametrize(
    ("written", "found"),
    [("H100 HBM3", "h100-sxm"), ("NVIDIA GB300 (NVL72)", "gb300"), ("L20 48GB", "l20"), ("H20", "h20")],
)
def test_gpus(written: str, found: str) -> None:
    assert names.gpu(written) == found


def test_what_is_not_in_the_catalog() -> None:
    with pytest.raises(SkipError, match="not in the catalog"):
        names.model("Qwen3.6-27B")
    with pytest.raises(SkipError, match="in the catalog"):
        names.gpu("Tesla T4")


def test_every_unpredicted_record_says_why() -> None:
    bad = replace(OWN, config={**OWN.config, "model": "nobody/knows"})
    (row,) = predict.rows_of(bad, {})
    assert (row.status, row.predicted) == (SKIPPED, None)
    assert "not in the catalog" in row.note
    (row,) = predict.rows_of(replace(OWN, spec="C"), {})
    assert row.note == "grade C: listed, not scored"


def test_a_step_number_is_no_time() -> None:
    record = replace(OWN, measured={"steps_verbatim": [{"step": 53, "step_s": 10.0}, {"step": 54, "step_s": 12.0}]})
    assert facts.timers(record)["step_time_s"] == 11.0
