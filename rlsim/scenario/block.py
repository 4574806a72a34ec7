"""What every block of the schema is made of: strict frozen models whose fields carry unit and description.

The fields *are* the attribute table: `attributes.py` reads key, type, unit, default and description off them,
and nothing is written twice.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Any

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationInfo

from rlsim.scenario.quantity import BYTES, PRICE, RATE, SECONDS, Dimension, parse


class Block(BaseModel):
    """A mapping of the scenario file: unknown keys are errors, values do not change after loading."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True, populate_by_name=True, allow_inf_nan=False)


def _quantity(dimension: Dimension) -> BeforeValidator:
    def read(value: object, info: ValidationInfo) -> object:
        plain = isinstance(value, int | float) and not isinstance(value, bool)
        if plain and info.context is not None and info.context.get("si"):
            return float(value)  # type: ignore[arg-type]
        return parse(value, dimension)

    return BeforeValidator(read)


Bytes = Annotated[float, _quantity(BYTES), BYTES]
Rate = Annotated[float, _quantity(RATE), RATE]
Seconds = Annotated[float, _quantity(SECONDS), SECONDS]
Price = Annotated[float, _quantity(PRICE), PRICE]


def _as_tuple(value: object) -> object:
    return tuple(value) if isinstance(value, list) else value


Listed = BeforeValidator(_as_tuple)


def needed(text: str, *, unit: str = "", **limits: Any) -> Any:
    """A key without a default. `text` begins with the label: "GPUs of the trainer: …"."""
    return Field(description=text, json_schema_extra={"unit": unit}, **limits)


def item(default: Any, text: str, *, unit: str = "", **limits: Any) -> Any:
    """A key with its default."""
    return Field(default, description=text, json_schema_extra={"unit": unit}, **limits)


def block(make: Callable[[], Any], text: str, **options: Any) -> Any:
    """A block that may be left out as a whole."""
    return Field(default_factory=make, description=text, **options)


def from_scalar(key: str, *types: type) -> Callable[[object], object]:
    """Shorthand of a block: a bare value means `{key: value}`."""

    def read(value: object) -> object:
        if isinstance(value, types) and not isinstance(value, bool):
            return {key: value}
        return value

    return read


def whole_keys(value: object) -> object:
    """Whole numbers as keys of a mapping: a YAML file has them as text."""
    if isinstance(value, dict):
        return {int(key) if str(key).isdigit() else key: item for key, item in value.items()}
    return value
