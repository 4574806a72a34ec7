"""Merging: a variant over the base, and `--set` over either.

Mappings merge recursively; a length distribution, a trace or a pool is replaced whole; `null` deletes.
A `rollout` mapping merges into the single entry.
"""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from typing import Any

from rlsim.errors import UserError
from rlsim.scenario.source import Mark, Path, dotted

Marks = Mapping[Path, Mark]

WHOLE: frozenset[Path] = frozenset(
    {
        ("workload", "prompt_tokens"),
        ("workload", "response_tokens"),
        ("workload", "reward", "seconds"),
        ("workload", "drift"),
        ("workload", "turns", "count"),
        ("workload", "turns", "tokens"),
        ("workload", "turns", "observation_tokens"),
        ("workload", "turns", "wait"),
        ("cluster", "pools", "*"),
    }
)


def expand(data: dict[str, Any], marks: Marks) -> tuple[dict[str, Any], dict[Path, Mark]]:
    """Shorthands made mappings, so that they merge: model and framework by name, a list of one rollout."""
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
    path = path[2:] if path[:1] == ("variants",) else path
    return path in WHOLE or (*path[:-1], "*") in WHOLE


def merge_marks(base: Marks, over: Marks) -> dict[Path, Mark]:
    """Marks of a merged mapping: the variant's where it says something."""
    replaced = {path for path in over if _whole(path)}
    kept = {p: m for p, m in base.items() if not any(p[: len(r)] == r for r in replaced)}
    return {**kept, **over}


def get(data: Any, path: Path) -> Any:
    """The value at a path of keys and list indexes; None if there is none."""
    for part in path:
        if isinstance(data, dict):
            data = data.get(part)
        elif isinstance(data, list) and part.isdigit() and int(part) < len(data):
            data = data[int(part)]
        else:
            return None
    return data


def put(data: dict[str, Any], path: Path, value: Any, at: Path = ()) -> dict[str, Any]:
    """`data` (which is at `at`) with `value` laid on what is at `path` below it; blocks on the way are made."""
    head, rest, here = path[0], path[1:], (*at, path[0])
    inner = data.get(head)
    if not rest:
        if value is None:
            return {key: old for key, old in data.items() if key != head}
        return {**data, head: merge(inner, value, here)}
    if isinstance(inner, list):
        return {**data, head: _put_in_list(inner, rest, value, here)}
    return {**data, head: put(inner if isinstance(inner, dict) else {}, rest, value, here)}


def _put_in_list(items: list[Any], path: Path, value: Any, at: Path) -> list[Any]:
    index = int(path[0]) if path[0].isdigit() else -1
    if not 0 <= index < len(items):
        key = dotted((*at, *path))
        fix = f"an index, for example {dotted(at)}[0]"
        raise UserError(f"a list of {len(items)} entries", file=f"--set {key}", key=key, fix=fix)
    changed = list(items)
    old, rest = items[index], path[1:]
    changed[index] = put(old if isinstance(old, dict) else {}, rest, value, (*at, path[0])) if rest else value
    return changed


def nearest(word: str, words: list[str]) -> str | None:
    """The most similar word, if any is similar at all."""
    close = difflib.get_close_matches(word, words, n=1, cutoff=0.5)
    return close[0] if close else None
