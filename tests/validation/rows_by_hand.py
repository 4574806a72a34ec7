"""A row of the report with plain values, for tests to change."""

from __future__ import annotations

from typing import Any

from validation.published.rows import PREDICTED, Row


def row(id_: str, measured: float, **changes: Any) -> Row:
    """A predicted step of 90 s on one kind of system."""
    values: dict[str, Any] = {
        "source": "s",
        "kind": "rl_step",
        "spec": "A",
        "quantity": "step_time_s",
        "unit": "s",
        "group": "m",
        "mode": "sync",
        "predicted": 90.0,
        "status": PREDICTED,
    }
    return Row(id=id_, measured=measured, **{**values, **changes})
