"""`rlsim calibrate run` with real processes: rows of all that ran, an end to what fails or hangs."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from rlsim.calibrate.command import fit_tables
from rlsim.cli import app
from rlsim.errors import UserError
from rlsim.reshard.distributed import STRATEGIES
from validation import tables
from validation.microbench import suite
from validation.microbench.group import ROOT, Asked, end
from validation.microbench.suite import MODULES


def calibrate_run(*arguments: str, without: str | None = None, folder: Path | None = None) -> Any:
    """The command in a process of its own; `without`: a module that cannot be imported there nor in its children."""
    path = [str(ROOT)]
    if without is not None and folder is not None:
        (folder / "sitecustomize.py").write_text(f"import sys\nsys.modules[{without!r}] = None\n")
        path.insert(0, str(folder))
    return subprocess.run(
        [sys.executable, "-m", "rlsim", "calibrate", "run", *arguments],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(path)}, capture_output=True, text=True, timeout=120,
    )  # fmt: skip


@pytest.fixture(scope="module")
def ran(tmp_path_factory: pytest.TempPathFactory) -> tuple[int, dict[str, Any], Path]:
    """Everything at its smallest, where attention cannot be imported: exit code, JSON, folder."""
    folder = tmp_path_factory.mktemp("run")
    out = folder / "out"
    found = calibrate_run(
        "--quick", "--device", "cpu", "--out", str(out), "--json",
        without="validation.microbench.attention", folder=folder,
    )  # fmt: skip
    assert found.stdout, found.stderr
    return found.returncode, json.loads(found.stdout), out


def test_one_that_fails_is_told_and_the_others_run(ran: tuple[int, dict[str, Any], Path]) -> None:
    code, answer, _ = ran
    errors = {one["benchmark"]: one["error"] for one in answer["benchmarks"]}
    assert code == 1
    assert "attention" in errors.pop("attention")
    assert set(errors) == set(MODULES) - {"attention"}
    assert set(errors.values()) == {None}


def test_one_table_has_every_repetition_with_machine_and_versions(ran: tuple[int, dict[str, Any], Path]) -> None:
    _, answer, out = ran
    assert [file.name for file in out.iterdir()] == ["measurements.parquet"]
    rows = tables.read(out)
    assert len(rows) == sum(one["rows"] for one in answer["benchmarks"])
    assert set(rows["benchmark"]) == set(MODULES) - {"attention"}
    assert (rows.groupby(["case", "world"])["repetition"].agg(list).map(lambda r: r == [0, 1, 2])).all()
    assert rows[["machine", "device", "torch", "versions", "started"]].notna().all().all()
    assert (rows["seconds"] > 0).all()


def test_all_operations_strategies_and_both_kinds_of_step_are_there(ran: tuple[int, dict[str, Any], Path]) -> None:
    rows = tables.read(ran[2])
    by = dict(iter(rows.groupby("benchmark")))
    assert set(by["collective"]["op"]) == {
        "all_gather",
        "reduce_scatter",
        "all_reduce",
        "broadcast",
        "all_to_all",
        "send",
    }
    assert set(by["reshard"]["strategy"]) == set(STRATEGIES)
    assert set(by["train_step"]["recompute"]) == {True, False}
    assert set(by["dcp"]["op"]) == {"save", "load"}
    assert set(zip(by["decode"]["batch"], by["decode"]["context"], strict=True)) == {
        (1, 32),
        (1, 128),
        (8, 32),
        (8, 128),
    }


def test_a_fit_reads_the_table(ran: tuple[int, dict[str, Any], Path], tmp_path: Path) -> None:
    answer = fit_tables([ran[2]], tmp_path / "cpu.yaml", "generic", ["none"], [], None)
    assert {fit.benchmark for fit in answer.fits} == set(MODULES) - {"attention"}
    assert {"decode", "train", "logprob"} <= set(answer.profile.measured)


def test_one_that_hangs_is_ended_with_all_its_processes_and_its_rows_stay(tmp_path: Path) -> None:
    began = time.monotonic()
    outcomes = suite.run(["collective"], [2], Asked("full", "cpu", limit=5.0), tmp_path / "hung")
    assert time.monotonic() - began < 60.0
    assert [one.error for one in outcomes] == ["not done within 5 s"]
    assert outcomes[0].rows == len(tables.read(tmp_path / "hung")) > 0
    assert not processes_with(str(tmp_path))


STUBBORN = "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); print('up', flush=True); time.sleep(60)"


def test_a_process_that_ignores_the_polite_signal_is_ended() -> None:
    process = subprocess.Popen(
        [sys.executable, "-c", STUBBORN], stdout=subprocess.PIPE, text=True, start_new_session=True
    )
    assert process.stdout is not None
    process.stdout.readline()
    end(process)
    assert process.returncode == -signal.SIGKILL


def test_what_is_measured_again_replaces_what_was(ran: tuple[int, dict[str, Any], Path]) -> None:
    before = tables.read(ran[2])
    suite.run(["copy"], [1], Asked("quick", "cpu"), ran[2])
    after = tables.read(ran[2])
    assert len(after) == len(before)
    copies = [rows.loc[rows["benchmark"] == "copy", "seconds"].tolist() for rows in (before, after)]
    assert copies[0] != copies[1]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["gem"], "no benchmark 'gem'. Fix: one of gemm, attention"),
        (["--max-size", "64"], "has no unit"),
        (["collective", "--world", "1"], "collective needs two processes. Fix: --world 2"),
        (["--device", "tpu"], "auto, cpu or cuda"),
    ],
)
def test_wrong_input_is_named(arguments: list[str], message: str, tmp_path: Path) -> None:
    found = CliRunner().invoke(app, ["calibrate", "run", *arguments, "--out", str(tmp_path / "out")])
    assert isinstance(found.exception, UserError)
    assert message in str(found.exception)


def test_the_folder_has_a_default() -> None:
    found = CliRunner().invoke(app, ["calibrate", "run", "gem"])
    assert "no benchmark 'gem'" in str(found.exception)


def test_without_torch_the_extra_is_named(tmp_path: Path) -> None:
    found = calibrate_run("gemm", "--out", str(tmp_path / "out"), without="torch", folder=tmp_path)
    assert found.returncode == 2
    assert "pip install 'rlsim[torch]'" in found.stderr


def processes_with(text: str) -> list[str]:
    """Command lines of this host's processes that have the text in them."""
    lines = []
    for file in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            lines.append(file.read_bytes().replace(b"\0", b" ").decode(errors="replace"))
        except OSError:  # ended meanwhile
            continue
    return [line for line in lines if text in line]
