"""Tornado, Sobol and Morris: every figure is that of a direct simulation, and the indices find what matters."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import rlsim
from rlsim.catalog.profiles import profile
from rlsim.errors import UserError
from rlsim.plan import indices
from rlsim.plan.sensitivity import Sensitivity
from rlsim.plan.uncertain import inputs_of, used
from tests.plan.small import TEXT

SEVEN = str(Path(__file__).parents[2] / "scenarios" / "7b_64gpu.yaml")
OVER = ["nic", "response_tokens.mean=150..250", "profile.gemm_derate", "profile.step_fixed_s"]
BOTH = (
    TEXT
    + """
placement: colocated
variant: shared
variants:
  apart: {placement: disaggregated, trainer: {gpus: 4}, rollout: {gpus: 4}}
"""
)


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> str:
    file = tmp_path_factory.mktemp("small") / "small.yaml"
    file.write_text(BOTH)
    return str(file)


@pytest.fixture(scope="module")
def tornado(small: str) -> Sensitivity:
    return rlsim.sensitivity(small, OVER, jobs=1)


def step_time(file: str, *sets: str, variant: str = "shared", **values: float) -> float:
    scenario = rlsim.load_scenario(file, sets, variant).variants[0]
    return float(rlsim.simulate(scenario, steps=2, profile=values).summary()["step_time_s"]["mean"])


def test_ends_are_those_of_direct_simulations(tornado: Sensitivity, small: str) -> None:
    by_key = {effect.input.key: effect for effect in tornado.effects}
    assert tornado.base == step_time(small)
    mean = by_key["workload.response_tokens.mean"]
    assert mean.at_low == step_time(small, "workload.response_tokens.mean=150")
    assert mean.at_high == step_time(small, "workload.response_tokens.mean=250")
    fixed = by_key["profile.step_fixed_s"]
    known = profile("verl").parameters["step_fixed_s"]
    assert fixed.at_low == step_time(small, step_fixed_s=known.low)
    assert fixed.at_high == step_time(small, step_fixed_s=known.high)


def test_largest_swing_comes_first(tornado: Sensitivity) -> None:
    swings = [effect.swing or 0.0 for effect in tornado.effects]
    assert len(swings) == len(OVER)
    assert swings == sorted(swings, reverse=True)
    assert swings[0] > 0


def test_a_parameter_that_is_not_read_changes_nothing(small: str) -> None:
    report = rlsim.check(rlsim.load_scenario(small, variant="shared").variants[0])
    read, known = used(report), report.system.profile.parameters
    unread = {name: one.high for name, one in known.items() if name not in read and one.high > one.value}
    assert len(unread) > 10
    assert step_time(small, **unread) == step_time(small)


def test_defaults_cover_profile_and_scenario(small: str) -> None:
    report = rlsim.check(rlsim.load_scenario(small, variant="shared").variants[0])
    inputs, unread = inputs_of([report], (), priced=False)
    keys = {one.key for one in inputs}
    wanted = {"workload.response_tokens.mean", "workload.response_tokens.sigma", "cluster.nic"}
    assert wanted | {"rollout.memory_utilization", "profile.gemm_derate", "profile.engine_step_base_s"} <= keys
    assert not keys & set(unread)
    assert "profile.lora_kernel_factor" in unread
    assert "costs.gpu_hour" not in keys
    assert "costs.gpu_hour" in {one.key for one in inputs_of([report], (), priced=True)[0]}


def test_margin_is_of_two_variants(small: str) -> None:
    answer = rlsim.sensitivity(small, ["response_tokens.mean=150..250"], metric="margin")
    assert answer.metric.variants == ("shared", "apart")
    assert answer.base == step_time(small, variant="apart") / step_time(small) - 1
    long = "workload.response_tokens.mean=250"
    expected = step_time(small, long, variant="apart") / step_time(small, long) - 1
    assert answer.effects[0].at_high == expected
    signs = {end < 0 for end in (answer.effects[0].at_low, answer.effects[0].at_high, answer.base) if end is not None}
    assert answer.as_dict()["inputs"][0]["flips"] == (len(signs) == 2)


def test_sobol_indices_of_a_known_function() -> None:
    """y = 3a + b, independent and uniform: variances 9/12 and 1/12, hence 0.9 and 0.1, without interaction."""
    shares = indices.points("sobol", 3, 256, 0)
    values = 3 * shares[:, 0] + shares[:, 1]
    found = indices.indices("sobol", shares, values, 0)
    assert [one.first for one in found] == pytest.approx([0.9, 0.1, 0.0], abs=0.03)
    assert [one.total for one in found] == pytest.approx([0.9, 0.1, 0.0], abs=0.03)


def test_morris_effects_of_a_known_function() -> None:
    """y = 3a + b²: over the whole range 3 and on average 1; only the second depends on where it is."""
    shares = indices.points("morris", 2, 40, 0)
    values = 3 * shares[:, 0] + shares[:, 1] ** 2
    a, b = indices.indices("morris", shares, values, 0)
    assert a.mu_star == pytest.approx(3)
    assert a.sigma == pytest.approx(0, abs=1e-9)
    assert b.mu_star == pytest.approx(1, abs=0.15)
    assert b.sigma is not None
    assert b.sigma > 0.1


def test_groups_with_a_hole_are_left_out_as_a_whole() -> None:
    values: list[float | None] = [1.0] * 12
    values[5] = None
    assert indices.whole("sobol", values, 2).tolist() == [True] * 4 + [False] * 4 + [True] * 4
    assert np.array_equal(indices.whole("morris", values, 2), [True] * 3 + [False] * 3 + [True] * 6)


@pytest.mark.parametrize(("method", "samples"), [("sobol", 16), ("morris", 6)])
def test_all_at_once_finds_the_same_leader(small: str, method: str, samples: int) -> None:
    over = ["response_tokens.mean=150..250", "profile.gemm_derate"]
    answer = rlsim.sensitivity(small, over, method=method, samples=samples)  # type: ignore[arg-type]
    assert answer.sampled is not None
    assert answer.sampled.dropped == 0
    assert answer.sampled.points == samples * indices.size(method, 2)  # type: ignore[arg-type]
    row = answer.as_dict()["inputs"][0]
    assert row["key"] == "workload.response_tokens.mean"
    assert row["total" if method == "sobol" else "mu_star"] > 0.5 * (1 if method == "sobol" else row["swing"])


def test_a_killed_one_goes_on(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "rlsim", "sensitivity", SEVEN, "--jobs", "2", "--json", "--out"]
    command[5:5] = [
        part for name in ("nic", "profile.gemm_derate", "response_tokens.mean") for part in ("--over", name)
    ]
    command[5:5] = ["--method", "morris", "--samples", "6"]
    parts = tmp_path / "killed" / "parts"
    running = subprocess.Popen([*command, str(tmp_path / "killed")], start_new_session=True, stdout=subprocess.DEVNULL)
    deadline = time.monotonic() + 60
    while len(list(parts.glob("*.parquet")) if parts.is_dir() else []) < 4:
        assert running.poll() is None
        assert time.monotonic() < deadline
        time.sleep(0.02)
    running.send_signal(signal.SIGKILL)
    running.wait()
    kept = {file: os.stat(file).st_mtime_ns for file in parts.glob("*.parquet")}
    done = sum(len(pd.read_parquet(file)) for file in kept)
    answers = [
        json.loads(subprocess.run([*command, str(tmp_path / name)], check=True, capture_output=True).stdout)
        for name in ("killed", "whole")
    ]
    assert {file: os.stat(file).st_mtime_ns for file in kept} == kept
    assert answers[0].pop("simulations") + done == answers[1].pop("simulations") == 7 + 24
    assert answers[0] == answers[1]


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"over": ["nic=25GB/s"]}, "is not a range"),
        ({"over": ["trainer.tp"]}, "no range is known"),
        ({"over": ["nic", "cluster.nic"]}, "given twice"),
        ({"method": "sobol", "samples": 12}, "not a power of 2"),
        ({"samples": 4}, "has no samples"),
        ({"method": "fast"}, "tornado, sobol or morris"),
        ({"metric": "margin", "between": ("shared", "nobody")}, "no variant 'nobody'"),
        ({"metric": "phases_s.onlode"}, "onload"),
    ],
)
def test_mistakes_say_what_would_be_right(small: str, arguments: dict[str, object], words: str) -> None:
    with pytest.raises(UserError, match=words):
        rlsim.sensitivity(small, **arguments)  # type: ignore[arg-type]
