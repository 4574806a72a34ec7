"""YAML text to plain data plus the place of every key. Syntax errors and duplicate keys are errors of the user, and so
are files that would never end: blocks nested too deeply, anchors repeated within anchors.
"""

from __future__ import annotations

from itertools import accumulate
from typing import Any

from ruamel.yaml import YAML
from ruamel.yaml.error import MarkedYAMLError, YAMLError
from ruamel.yaml.events import MappingEndEvent, MappingStartEvent, SequenceEndEvent, SequenceStartEvent
from ruamel.yaml.nodes import MappingNode, Node, ScalarNode, SequenceNode

from rlsim.errors import UserError
from rlsim.scenario.source import Mark, Path

Marks = dict[Path, Mark]
DEPTH = 32  # blocks within blocks; a scenario has six
VALUES = 100_000  # after anchors have been put in: no file that a person wrote has as many


def read_yaml(text: str, file: str) -> tuple[Any, Marks]:
    """Plain data and marks (lines count from 1)."""
    yaml = YAML(typ="safe", pure=True)
    try:
        if _brackets(text) > DEPTH and (line := _deep_line(text)) is not None:  # the scanner is quadratic in them
            raise _too_deep(file, line)
        node = yaml.compose(text)
    except MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        line = mark.line + 1 if mark is not None else None
        problem = " ".join(str(part) for part in (error.context, error.problem) if part)
        raise UserError(f"not valid YAML: {problem}", file=file, line=line, fix=_syntax_fix(text, line)) from None
    except (YAMLError, ValueError) as error:
        raise UserError(f"not valid YAML: {' '.join(str(error).split())}", file=file) from None
    except RecursionError:
        raise _too_deep(file, _deep_line(text)) from None
    reader = _Reader(yaml, file)
    data = reader.plain(node, ()) if node is not None else None
    return data, reader.marks


def read_value(text: str) -> Any:
    """A scalar or flow value, as in `--set key=value`."""
    return read_yaml(text, "--set")[0]


def _syntax_fix(text: str, line: int | None) -> str | None:
    lines = text.splitlines()
    if line is not None and any("\t" in part[: len(part) - len(part.lstrip())] for part in lines[line - 1 : line]):
        return "indent with spaces, not tabs"
    return "check brackets, colons (`key: value`) and indentation at this line"


def _brackets(text: str) -> int:
    """Most brackets open at a time, those in quotes and comments included."""
    steps = (1 if letter in "[{" else -1 for letter in text if letter in "[]{}")
    return max(accumulate(steps), default=0)


def _too_deep(file: str, line: int | None) -> UserError:
    return UserError(
        "an anchor contains itself, or blocks are nested too deeply",
        file=file,
        line=line,
        fix=f"at most {DEPTH} blocks within each other",
    )


def _deep_line(text: str) -> int | None:
    """The line in which the nesting goes too deep; the parser, unlike the composer, does not recurse."""
    depth = 0
    for event in YAML(typ="safe", pure=True).parse(text):
        if isinstance(event, MappingStartEvent | SequenceStartEvent):
            depth += 1
            if depth > DEPTH:
                return int(event.start_mark.line) + 1
        elif isinstance(event, MappingEndEvent | SequenceEndEvent):
            depth -= 1
    return None


class _Reader:
    """From nodes to plain data; keeps the marks and counts the values."""

    def __init__(self, yaml: YAML, file: str) -> None:
        self.yaml = yaml
        self.file = file
        self.marks: Marks = {}
        self._values = 0

    def plain(self, node: Node, path: Path, mark: bool = True) -> Any:
        """Plain data of a node; without `mark`, its keys leave no marks."""
        line = node.start_mark.line + 1
        self._values += 1
        if self._values > VALUES:
            raise UserError(
                f"more than {VALUES:,} values when anchors are put in",
                file=self.file,
                line=line,
                fix="fewer anchors repeated within anchors",
            )
        if len(path) > DEPTH:
            raise _too_deep(self.file, line)
        if isinstance(node, MappingNode):
            return self._mapping(node, path, mark)
        if isinstance(node, SequenceNode):
            return self._sequence(node, path, mark)
        if isinstance(node, ScalarNode):
            return self._scalar(node)
        raise TypeError(node)

    def _sequence(self, node: SequenceNode, path: Path, mark: bool) -> list[Any]:
        values = []
        for i, child in enumerate(node.value):
            here = (*path, str(i))
            if mark:
                self.marks[here] = Mark(self.file, child.start_mark.line + 1, here)
            values.append(self.plain(child, here, mark))
        return values

    def _scalar(self, node: ScalarNode) -> Any:
        if str(node.tag).endswith((":timestamp", ":binary")):
            return node.value
        try:
            return self.yaml.constructor.construct_object(node)
        except (YAMLError, ValueError) as error:
            problem = getattr(error, "problem", None) or str(error)
            raise UserError(
                f"not valid YAML: {' '.join(str(problem).split())}", file=self.file, line=node.start_mark.line + 1
            ) from None

    def _mapping(self, node: MappingNode, path: Path, mark: bool) -> dict[str, Any]:
        """One mapping; `<<` merges anchors, keys written out win."""
        data: dict[str, Any] = {}
        merged: dict[str, Any] = {}
        lines: dict[str, int] = {}
        for key_node, value_node in node.value:
            line = key_node.start_mark.line + 1
            if str(key_node.tag).endswith(":merge"):
                merged = {**self._anchors(value_node, path, line, mark), **merged}
                continue
            key = key_node.value if isinstance(key_node, ScalarNode) else str(key_node.value)
            here = (*path, key)
            if key in data:
                raise UserError(
                    "duplicate key",
                    file=self.file,
                    line=line,
                    key=".".join(here),
                    fix=f"delete this one or the one in line {lines[key]}",
                )
            lines[key] = line
            if mark:
                self.marks[here] = Mark(self.file, line, here)
            data[key] = self.plain(value_node, here, mark)
        return {**merged, **data}

    def _anchors(self, node: Node, path: Path, line: int, mark: bool) -> dict[str, Any]:
        """What `<<` brings: of several anchors the first wins."""
        merged: dict[str, Any] = {}
        for part in node.value if isinstance(node, SequenceNode) else [node]:
            value = self.plain(part, (*path, "<<"), mark=False)
            if isinstance(value, dict):
                merged = {**value, **merged}
                if mark:
                    places = {(*path, k): Mark(self.file, line, (*path, k)) for k in value}
                    self.marks.update({at: place for at, place in places.items() if at not in self.marks})
        return merged
