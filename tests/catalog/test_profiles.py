"""Calibration profiles: nothing in them that no model reads."""

from __future__ import annotations

from pathlib import Path

import pytest

from rlsim.catalog.profiles import profile
from rlsim.errors import UserError
from rlsim.scenario import loads_scenario
from rlsim.system import resolve
from tests.scenario.text import BASE

CODE = "\n".join(path.read_text() for path in (Path(__file__).parents[2] / "rlsim").rglob("*.py"))


def test_every_parameter_is_read_somewhere() -> None:
    assert [name for name in profile("generic").parameters if f'"{name}"' not in CODE] == []


GOOD = "{value: 1.1, low: 1.0, high: 1.2, source: measured here}"


def _profile(tmp_path: Path, content: bytes | str) -> UserError:
    path = tmp_path / "mine.yaml"
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    scenario = loads_scenario(BASE, "case.yaml", [f"costs.profile={path}"], variant="base").variants[0]
    with pytest.raises(UserError) as caught:
        resolve(scenario)
    assert str(path) in str(caught.value)
    return caught.value


def test_what_a_file_leaves_out_is_generic(tmp_path: Path) -> None:
    path = tmp_path / "mine.yaml"
    path.write_text(f"parameters:\n  gemm_derate: {GOOD}\n")
    mine, generic = profile(str(path)), profile("generic")
    assert mine.name == "mine"
    assert mine.value("gemm_derate") == 1.1
    assert mine.parameters["gemm_derate"].description == generic.parameters["gemm_derate"].description
    assert set(mine.parameters) == set(generic.parameters)
    path.write_text(f"name: ours\nbase: nemo-rl\nparameters:\n  gemm_derate: {GOOD}\n")
    ours = profile(str(path))
    assert ours.name == "ours"
    assert ours.value("expert_imbalance") == profile("nemo-rl").value("expert_imbalance")


@pytest.mark.parametrize(
    ("content", "line", "says", "fix"),
    [
        ("", None, "a mapping of keys", "parameters"),
        ("just text", None, "a mapping of keys", "parameters"),
        ("- a\n", None, "a mapping of keys", "parameters"),
        ("parameters: [1\n", 2, "not valid YAML", "brackets"),
        ("\xff\xfe".encode("latin-1") + "name: x".encode("utf-16-le"), None, "cannot be read", "UTF-8"),
        ("parameters: 3\n", 1, "not a mapping", "gemm_derate"),
        ("paramters: {}\n", 1, "unknown key 'paramters'", "parameters"),
        ("base: vrl\n", 1, "no calibration profile 'vrl'", "verl"),
        ("name: 3\n", 1, "3 is not text", "name"),
        ("parameters:\n  gemm_derat: " + GOOD, 2, "no parameter 'gemm_derat'", "gemm_derate"),
        ("parameters:\n  gemm_derate: 1.1", 2, "not a mapping", "value"),
        ("parameters:\n  gemm_derate: {value: 1.1}", 2, "low, high, source missing", "source"),
        ("parameters:\n  gemm_derate:\n    vlaue: 1", 3, "unknown field 'vlaue'", "value"),
        ("parameters:\n  gemm_derate: {value: fast, low: 1, high: 2, source: x}", 2, "'fast' is not a number", "SI"),
        ("parameters:\n  host_link_rate: {value: 12 GB/s, low: 1, high: 2, source: x}", 2, "not a number", "(B/s)"),
        ("parameters:\n  gemm_derate: {value: true, low: 1, high: 2, source: x}", 2, "not a number", "number"),
        ("parameters:\n  gemm_derate: {value: [1], low: 1, high: 2, source: x}", 2, "not a number", "number"),
        ("parameters:\n  gemm_derate: {value: .inf, low: 1, high: .inf, source: x}", 2, "not a finite", "finite"),
        ("parameters:\n  gemm_derate: {value: .nan, low: 1, high: 2, source: x}", 2, "not a finite", "finite"),
        ("parameters:\n  gemm_derate: {value: 1, low: 0, high: 2, source: x}", 2, "0 is not possible", "> 0"),
        ("parameters:\n  gemm_derate: {value: -1, low: -2, high: 2, source: x}", 2, "-2 is not possible", "> 0"),
        ("parameters:\n  dp_overlap: {value: 0, low: -1, high: 1, source: x}", 2, "-1 is not possible", "≥ 0"),
        ("parameters:\n  gemm_derate: {value: 3, low: 1, high: 2, source: x}", 2, "does not hold the value 3", "low ≤"),
        ("parameters:\n  nic_efficiency: {value: 0.9, low: 0.8, high: 1.2, source: x}", 2, "for a share", "≤ 1"),
    ],
)
def test_mistakes_in_a_profile(tmp_path: Path, content: str | bytes, line: int | None, says: str, fix: str) -> None:
    error = _profile(tmp_path, content)
    assert says in str(error)
    assert fix in str(error.fix)
    if line is not None:
        assert (error.file, error.line) == (str(tmp_path / "mine.yaml"), line)
    else:
        assert (error.file, error.key) == ("--set costs.profile", "costs.profile")


def test_a_profile_that_is_not_there() -> None:
    with pytest.raises(UserError, match="no such file: nowhere"):
        profile("nowhere.yaml")
    with pytest.raises(UserError, match="no calibration profile 'vrl'"):
        profile("vrl")
