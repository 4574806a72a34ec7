"""Lint, format and types are part of the tests."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]


@pytest.mark.parametrize(
    "command", [["ruff", "check", "."], ["ruff", "format", "--check", "."], ["mypy", "--strict", "rlsim"]], ids=" ".join
)
def test_clean(command: list[str]) -> None:
    answer = subprocess.run([sys.executable, "-m", *command], cwd=ROOT, capture_output=True, text=True)
    assert answer.returncode == 0, answer.stdout + answer.stderr


def test_import_is_light() -> None:
    """`import rlsim` loads neither the heavy libraries nor the optional ones."""
    code = (
        "import sys, rlsim; heavy = {'torch', 'streamlit', 'ray', 'pandas', 'plotly', 'scipy', 'aiconfigurator_core'};"
        " print(sorted(heavy & set(sys.modules)))"
    )
    answer = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    assert answer.stdout.strip() == "[]"
