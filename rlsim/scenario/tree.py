"""The schema as a tree of keys: which keys a block has, and the field behind a dotted key."""

from __future__ import annotations

import types
import typing
from collections.abc import Iterator
from typing import Any

from pydantic import BaseModel
from pydantic.fields import FieldInfo

from rlsim.scenario.quantity import Dimension
from rlsim.scenario.source import Path


def key_of(name: str, field: FieldInfo) -> str:
    """The key as written in the file (async_ is written async)."""
    return field.alias or name


def blocks_in(annotation: Any) -> Iterator[type[BaseModel]]:
    """The block classes inside a type: `tuple[RolloutEntry, ...]`, `Lora | None`, `dict[str, Pool]`."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        yield annotation
        return
    for inner in typing.get_args(annotation):
        yield from blocks_in(inner)


def is_mapping(annotation: Any) -> bool:
    """Whether the type is a mapping by free names (pools by name)."""
    if typing.get_origin(annotation) is dict:
        return True
    if isinstance(annotation, types.UnionType) or typing.get_origin(annotation) in (
        typing.Union,
        typing.Annotated,
    ):
        return any(is_mapping(inner) for inner in typing.get_args(annotation))
    return False


def field_at(model: type[BaseModel], path: Path) -> FieldInfo | None:
    """The field of a path of keys, list indexes and free names being skipped; None if there is none."""
    if not path:
        return None
    head, *rest = path
    for name, field in model.model_fields.items():
        if key_of(name, field) != head:
            continue
        inner = tuple(rest)
        if inner and (inner[0].isdigit() or is_mapping(field.annotation)):
            inner = inner[1:]
        if not inner:
            return field
        for candidate in blocks_in(field.annotation):
            found = field_at(candidate, inner)
            if found is not None:
                return found
    return None


def fields_at(model: type[BaseModel], path: Path) -> dict[str, str]:
    """Keys of the block at a path, each with its description."""
    models = [model]
    if path:
        field = field_at(model, path)
        models = list(blocks_in(field.annotation)) if field is not None else []
    return {
        key_of(name, field): field.description or "" for found in models for name, field in found.model_fields.items()
    }


def dimension_of(field: FieldInfo) -> Dimension | None:
    """The dimension of a quantity field, None for plain values."""
    for found in (field.metadata, *(_metadata(inner) for inner in typing.get_args(field.annotation))):
        for part in found:
            if isinstance(part, Dimension):
                return part
    return None


def _metadata(annotation: Any) -> tuple[Any, ...]:
    return tuple(getattr(annotation, "__metadata__", ()))
