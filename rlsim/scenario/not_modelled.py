"""Keys whose mechanism is not simulated yet: refused by name, never ignored.

Delete a row when its mechanism arrives.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from rlsim.scenario.schema import Scenario
from rlsim.scenario.source import Source

Value = Callable[[Scenario], Any]
Refused = Callable[[Any], bool]


def _other_than(*modelled: Any) -> Refused:
    return lambda value: value not in modelled


# key, its value, whether that value is refused
NOT_MODELLED: tuple[tuple[str, Value, Refused], ...] = (
    ("trainer.precision", lambda s: s.trainer.precision, _other_than("bf16")),
)


def refuse_not_modelled(scenario: Scenario, source: Source) -> None:
    """Raise `NotModelled` for the first key of the table that the scenario uses."""
    for key, value_of, refused in NOT_MODELLED:
        value = value_of(scenario)
        if refused(value):
            raise source.not_modelled(key, _written(value))


def _written(value: Any) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    return str(value) if isinstance(value, str | int | float) else ""
