"""The command line as a user meets it: real files, real processes' exit codes, the JSON contract."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pandas as pd
import pytest
from typer.testing import CliRunner, Result

from rlsim.cli import app
from rlsim.errors import UserError

SCENARIOS = Path(__file__).parents[1] / "scenarios"
SEVEN = str(SCENARIOS / "7b_64gpu.yaml")
SMALL = ["--set", "workload.prompts=64", "--steps", "2"]
CONTRACT = {
    "name": None,
    "variant": None,
    "seed": None,
    "steps": None,
    "warmup_steps": None,
    "feasible": None,
    "problems": None,
    "step_time_s": {"mean", "p50", "p90", "min", "max", "ci95"},
    "phases_s": {
        "rollout",
        "reward",
        "logprob",
        "reference",
        "train",
        "weight_sync",
        "offload",
        "onload",
        "wait_rollout",
        "wait_trainer",
        "other",
    },
    "rollout_pool_s": {"generate", "prefill", "weight_sync", "reprefill", "wait_trainer", "idle"},
    "other_s": {"controller", "checkpoint", "evaluation", "restart", "lost"},
    "bottleneck": None,
    "tokens_per_s": None,
    "tokens_per_s_per_gpu": None,
    "samples_per_s": None,
    "effective_tokens_per_s": None,
    "goodput": None,
    "utilization": {"trainer", "rollout", "all"},
    "mfu_train": None,
    "mean_running_batch": None,
    "preemptions": None,
    "kv": {"swap_s", "swapped_tokens", "reused_tokens", "evicted_tokens"},
    "tail": {"seconds", "share"},
    "staleness": {"mean", "p99", "max"},
    "staleness_histogram": None,
    "lending": None,
    "spans": None,
    "staleness_updates": {"mean", "max"},
    "weight_sync": {
        "strategy",
        "bytes_total",
        "bytes_max_per_gpu",
        "seconds",
        "floor_seconds",
        "transfer_seconds",
        "exposed_seconds",
        "lost_generation_seconds",
        "lost",
        "delta",
    },
    "memory_gib": {"trainer_peak", "rollout_peak", "host_peak"},
    "memory_timeline": None,
    "memory_peak": None,
    "offload_ledger": None,
    "kv_tokens_per_engine": None,
    "engines": None,
    "samples": {"trained", "dropped", "aborted", "in_flight"},
    "tokens": {"generated", "trained", "wasted", "reprefilled", "evaluated"},
    "response_tokens": {"drawn", "trained"},
    "early_logprob_s": None,
    "cost": {"usd_per_step", "usd_per_1000_steps", "gpu_hours_per_step", "usd_by_pool", "kwh_per_step"},
    "checkpoint": None,
    "prediction_interval_s": {"p10", "p90"},
    "provenance": {"measured", "scaled", "roofline"},
    "assumptions": None,
}


def call(*arguments: str) -> Result:
    return CliRunner().invoke(app, list(arguments), catch_exceptions=True)


def answer(*arguments: str) -> dict[str, object]:
    result = call(*arguments)
    assert result.exit_code == 0, result.output + repr(result.exception)
    return json.loads(result.stdout)  # type: ignore[no-any-return]


@pytest.fixture(scope="module")
def small() -> dict[str, object]:
    return answer("run", SEVEN, *SMALL, "--json")


def test_json_has_exactly_the_keys_of_the_contract(small: dict[str, object]) -> None:
    assert set(small) == {"variants"}
    for variant in small["variants"]:
        assert set(variant) == set(CONTRACT)
        for key, inner in CONTRACT.items():
            if inner is not None and variant[key] is not None:
                assert set(variant[key]) == inner, key


def test_four_regimes_in_the_order_of_the_file(small: dict[str, object]) -> None:
    names = [v["variant"] for v in small["variants"]]
    assert names == ["colocated-sync", "disaggregated-sync", "one-step-off", "async"]


def test_phases_and_pool_account_add_up_to_the_step(small: dict[str, object]) -> None:
    for variant in small["variants"]:
        step = variant["step_time_s"]["mean"]
        assert sum(variant["phases_s"].values()) == pytest.approx(step, rel=1e-9)
        assert sum(variant["rollout_pool_s"].values()) == pytest.approx(step, rel=1e-9)
        low, high = variant["prediction_interval_s"]["p10"], variant["prediction_interval_s"]["p90"]
        assert low < step < high
        assert sum(variant["provenance"].values()) == pytest.approx(1.0)


def test_same_file_and_seed_give_the_same_bytes() -> None:
    arguments = ("run", SEVEN, *SMALL, "--json", "--variant", "async")
    assert call(*arguments).stdout == call(*arguments).stdout


def test_out_writes_everything(tmp_path: Path) -> None:
    result = call("run", SEVEN, *SMALL, "--out", str(tmp_path / "o"), "--variant", "one-step-off")
    assert result.exit_code == 0, result.output
    out = tmp_path / "o"
    assert json.loads((out / "summary.json").read_text())["variants"][0]["variant"] == "one-step-off"
    steps, samples, spans = (pd.read_parquet(out / f"{n}.parquet") for n in ("steps", "samples", "spans"))
    assert len(steps) == 2
    assert (samples["step"] >= 0).sum() == 2 * 64 * 5
    assert {"variant", "start", "end", "track"} <= set(spans.columns)
    trace = json.loads((out / "trace.json").read_text())["traceEvents"]
    assert {e["ph"] for e in trace} == {"M", "X", "C"}
    assert all(e["dur"] >= 0 for e in trace if e["ph"] == "X")
    page = (out / "report.html").read_text()
    assert "Plotly.newPlot" in page
    assert 'src="http' not in page


def test_the_table_names_the_bottleneck_and_compares() -> None:
    text = call("run", SEVEN, *SMALL).stdout
    for word in ("step time", "colocated-sync", "Bottleneck", "Comparison", "floor"):
        assert word in text


def test_weight_sync_of_70b_shows_the_bytes_and_the_floor() -> None:
    """141.1 GB / 8 = 17.64 GB into each GPU; / 50 GB/s = 0.353 s."""
    file = str(SCENARIOS / "70b_weight_sync.yaml")
    sync = answer("run", file, "--steps", "1", "--json")["variants"][0]["weight_sync"]
    assert sync["bytes_max_per_gpu"] == pytest.approx(17.64e9, rel=1e-3)
    assert sync["floor_seconds"] == pytest.approx(0.353, rel=1e-2)
    assert sync["seconds"] > sync["floor_seconds"]


def test_an_infeasible_variant_is_an_answer() -> None:
    file = str(SCENARIOS / "memory_tight.yaml")
    variants = answer("run", file, "--steps", "1", "--json")["variants"]
    bad = [v for v in variants if not v["feasible"]]
    assert bad
    assert any(v["feasible"] for v in variants)
    assert bad[0]["step_time_s"] is None
    assert set(bad[0]["problems"][0]) == {"role", "need_gib", "have_gib", "by", "fix"}
    assert call("check", file).exit_code == 2
    alone = call("run", file, "--steps", "1", "--variant", bad[0]["variant"])
    assert alone.exit_code == 2
    assert "nearest change" in alone.stdout


def test_check_reports_layout_and_memory() -> None:
    text = call("check", SEVEN).stdout
    assert "fits" in text
    assert "KV tokens" in text
    assert answer("check", SEVEN, "--json")["variants"][0]["feasible"] is True


def test_diff_says_what_changed_and_what_it_did() -> None:
    told = answer("diff", f"{SEVEN}#one-step-off", f"{SEVEN}#async", "--steps", "1", "--json")
    assert told["changed"]["schedule"] == {"a": "one-step-off", "b": "async"}
    assert "train" in told["phases_s_change"]


@pytest.mark.parametrize(
    "arguments", [(), ("gpus",), ("models",), ("gpus", "h20"), ("models", "deepseek-ai/DeepSeek-V3")]
)
def test_catalog(arguments: tuple[str, ...]) -> None:
    assert call("catalog", *arguments).exit_code == 0
    assert json.loads(call("catalog", *arguments, "--json").stdout)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("run", "missing.yaml"), ("missing.yaml", "no such file")),
        (("run", SEVEN, "--set", "cluster.gpuss=3"), ("cluster.gpuss", "cluster.gpus")),
        (("run", SEVEN, "--set", "cluster.nic=50 GHz"), ("cluster.nic", "GB/s")),
        (("run", SEVEN, "--variant", "asink"), ("asink", "async")),
        (("run", SEVEN, "--set", "cluster.gpu=h101"), ("h101", "h100-sxm")),
        (("run", SEVEN, "--set", "model=Qwen/Qwen9-7B"), ("Qwen9-7B",)),
        (("run", SEVEN, "--set", "rollout.tp=3"), ("rollout", "3")),
        (("run", SEVEN, "--set", "trainer.gpus=128"), ("gpus",)),
        (("run", SEVEN, "--set", "variants.asinc.trainer.tp=2"), ("no variant 'asinc'", "Fix: async")),
        (("run", SEVEN, "--set", "variants.asinc=2"), ("no variant 'asinc'", "Fix: async")),
        (("run", SEVEN, "--set", "cluster.gpu=a100-80g", "--set", "rollout.dtype=fp8"), ("rollout.dtype", "bf16")),
        (("run", SEVEN, "--out", ""), ("no name to write to",)),
        (("run", SEVEN, "--out", "/dev/full"), ("cannot write to /dev/full",)),
        (("run", SEVEN, "--out", "/proc/self"), ("cannot write to /proc/self",)),
        (("catalog", "gpus", "h99"), ("h99", "h100-sxm")),
        (("catalog", "planes"), ("planes",)),
    ],
)
def test_mistakes_are_one_message(arguments: tuple[str, ...], words: tuple[str, ...]) -> None:
    result = call(*arguments)
    assert isinstance(result.exception, UserError), result.output
    assert "\n" not in str(result.exception)
    for word in words:
        assert word in str(result.exception)


def test_a_mistake_in_the_file_exits_with_2_and_names_file_line_and_key(tmp_path: Path) -> None:
    file = tmp_path / "mine.yaml"
    file.write_text(Path(SEVEN).read_text().replace("gpu: h100-sxm", "gpu: h100-smx"))
    command = [sys.executable, "-m", "rlsim", "check", str(file)]
    result = subprocess.run(command, capture_output=True, text=True)
    assert result.returncode == 2
    assert result.stdout == ""
    assert result.stderr.count("\n") == 1
    assert f"{file}:5: cluster.gpu: " in result.stderr
    assert "h100-sxm" in result.stderr


def test_what_only_the_simulation_finds_out_has_its_line_too() -> None:
    file = SCENARIOS / "dynamic_sampling.yaml"
    result = call("run", str(file), "--set", "workload.pass_rate.mean=0.999", "--variant", "batch", "--steps", "1")
    error = result.exception
    assert isinstance(error, UserError)
    assert (error.file, error.key) == (str(file), "variants.batch.workload.dynamic_sampling.max_batches")
    assert "  batch:" in file.read_text(encoding="utf-8").splitlines()[(error.line or 0) - 1]


def test_a_variant_may_be_added_as_a_whole() -> None:
    told = answer("check", SEVEN, "--set", "variants.more={trainer: {micro_batch_tokens: 4096}}", "--json")
    assert [v["variant"] for v in told["variants"]][-1] == "more"


def test_a_table_that_cannot_be_written_is_one_message(tmp_path: Path) -> None:
    (tmp_path / "samples.parquet").symlink_to("/dev/full")
    result = call("run", SEVEN, *SMALL, "--out", str(tmp_path), "--variant", "one-step-off")
    assert isinstance(result.exception, UserError)
    assert "No space left" in str(result.exception)


def test_an_answer_that_cannot_be_written_is_one_message() -> None:
    with open("/dev/full", "w") as full:
        command = [sys.executable, "-m", "rlsim", "catalog", "gpus", "--json"]
        result = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, text=True)
    assert result.returncode == 2
    assert result.stderr == "error: the answer cannot be written: No space left on device\n"


def test_diff_with_a_side_that_does_not_fit_tells_of_the_other() -> None:
    result = call("diff", str(SCENARIOS / "memory_tight.yaml"), f"{SEVEN}#colocated-sync", "--steps", "1")
    assert result.exit_code == 2
    assert "tp4: does not fit" in result.stdout
    assert "A step of colocated-sync takes" in result.stdout
