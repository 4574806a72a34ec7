"""YAML text to plain data plus the place of every key. Syntax errors and duplicate keys are errors of the user."""

from __future__ import annotations

from typing import Any

from ruamel.yaml import YAML
from ruamel.yaml.error import MarkedYAMLError, YAMLError
from ruamel.yaml.nodes import MappingNode, Node, ScalarNode, SequenceNode

from rlsim.errors import UserError
from rlsim.scenario.source import Mark, Path

Marks = dict[Path, Mark]


def read_yaml(text: str, file: str) -> tuple[Any, Marks]:
    """Plain data and marks (lines count from 1)."""
    yaml = YAML(typ="safe", pure=True)
    try:
        node = yaml.compose(text)
    except MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        line = mark.line + 1 if mark is not None else None
        problem = " ".join(str(part) for part in (error.context, error.problem) if part)
        raise UserError(f"not valid YAML: {problem}", file=file, line=line, fix=_syntax_fix(text, line)) from None
    except YAMLError as error:
        raise UserError(f"not valid YAML: {' '.join(str(error).split())}", file=file) from None
    marks: Marks = {}
    try:
        data = _plain(yaml, node, (), file, marks) if node is not None else None
    except RecursionError:
        raise UserError("an anchor contains itself, or blocks are nested too deeply", file=file) from None
    return data, marks


def read_value(text: str) -> Any:
    """A scalar or flow value, as in `--set key=value`."""
    return read_yaml(text, "--set")[0]


def _syntax_fix(text: str, line: int | None) -> str | None:
    lines = text.splitlines()
    if line is not None and any("\t" in part[: len(part) - len(part.lstrip())] for part in lines[line - 1 : line]):
        return "indent with spaces, not tabs"
    return "check brackets, colons (`key: value`) and indentation at this line"


def _plain(yaml: YAML, node: Node, path: Path, file: str, marks: Marks) -> Any:
    if isinstance(node, MappingNode):
        return _mapping(yaml, node, path, file, marks)
    if isinstance(node, SequenceNode):
        values = []
        for i, child in enumerate(node.value):
            here = (*path, str(i))
            marks[here] = Mark(file, child.start_mark.line + 1, here)
            values.append(_plain(yaml, child, here, file, marks))
        return values
    if isinstance(node, ScalarNode):
        return _scalar(yaml, node)
    raise TypeError(node)


def _scalar(yaml: YAML, node: ScalarNode) -> Any:
    if str(node.tag).endswith((":timestamp", ":binary")):
        return node.value
    return yaml.constructor.construct_object(node)


def _mapping(yaml: YAML, node: MappingNode, path: Path, file: str, marks: Marks) -> dict[str, Any]:
    """One mapping; `<<` merges anchors, keys written out win."""
    data: dict[str, Any] = {}
    merged: dict[str, Any] = {}
    for key_node, value_node in node.value:
        line = key_node.start_mark.line + 1
        if str(key_node.tag).endswith(":merge"):
            parts = value_node.value if isinstance(value_node, SequenceNode) else [value_node]
            for part in parts:
                value = _plain(yaml, part, path, file, {})
                if isinstance(value, dict):
                    merged = {**value, **merged}
                    marks.update({(*path, k): Mark(file, line, (*path, k)) for k in value if (*path, k) not in marks})
            continue
        key = key_node.value if isinstance(key_node, ScalarNode) else str(key_node.value)
        here = (*path, key)
        if key in data:
            first = marks[here].line
            raise UserError(
                "duplicate key",
                file=file,
                line=line,
                key=".".join(here),
                fix=f"delete this one or the one in line {first}",
            )
        marks[here] = Mark(file, line, here)
        data[key] = _plain(yaml, value_node, here, file, marks)
    return {**merged, **data}
