"""Calibration profiles: nothing in them that no model reads."""

from __future__ import annotations

from pathlib import Path

from rlsim.catalog.profiles import profile

CODE = "\n".join(path.read_text() for path in (Path(__file__).parents[2] / "rlsim").rglob("*.py"))


def test_every_parameter_is_read_somewhere() -> None:
    assert [name for name in profile("generic").parameters if f'"{name}"' not in CODE] == []
