"""pydantic's errors in the user's words: one `UserError` with file, line, key and what would be right."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from pydantic import BaseModel, ValidationError

from rlsim.errors import UserError
from rlsim.scenario.quantity import MistakeError
from rlsim.scenario.source import Path, Source
from rlsim.scenario.tree import fields_at
from rlsim.scenario.variants import nearest


@dataclass(frozen=True)
class Complaint:
    """One thing that is wrong: key, message, what would be right. `missing`: the key is not there."""

    path: Path
    message: str
    fix: str | None
    missing: bool = False


def user_error(complaints: list[Complaint], source: Source) -> UserError:
    """The first complaint in the order of the file, and how many more there are.

    What is written wrong comes before what is missing: a default may be missing only because of it.
    """

    def order(complaint: Complaint) -> tuple[bool, bool, int]:
        mark = source.find(complaint.path)
        return (complaint.missing, mark is None, mark.line or 0 if mark is not None else 0)

    first = min(complaints, key=order)
    message = first.message
    more = len({c.path for c in complaints} - {first.path})
    if more:
        message += f" (and {more} more)"
    return source.error(".".join(first.path), message, first.fix)


def complaints_of(error: ValidationError, data: Any, model: type[BaseModel]) -> list[Complaint]:
    """pydantic's list of errors as complaints; of the branches of a union only the most telling one."""
    found: dict[Path, Complaint] = {}
    for item in error.errors(include_url=False):
        path = _real_path(item["loc"], data, item["type"])
        message, fix = _words(item, path, model)
        complaint = Complaint(path, message, fix, item["type"] == "missing")
        known = next((p for p in found if p[: len(path)] == path or path[: len(p)] == p), None)
        if known is None:
            found[path] = complaint
        elif len(path) > len(known):
            del found[known]
            found[path] = complaint
    return list(found.values())


def _real_path(location: tuple[int | str, ...], data: Any, kind: str) -> Path:
    """pydantic's location without the names of union branches: only keys and indexes that are in the data."""
    path: list[str] = []
    here: Any = data
    for i, part in enumerate(location):
        if _contains(here, part):
            here = here[part]
        elif kind != "missing" or i < len(location) - 1:
            continue
        path.append(str(part))
    return tuple(path)


def _contains(data: Any, part: int | str) -> bool:
    if isinstance(data, Mapping):
        return part in data
    return isinstance(data, list | tuple) and isinstance(part, int) and part < len(data)


def _words(item: Mapping[str, Any], path: Path, model: type[BaseModel]) -> tuple[str, str | None]:
    kind, value, context = item["type"], item.get("input"), item.get("ctx") or {}
    if kind == "value_error" and isinstance(context.get("error"), MistakeError):
        wrong: MistakeError = context["error"]
        return wrong.message, wrong.fix
    if kind == "extra_forbidden":
        return _unknown_key(path, model)
    if kind == "missing":
        return "this key is missing", _missing_fix(path, model)
    wording = _WORDS.get(kind)
    if wording is not None:
        return wording(value, context)
    return str(item["msg"]), None


def _unknown_key(path: Path, model: type[BaseModel]) -> tuple[str, str | None]:
    keys = sorted(fields_at(model, path[:-1]))
    close = nearest(path[-1], keys)
    if close:
        return f"unknown key {path[-1]!r}", f"{close}"
    return f"unknown key {path[-1]!r}", "one of " + ", ".join(keys)


def _missing_fix(path: Path, model: type[BaseModel]) -> str | None:
    description = fields_at(model, path[:-1]).get(path[-1])
    return f"`{path[-1]}: …` — {description}" if description else None


def _show(value: Any) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, dict):
        return "a mapping"
    if isinstance(value, list | tuple):
        return "a list"
    return repr(value)


def _choice(value: Any, context: Mapping[str, Any]) -> tuple[str, str]:
    expected = str(context["expected"]).replace("'", "")
    close = nearest(str(value), [word.strip() for word in expected.replace(" or ", ", ").split(", ")])
    return f"{_show(value)} is not one of {expected}", close or expected


def _limit(sign: str, name: str) -> Callable[[Any, Mapping[str, Any]], tuple[str, str]]:
    def words(value: Any, context: Mapping[str, Any]) -> tuple[str, str]:
        return f"{_show(value)} is not possible", f"a value {sign} {context[name]:g}"

    return words


def _kind(expected: str, fix: str | None = None) -> Callable[[Any, Mapping[str, Any]], tuple[str, str]]:
    def words(value: Any, context: Mapping[str, Any]) -> tuple[str, str]:
        return f"{_show(value)} is not {expected}", fix or expected

    return words


_WORDS: Mapping[str, Callable[[Any, Mapping[str, Any]], tuple[str, str]]] = {
    "literal_error": _choice,
    "greater_than": _limit(">", "gt"),
    "greater_than_equal": _limit("≥", "ge"),
    "less_than": _limit("<", "lt"),
    "less_than_equal": _limit("≤", "le"),
    "int_type": _kind("a whole number"),
    "int_from_float": _kind("a whole number"),
    "float_type": _kind("a number"),
    "finite_number": _kind("a finite number"),
    "bool_type": _kind("true or false"),
    "string_type": _kind("text", 'text; put numbers into quotes, for example "0.6"'),
    "string_too_short": _kind("a name"),
    "model_type": _kind("a mapping of keys", "`{key: value, …}` or indented `key: value` lines"),
    "dict_type": _kind("a mapping of keys", "`{key: value, …}` or indented `key: value` lines"),
    "tuple_type": _kind("a list", "`[a, b]`"),
    "too_short": _kind("long enough", "at least one entry"),
}
