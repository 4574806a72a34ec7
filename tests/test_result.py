"""The summary is exactly the contract, and the tables agree with it."""

from __future__ import annotations

import json
import sys
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

sys.path.insert(0, str(Path(__file__).parent / "sim"))

from prices_by_hand import Controller, Hand, Memory, Reward, Sync, Training, fixed, regime, uniform

from rlsim.result import Labels, Result, infeasible_summary, simulate
from rlsim.sim.prices import Gpus

LABELS = Labels("by-hand", "base", 7)
HAND = Hand(
    training=Training(update_seconds=3.0, logprob_seconds=2.0, flops=6e15),
    sync=Sync(seconds=0.5, transfer_seconds=0.25, floor_seconds=0.125),
    offload=0.25,
    onload=0.25,
    controller=Controller(step_fixed_seconds=1.0),
    reward=Reward(0.5),
)
CONTRACT: dict[str, Any] = {
    "step_time_s": {"mean", "p50", "p90", "min", "max", "ci95"},
    "phases_s": {
        *("rollout", "reward", "logprob", "reference", "train", "weight_sync", "offload", "onload"),
        *("wait_rollout", "wait_trainer", "other"),
    },
    "rollout_pool_s": {"generate", "prefill", "weight_sync", "reprefill", "wait_trainer", "idle"},
    "other_s": {"controller", "checkpoint", "evaluation", "restart", "lost"},
    "utilization": {"trainer", "rollout", "all"},
    "kv": {"swap_s", "swapped_tokens", "reused_tokens", "evicted_tokens"},
    "tail": {"seconds", "share"},
    "staleness": {"mean", "p99", "max"},
    "staleness_updates": {"mean", "max"},
    "spans": {"mean", "max"},
    "weight_sync": {
        *("strategy", "bytes_total", "bytes_max_per_gpu", "seconds", "floor_seconds", "transfer_seconds"),
        *("exposed_seconds", "lost_generation_seconds", "lost", "delta"),
    },
    "memory_gib": {"trainer_peak", "rollout_peak", "host_peak"},
    "samples": {"trained", "dropped", "aborted", "in_flight"},
    "tokens": {"generated", "trained", "wasted", "reprefilled", "evaluated"},
    "response_tokens": {"drawn", "trained"},
    "cost": {"usd_per_step", "usd_per_1000_steps", "gpu_hours_per_step", "usd_by_pool", "kwh_per_step"},
    "prediction_interval_s": {"p10", "p90"},
    "provenance": {"measured", "scaled", "roofline"},
}
PLAIN = {
    *("name", "variant", "seed", "steps", "warmup_steps", "feasible", "problems", "bottleneck"),
    *("tokens_per_s", "tokens_per_s_per_gpu", "samples_per_s", "effective_tokens_per_s", "goodput", "mfu_train"),
    *("mean_running_batch", "preemptions", "kv_tokens_per_engine", "engines", "assumptions", "early_logprob_s"),
    *("staleness_histogram", "checkpoint", "lending", "memory_timeline", "memory_peak", "offload_ledger"),
}


def run(schedule: str = "sync", steps: int = 3, hand: Hand = HAND, tokens: int = 100, **more: Any) -> Result:
    rules = regime(schedule, **more)
    return simulate(rules, hand.costs(), fixed(tokens, rules.prompts, rules.group_size), LABELS, steps)


@pytest.mark.parametrize("schedule", ["sync", "one-step-off", "async"])
def test_the_summary_has_the_contracts_names(schedule: str) -> None:
    summary = run(schedule).summary()
    assert set(summary) == PLAIN | set(CONTRACT)
    for name, fields in CONTRACT.items():
        if name == "tail" and schedule == "async":
            assert summary["tail"] is None
        else:
            assert set(summary[name]) == fields, name
    assert json.loads(json.dumps(summary, allow_nan=False)) == summary


def test_figures_on_paper() -> None:
    # offload .25, sync .5, rollout 1.0, reward .5, onload .25, other 1.0, log-prob 2, update 3: 8.5 s.
    hand = replace(HAND, gpus=Gpus(16, 16, 16))
    summary = run(colocated=True, hand=hand).summary()
    assert summary["step_time_s"]["mean"] == pytest.approx(8.5)
    assert summary["step_time_s"]["ci95"] == pytest.approx(0.0, abs=1e-9)
    tokens = 4 * 2 * (16 + 100)  # each sample's prompt counts
    assert summary["tokens"]["trained"] == 3 * tokens
    assert summary["tokens"]["generated"] == 3 * 800
    assert summary["tokens_per_s"] == pytest.approx(tokens / 8.5)
    assert summary["tokens_per_s_per_gpu"] == pytest.approx(tokens / 8.5 / 16)
    assert summary["samples_per_s"] == pytest.approx(8 / 8.5)
    assert summary["mfu_train"] == pytest.approx(6e15 / (3.0 * 16 * 1e15))
    assert summary["cost"]["usd_per_step"] == pytest.approx(16 * 8.5 / 3600 * 2)
    assert summary["cost"]["gpu_hours_per_step"] == pytest.approx(16 * 8.5 / 3600)
    assert summary["utilization"] == pytest.approx({"trainer": 5 / 8.5, "rollout": 1 / 8.5, "all": 6 / 8.5})
    assert summary["memory_gib"] == {"trainer_peak": 3.0, "rollout_peak": 4.0, "host_peak": 8.0}
    assert summary["mean_running_batch"] == pytest.approx(3.96)  # 4 each; one iteration of 100 is the prompts'
    # Priced seconds: 1.0 measured (engines), 0.5 scaled (sync), the rest but the reward roofline.
    assert summary["provenance"] == pytest.approx({"measured": 1 / 8, "scaled": 0.5 / 8, "roofline": 6.5 / 8})
    assert summary["weight_sync"]["exposed_seconds"] == summary["weight_sync"]["lost_generation_seconds"] == 0.5
    assert summary["bottleneck"].startswith("The update decides: 3.0 of 8.5 s (35%)")
    band = summary["prediction_interval_s"]
    assert band["p10"] < 8.5 < band["p90"]


