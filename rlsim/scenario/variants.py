"""Merging: a variant over the base, and `--set` over either.

Mappings merge recursively; a length distribution, a trace or a pool is replaced whole; `null` deletes. A `rollout`
mapping merges into the single entry.
"""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from typing import Any

from rlsim.errors import UserError
from rlsim.scenario.source import Mark, Path

Marks = Mapping[Path, Mark]

WHOLE: frozenset[Path] = frozenset(
    {
        ("workload", "prompt_tokens"),
        ("workload", "response_tokens"),
        ("workload", "reward", "seconds"),
        ("workload", "turns", "count"),
        ("workload", "turns", "tokens"),
        ("workload", "turns", "observation_tokens"),
        ("workload", "turns", "wait"),
        ("cluster", "pools", "*"),
    }
)


def expand(data: dict[str, Any], marks: Marks) -> tuple[dict[str, Any], dict[Path, Mark]]:
    """Shorthands made mappings, so that they merge: model and framework by name, a list of one rollout entry."""
    data = dict(data)
    marks = dict(marks)
    for key, inner in (("model", "base"), ("framework", "name")):
        if isinstance(data.get(key), str):
            data[key] = {inner: data[key]}
    rollout = data.get("rollout")
    if isinstance(rollout, list) and len(rollout) == 1 and isinstance(rollout[0], dict):
        data["rollout"] = rollout[0]
        marks = {_without_index(path): mark for path, mark in marks.items()}
    return data, marks


def _without_index(path: Path) -> Path:
    return ("rollout", *path[2:]) if path[:2] == ("rollout", "0") and len(path) > 2 else path


def merge(base: Any, over: Any, path: Path = ()) -> Any:
    """`over` laid on `base`; neither is changed."""
    if not isinstance(base, dict) or not isinstance(over, dict) or _whole(path):
        return drop_nulls(over)
    merged = dict(base)
    for key, value in over.items():
        if value is None:
            merged.pop(key, None)
        else:
            merged[key] = merge(base.get(key), value, (*path, key))
    return merged


def drop_nulls(data: Any) -> Any:
    """A null anywhere means: as if the key were not there."""
    if isinstance(data, dict):
        return {key: drop_nulls(value) for key, value in data.items() if value is not None}
    return data


def _whole(path: Path) -> bool:
    return path in WHOLE or (*path[:-1], "*") in WHOLE if path else False


def merge_marks(base: Marks, over: Marks) -> dict[Path, Mark]:
    """Marks of a merged mapping: the variant's where it says something."""
    replaced = {path for path in over if _whole(path)}
    kept = {p: m for p, m in base.items() if not any(p[: len(r)] == r for r in replaced)}
    return {**kept, **over}


def put(data: dict[str, Any], path: Path, value: Any, key: str) -> dict[str, Any]:
    """`data` with the value at `path`; blocks on the way are made. A list is entered by its index."""
    head, *rest = path
    if not rest:
        return (
            merge(data, {head: value})
            if not isinstance(value, dict)
            else {**data, head: merge(data.get(head), value, path)}
        )
    inner = data.get(head)
    if isinstance(inner, list):
        return {**data, head: _put_in_list(inner, tuple(rest), value, key)}
    if inner is not None and not isinstance(inner, dict):
        inner = None
    return {**data, head: put(inner or {}, tuple(rest), value, key)}


def _put_in_list(items: list[Any], path: Path, value: Any, key: str) -> list[Any]:
    index = int(path[0]) if path[0].isdigit() else -1
    if not 0 <= index < len(items):
        raise UserError(
            f"the list has {len(items)} entries",
            file=f"--set {key}",
            key=key,
            fix="an index, for example rollout[0].tp",
        )
    changed = list(items)
    rest = path[1:]
    changed[index] = put(items[index], rest, value, key) if rest and isinstance(items[index], dict) else value
    return changed


def nearest(word: str, words: list[str]) -> str | None:
    """The most similar word, if any is similar at all."""
    close = difflib.get_close_matches(word, words, n=1, cutoff=0.5)
    return close[0] if close else None
