"""The memory of a step agrees with the memory model in every phase, and covers the step."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import pytest

from rlsim.api import check, simulate
from rlsim.memory_report import GIB
from rlsim.memory_timeline import occupancies, peaks, state_of
from rlsim.scenario import Scenario
from tests.layout_cases import case

QWEN7 = "Qwen/Qwen2.5-7B"
SMALL = {"prompts": 16, "group_size": 2}


def scenario(workload: dict[str, Any] | None = None, **blocks: Any) -> Scenario:
    trainer = {"gpus": 8, "backend": "fsdp2", "param_dtype": "bf16", **blocks.pop("trainer", {})}
    return case(QWEN7, trainer, workload={**SMALL, **(workload or {})}, **blocks)


@pytest.mark.parametrize(
    ("workload", "blocks"),
    [
        ({"reference_model": True}, {}),
        ({"algorithm": "ppo"}, {}),
        ({"algorithm": "ppo"}, {"offload": {"optimizer": False, "params": False}}),
        ({"algorithm": "ppo", "reference_model": True}, {"placement": "disaggregated"}),
        ({}, {"trainer": {"backend": "megatron", "tp": 2}, "rollout": {"gpus": 8, "tp": 2}}),
    ],
)
def test_every_state_adds_up_to_its_moment(workload: dict[str, Any], blocks: dict[str, Any]) -> None:
    report = check(scenario(workload, **blocks))
    main = occupancies(report.system, report.memory)[0]
    shared = report.memory.moments.keys() & main.states.keys()
    assert {"train", "logprob"} <= shared
    for name in shared:
        assert sum(main.states[name].values()) == pytest.approx(report.memory.moments[name].total), name
    top = max(report.memory.trainer.total, report.memory.rollout.total if report.system.colocated else 0.0)
    assert peaks([main])[0]["gib"] * GIB == pytest.approx(top)


def test_adam_is_a_third_masters() -> None:
    report = check(scenario())
    train = occupancies(report.system, report.memory)[0].states["train"]
    # 12·7.616e9/8: 4 bytes of masters, 8 of moments a parameter; stored in fp32 there are only moments
    assert (train["master weights"], train["moments"]) == (
        pytest.approx(3.808e9, rel=1e-3),
        pytest.approx(7.616e9, rel=1e-3),
    )
    stored = check(scenario(trainer={"param_dtype": "fp32"}))
    parts = occupancies(stored.system, stored.memory)[0].states["train"]
    assert "master weights" not in parts
    assert parts["moments"] == pytest.approx(7.616e9, rel=1e-3)


@pytest.mark.parametrize("placement", ["colocated", "disaggregated"])
def test_rows_cover_the_step(placement: str) -> None:
    summary = simulate(scenario({"algorithm": "ppo", "reference_model": True}, placement=placement), steps=2).summary()
    main = [row for row in summary["memory_timeline"] if row["role"] in ("shared", "trainer")]
    assert main[0]["start"] == 0.0
    assert all(a["end"] == pytest.approx(b["start"]) for a, b in pairwise(main))
    assert main[-1]["end"] == pytest.approx(summary["step_time_s"]["mean"], rel=0.2)
    phases = [row["phase"] for row in main]
    assert phases[-3:] == ["logprob", "reference", "train"]
    if placement == "colocated":
        assert phases[:3] == ["offload", "weight sync", "rollout"]
        assert phases.index("critic update") < phases.index("critic offload") < phases.index("onload")
    roles = [peak["role"] for peak in summary["memory_peak"]]
    assert roles == (["shared"] if placement == "colocated" else ["trainer", "rollout"])
    for peak in summary["memory_peak"]:
        rows = [sum(row["parts_gib"].values()) for row in summary["memory_timeline"] if row["role"] == peak["role"]]
        assert max(rows) == pytest.approx(peak["gib"])


def test_labels_without_a_state_are_idle() -> None:
    states = {"idle": {}, "train": {}, "critic update": {}}
    assert state_of("train", "trainer", states) == "train"
    assert state_of("train", "critic", states) == "critic update"
    assert state_of("wait_rollout", None, states) == "idle"
    assert state_of("reward", None, states) == "idle"