def test_disaggregated_utilization_is_weighted_by_gpus() -> None:
    summary = run().summary()
    step = summary["step_time_s"]["mean"]
    assert summary["utilization"]["all"] == pytest.approx((5 * 8 + 1 * 16) / (24 * step))


def test_one_step_has_no_confidence_interval() -> None:
    assert run(steps=1).summary()["step_time_s"]["ci95"] is None


def test_learning_efficiency_is_an_input() -> None:
    # Linear between the points and level beyond: one version late is worth 1 - 0.2/2, and all samples are.
    summary = run("one-step-off", worth=((0.0, 1.0), (2.0, 0.8))).summary()
    assert summary["effective_tokens_per_s"] == pytest.approx(0.9 * summary["tokens_per_s"])
    assert summary["staleness_histogram"] == {"1": 24}
    assert run("sync", worth=((1.0, 0.5), (2.0, 0.2))).summary()["effective_tokens_per_s"] == pytest.approx(
        0.5 * run("sync").summary()["tokens_per_s"]
    )


def test_the_histogram_counts_every_trained_sample_once() -> None:
    summary = run("async", tokens=500, max_staleness=3, on_sync="in-flight").summary()
    histogram = {int(late): count for late, count in summary["staleness_histogram"].items()}
    assert sum(histogram.values()) == summary["samples"]["trained"]
    assert max(histogram) == summary["staleness"]["max"]
    mean = sum(late * count for late, count in histogram.items()) / sum(histogram.values())
    assert mean == pytest.approx(summary["staleness"]["mean"])
    assert 1 <= summary["spans"]["mean"] <= summary["spans"]["max"] <= summary["staleness"]["max"] + 1


def test_an_infeasible_variant_says_why_and_nothing_else() -> None:
    problem = SimpleNamespace(role="trainer", need=2 * 2.0**30, have=2.0**30, by="weights 2.0 GiB", fix="trainer.tp: 2")
    summary = infeasible_summary(LABELS, regime("async", max_staleness=2), 20, Memory(problems=(problem,)))
    assert set(summary) == PLAIN | set(CONTRACT)
    assert summary["feasible"] is False
    assert summary["problems"] == [
        {"role": "trainer", "need_gib": 2.0, "have_gib": 1.0, "by": "weights 2.0 GiB", "fix": "trainer.tp: 2"}
    ]
    assert (summary["steps"], summary["warmup_steps"]) == (20, 3)
    stated = {"name", "variant", "seed", "steps", "warmup_steps", "feasible", "problems"}
    assert all(summary[name] is None for name in set(summary) - stated)


def test_tables_hold_what_the_summary_says() -> None:
    rules = regime("async", max_staleness=2, on_sync="interrupt")
    result = simulate(rules, HAND.costs(), uniform(50, 900, 4, 2), LABELS, 6)
    summary = result.summary()
    assert result.steps["step"].tolist() == list(range(6))
    assert result.steps["step_time"].mean() == pytest.approx(summary["step_time_s"]["mean"])
    measured = result.samples[result.samples["step"] >= 0]
    assert len(measured) == summary["samples"]["trained"]
    assert measured["staleness"].mean() == pytest.approx(summary["staleness"]["mean"])
    begin, end = result.window(2)
    assert (begin, end) == (result.steps["start"][0], result.steps["end"][1])
    assert set(result.spans["track"]) >= {"trainer", "rollout", "controller"}
    counters = result.counters
    assert list(counters.columns) == ["time", "running", "kv_tokens"]
    assert (np.diff(counters["time"]) >= 0).all()
    assert counters["running"].max() <= summary["samples"]["in_flight"] + 8 * 8


@pytest.mark.parametrize("schedule", ["one-step-off", "async"])
def test_who_sets_the_pace(schedule: str) -> None:
    assert run(schedule, max_staleness=2).summary()["bottleneck"].startswith("The trainer sets the pace")
    slow = run(schedule, tokens=5000, max_staleness=2, on_sync="in-flight")
    assert slow.summary()["bottleneck"].startswith("The rollout sets the pace")
