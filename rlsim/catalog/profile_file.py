"""A calibration profile as a file: read, checked parameter by parameter, every mistake with its line.

What a file does not name is its base's (`base: NAME` of a shipped profile, default `generic`).
"""

from __future__ import annotations

import difflib
import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from rlsim.errors import UserError

FIELDS = ("value", "low", "high", "unit", "source", "description")
NEEDED = ("value", "low", "high", "source")
KEYS = ("name", "base", "parameters")


@dataclass(frozen=True)
class Parameter:
    """One calibrated figure: SI value, its 10th and 90th percentile, unit, source, and what it is."""

    value: float
    low: float
    high: float
    unit: str
    source: str
    description: str


@dataclass(frozen=True)
class ProfileFile:
    """What one file says, before its base is laid under it. `lines`: of each key, by its path."""

    path: str
    name: str
    base: str | None
    parameters: Mapping[str, Any]
    lines: Mapping[tuple[str, ...], int | None]

    def error(self, keys: tuple[str, ...], message: str, fix: str) -> UserError:
        """A mistake at a key, or at the nearest block around it that has a line."""
        line = next((self.lines[keys[:n]] for n in range(len(keys), 0, -1) if keys[:n] in self.lines), None)
        return UserError(message, file=self.path, line=line, key=".".join(keys) or None, fix=fix)


def read_shipped(path: Path) -> ProfileFile:
    """A file of the package: read fast, without lines."""
    data = yaml.load(path.read_text(encoding="utf-8"), Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader))
    return _checked(path, data, {})


def read(path: Path) -> ProfileFile:
    """A user's file, with the line of every key."""
    from rlsim.scenario.yamltext import read_yaml

    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        message = f"the calibration profile cannot be read: {error}"
        raise UserError(message, file=str(path), fix="a YAML file in UTF-8") from None
    data, marks = read_yaml(text, str(path))
    return _checked(path, data, {key: mark.line for key, mark in marks.items()})


def _checked(path: Path, data: Any, lines: Mapping[tuple[str, ...], int | None]) -> ProfileFile:
    """Everything but the parameters' values is as it should be."""
    bare = ProfileFile(str(path), path.stem, None, {}, lines)
    if not isinstance(data, dict):
        raise bare.error((), "a calibration profile is a mapping of keys", "`parameters: {gemm_derate: {value: …}}`")
    for key in data:
        if key not in KEYS:
            raise bare.error((key,), f"unknown key {key!r}", _nearest(key, KEYS))
    name, base, parameters = data.get("name", path.stem), data.get("base"), data.get("parameters", {})
    for key, text in (("name", name), ("base", base)):
        if text is not None and not isinstance(text, str):
            raise bare.error((key,), f"{text!r} is not text", "a name")
    if parameters is None:
        parameters = {}
    if not isinstance(parameters, dict):
        raise bare.error(("parameters",), "not a mapping of parameters", "`parameters: {gemm_derate: {value: …}}`")
    return ProfileFile(str(path), name, base, parameters, lines)


def parameter(file: ProfileFile, name: str, inherited: Parameter | None, known: Mapping[str, Parameter]) -> Parameter:
    """One parameter of a file, laid over the base's. `known`: those there are; empty where this file defines them."""
    fields, at = file.parameters[name], ("parameters", name)
    if known and inherited is None:
        raise file.error(at, f"no parameter {name!r}", _nearest(name, tuple(known)))
    if not isinstance(fields, dict):
        example = f"{name}: {{value: …, low: …, high: …, source: …}}"
        raise file.error(at, "not a mapping of value, low, high and source", example)
    for field in fields:
        if field not in FIELDS:
            raise file.error((*at, field), f"unknown field {field!r}", _nearest(field, FIELDS))
    missing = [field for field in NEEDED if fields.get(field) is None]
    if missing:
        raise file.error(at, f"{', '.join(missing)} missing", f"a parameter has {', '.join(NEEDED)}")
    low, value, high = (_number(file, (*at, field), fields[field], inherited) for field in ("low", "value", "high"))
    if not low <= value <= high:
        raise file.error(at, f"the range {low:g} to {high:g} does not hold the value {value:g}", "low ≤ value ≤ high")
    _possible(file, at, low, high, inherited)
    return Parameter(
        value=value,
        low=low,
        high=high,
        unit=str(fields.get("unit", inherited.unit if inherited else "")),
        source=str(fields["source"]),
        description=str(fields.get("description", inherited.description if inherited else "")),
    )


def _number(file: ProfileFile, at: tuple[str, ...], written: Any, inherited: Parameter | None) -> float:
    """A plain number, SI; YAML 1.1 reads `1e9` as text."""
    unit = inherited.unit if inherited is not None and inherited.unit else "no unit"
    fix = f"a finite number in SI ({unit}), without the unit"
    if isinstance(written, bool) or not isinstance(written, int | float | str):
        raise file.error(at, f"{written!r} is not a number", fix)
    try:
        number = float(written)
    except (ValueError, OverflowError):
        raise file.error(at, f"{str(written)[:40]!r} is not a number", fix) from None
    if not math.isfinite(number):
        raise file.error(at, f"{number} is not a finite number", fix)
    return number


def _possible(file: ProfileFile, at: tuple[str, ...], low: float, high: float, inherited: Parameter | None) -> None:
    """Times, rates and factors are above 0 (a share hidden may be 0); shares are at most 1."""
    name = at[-1]
    overlap = name.endswith("_overlap")
    if low < 0 or (low == 0 and not overlap):
        raise file.error((*at, "low"), f"{low:g} is not possible", "a value ≥ 0" if overlap else "a value > 0")
    share = overlap or name.endswith(("_efficiency", "_share", "_slack"))
    if share and high > 1:
        raise file.error((*at, "high"), f"{high:g} is not possible for a share", "a value ≤ 1")


def _nearest(word: str, words: tuple[str, ...]) -> str:
    close = difflib.get_close_matches(word, words, n=1, cutoff=0.5)
    return close[0] if close else "one of " + ", ".join(words)
