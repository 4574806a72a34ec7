"""Sweeps as a user meets them: real processes, a real kill, a real Ray."""

from __future__ import annotations

import json
import multiprocessing
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pandas as pd
import pytest

import rlsim
from rlsim.errors import UserError
from rlsim.plan.case import Case, evaluate, read_study
from rlsim.plan.workers import engine

SEVEN = str(Path(__file__).parents[2] / "scenarios" / "7b_64gpu.yaml")
SMALL = ["workload.prompts=64"]
OVER = ["nic=25GB/s,50GB/s,100GB/s", "response_tokens.max=1024,512,100"]


@pytest.fixture(scope="module")
def alone(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One process, kept in a folder: what every other way has to give."""
    out = tmp_path_factory.mktemp("alone")
    rlsim.sweep(SEVEN, OVER, sets=SMALL, variant="one-step-off", steps=1, jobs=1, out=out)
    return out


def equal(a: Path, b: Path) -> bool:
    return all((a / name).read_bytes() == (b / name).read_bytes() for name in ("sweep.csv", "sweep.parquet"))


def test_figures_are_those_of_a_run(alone: Path) -> None:
    table = pd.read_parquet(alone / "sweep.parquet")
    assert list(table["point"]) == list(range(9))
    row = table[(table["cluster.nic"] == 50e9) & (table["workload.response_tokens.max"] == 512)].iloc[0]
    sets = [*SMALL, "cluster.nic=50GB/s", "workload.response_tokens.max=512"]
    summary = rlsim.simulate(rlsim.load_scenario(SEVEN, sets, "one-step-off").variants[0], steps=1).summary()
    assert row["step_time_s.mean"] == summary["step_time_s"]["mean"]
    assert row["weight_sync.seconds"] == summary["weight_sync"]["seconds"]


def test_a_point_that_fails_is_recorded_and_the_others_go_on(alone: Path) -> None:
    table = pd.read_csv(alone / "sweep.csv")
    failed = table[table["workload.response_tokens.max"] == 100]
    assert set(failed["status"]) == {"error"}
    assert failed["message"].str.contains("mean 253.715 is above max 100").all()
    assert failed["step_time_s.mean"].isna().all()
    assert (table["status"] == "ok").sum() == 6


def test_what_does_not_fit_is_recorded_with_the_nearest_change() -> None:
    answer = rlsim.sweep(
        SEVEN, {"trainer.gpus": [8, 64], "rollout.gpus": "64"}, sets=["model=Qwen/Qwen2.5-72B"], jobs=1
    )
    assert answer.variants[0] == "colocated-sync"
    rows = {row.outcome.status: row for row in answer.rows}
    assert "infeasible" in rows
    assert "trainer" in rows["infeasible"].outcome.message


@pytest.mark.parametrize("way", [{"jobs": 2}, {"ray": "local", "jobs": 2}], ids=["two processes", "Ray"])
def test_the_table_is_the_same_bytes_whatever_ran_it(alone: Path, tmp_path: Path, way: dict[str, object]) -> None:
    answer = rlsim.sweep(SEVEN, OVER, sets=SMALL, variant="one-step-off", steps=1, out=tmp_path, **way)  # type: ignore[arg-type]
    assert answer.simulated == 9
    assert equal(alone, tmp_path)


def test_a_killed_sweep_goes_on_without_repeating_or_losing_points(tmp_path: Path) -> None:
    over = ["--over", "nic=" + ",".join(f"{n} GB/s" for n in range(10, 34)), "--steps", "2"]
    over += ["--variant", "colocated-sync"]
    command = [sys.executable, "-m", "rlsim", "sweep", SEVEN, *over, "--jobs", "2"]
    killed, whole = tmp_path / "killed", tmp_path / "whole"
    parts = killed / "parts"
    running = subprocess.Popen([*command, "--out", str(killed)], start_new_session=True)
    deadline = time.monotonic() + 60
    while len(list(parts.glob("*.parquet")) if parts.is_dir() else []) < 4:
        assert running.poll() is None
        assert time.monotonic() < deadline
        time.sleep(0.02)
    running.send_signal(signal.SIGKILL)
    running.wait()
    kept = {name: os.stat(name).st_mtime_ns for name in parts.glob("*.parquet")}
    done = sum(len(pd.read_parquet(name)) for name in kept)
    assert 4 <= done < 24
    told = subprocess.run([*command, "--out", str(killed)], check=True, capture_output=True, text=True)
    assert f"{24 - done} simulated now" in told.stdout
    assert told.stderr == ""
    assert {name: os.stat(name).st_mtime_ns for name in kept} == kept
    numbers = [n for name in parts.glob("*.parquet") for n in pd.read_parquet(name)["case"]]
    assert sorted(numbers) == list(range(24))
    subprocess.run([*command, "--out", str(whole)], check=True, capture_output=True)
    assert equal(killed, whole)
    assert not _of_group(running.pid)


def _of_group(group: int) -> list[int]:
    """Processes of a session that still live, after the time that orphans have to notice."""
    deadline = time.monotonic() + 5
    while True:
        found = []
        for entry in Path("/proc").iterdir():
            if entry.name.isdigit():
                try:
                    fields = (entry / "stat").read_text().rpartition(")")[2].split()
                except OSError:
                    continue
                if int(fields[3]) == group and fields[0] != "Z":
                    found.append(int(entry.name))
        if not found or time.monotonic() > deadline:
            return found
        time.sleep(0.1)


def test_a_process_that_dies_takes_no_point_along() -> None:
    study = read_study(SEVEN, tuple(SMALL), 1, None)
    cases = [Case("colocated-sync", (("cluster.nic", f"{n} GB/s"),)) for n in range(20, 32)]
    found = {}
    with engine(study, jobs=2) as workers:
        for round_, done in enumerate(workers.run(cases)):
            found.update(done)
            if round_ == 0:
                child = multiprocessing.active_children()[0]
                os.kill(child.pid or 0, signal.SIGKILL)
    assert sorted(found) == list(range(12))
    assert {o.status for o in found.values()} == {"ok"}
    assert found[5].values == evaluate(study, cases[5]).values


def test_another_sweep_does_not_go_into_the_folder(alone: Path) -> None:
    with pytest.raises(UserError, match=r"holds another sweep \(not the same: over\)"):
        rlsim.sweep(SEVEN, ["nic=25GB/s"], sets=SMALL, variant="one-step-off", steps=1, out=alone)
    with pytest.raises(UserError, match="variants"):
        rlsim.sweep(SEVEN, OVER, sets=["workload.prompts=32"], variant="one-step-off", steps=1, out=alone)


def test_a_folder_in_use_is_refused(alone: Path) -> None:
    import fcntl

    with (alone / ".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        with pytest.raises(UserError, match="by another sweep that runs now"):
            rlsim.sweep(SEVEN, OVER, sets=SMALL, variant="one-step-off", steps=1, out=alone)


@pytest.mark.parametrize("address", ["localhost:1", "ray://localhost:1"])
def test_an_address_without_a_cluster_is_one_message(address: str) -> None:
    with pytest.raises(UserError, match=f"no Ray cluster at '{address}'"):
        rlsim.sweep(SEVEN, ["nic=25GB/s"], ray=address)


def test_json_has_every_row(alone: Path) -> None:
    command = [sys.executable, "-m", "rlsim", "sweep", SEVEN, "--out", str(alone), "--steps", "1", "--json"]
    command += [part for over in OVER for part in ("--over", over)]
    command += ["--variant", "one-step-off", "--set", SMALL[0], "--metric", "step_time"]
    answer = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
    assert (answer["ok"], answer["infeasible"], answer["error"]) == (6, 0, 3)
    assert len(answer["rows"]) == 9
    assert set(answer["rows"][0]["figures"]) == {"step_time_s.mean"}
    assert answer["rows"][2]["message"].startswith(SEVEN)
