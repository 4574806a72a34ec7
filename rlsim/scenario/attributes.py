"""The attribute table: every key of a scenario with type, unit, default, label and description.

It is read off the schema's fields, so that loader, defaults, labels and `docs/scenario.md` cannot disagree.
A description reads "label: the rest".
"""

from __future__ import annotations

import types
import typing
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any

from pydantic import BaseModel
from pydantic.fields import FieldInfo

from rlsim.scenario.quantity import render
from rlsim.scenario.schema import Component, LengthSpec, Role, Scenario, SecondsSpec
from rlsim.scenario.tree import blocks_in, dimension_of, is_mapping, key_of


@dataclass(frozen=True)
class Attribute:
    """One key. `unit` is the SI unit of quantities, the counted thing of counts, else empty; `default` is text."""

    key: str
    type: str
    unit: str
    default: str
    label: str
    description: str
    block: bool


# Blocks that stand at several keys, with the name of their type.
SHARED: Mapping[type[BaseModel], str] = {
    LengthSpec: "length distribution",
    Component: "mixture component",
    SecondsSpec: "duration distribution",
    Role: "role",
}


@cache
def attributes(model: type[BaseModel] = Scenario) -> tuple[Attribute, ...]:
    """All keys in the order of the file; a list entry or a free name is left out of the key (`cluster.pools.gpu`)."""
    return tuple(_walk(model, ()))


@cache
def _by_key() -> dict[str, Attribute]:
    return {attribute.key: attribute for attribute in attributes()}


def attribute(key: str) -> Attribute:
    """The attribute of a dotted key; list indexes are ignored."""
    plain = ".".join(part for part in key.replace("[", ".").replace("]", "").split(".") if not part.isdigit())
    return _by_key()[plain]


def label(key: str) -> str:
    """Short name for tables and axes: `label("trainer.tp")` = "tensor parallel size (TP)"."""
    return attribute(key).label


def unit(key: str) -> str:
    """SI unit of a quantity, or what is counted: `unit("cluster.nic")` = "B/s"."""
    return attribute(key).unit


def _walk(model: type[BaseModel], path: tuple[str, ...]) -> Iterator[Attribute]:
    for name, field in model.model_fields.items():
        here = (*path, key_of(name, field))
        inner = list(blocks_in(field.annotation))
        yield _attribute(".".join(here), field, bool(inner))
        for block in inner:
            yield from _walk(block, here)


def _attribute(key: str, field: FieldInfo, block: bool) -> Attribute:
    description = field.description or ""
    dimension = dimension_of(field)
    extra = field.json_schema_extra if isinstance(field.json_schema_extra, dict) else {}
    return Attribute(
        key=key,
        type=dimension.name if dimension is not None else _type(field.annotation),
        unit=dimension.si if dimension is not None else str(extra.get("unit", "")),
        default=_default(field),
        label=description.split(":", 1)[0],
        description=description,
        block=block,
    )


def _default(field: FieldInfo) -> str:
    if field.is_required():
        return "" if ": default " in (field.description or "") else "needed"
    value = field.get_default(call_default_factory=True)
    dimension = dimension_of(field)
    if value is None or value == () or isinstance(value, BaseModel) or value == "":
        return ""
    if dimension is not None:
        return render(value, dimension)
    return str(value).lower() if isinstance(value, bool) else f"{value:g}" if isinstance(value, float) else str(value)


_NAMES = {int: "whole number", float: "number", bool: "true, false", str: "text", types.NoneType: ""}


def _type(annotation: Any) -> str:
    """The type in the user's words."""
    if annotation in _NAMES:
        return _NAMES[annotation]
    origin = typing.get_origin(annotation)
    if origin is typing.Literal:
        return ", ".join(str(value) for value in typing.get_args(annotation))
    if is_mapping(annotation):
        return "mapping by name"
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return SHARED.get(annotation, "block")
    if origin is tuple:
        shared = [SHARED[block] for block in blocks_in(annotation) if block in SHARED]
        return f"list of {shared[0]}s" if shared else "list"
    parts = [_type(inner) for inner in typing.get_args(annotation) if isinstance(inner, type) or typing.get_args(inner)]
    return " or ".join(dict.fromkeys(part for part in parts if part))
