"""Predictions of published runs do not move unnoticed."""

from __future__ import annotations

import json

import pytest

from tests.validation.snapshot import FILE, predictions


def test_predictions_are_those_on_file() -> None:
    kept = json.loads(FILE.read_text(encoding="utf-8"))
    assert predictions() == pytest.approx(kept, rel=1e-3), "moved on purpose? python -m tests.validation.snapshot"
