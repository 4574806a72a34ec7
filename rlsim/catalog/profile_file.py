"""A calibration profile as a file: read, checked parameter by parameter, every mistake with its line.

What a file does not name is its base's (`base: NAME` of a shipped profile, default `generic`).
"""

from __future__ import annotations

import difflib
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import yaml

from rlsim.errors import UserError

FIELDS = ("value", "low", "high", "unit", "source", "description", "stderr", "data", "range")
NEEDED = ("value", "low", "high", "source")
KEYS = ("name", "base", "parameters", "measured", "correlations", "fits")
OVERLAP = "_overlap"
Z90 = 1.2815515655446004  # 90th percentile of the standard normal


@dataclass(frozen=True)
class Parameter:
    """One calibrated figure: SI value, its 10th and 90th percentile, unit, source, and what it is.

    stderr   standard error of a fitted value, None for a prior
    data     what it was fitted on: points, files, machine, held-out error
    range    where it holds: quantity -> (least, most) that was measured
    """

    value: float
    low: float
    high: float
    unit: str
    source: str
    description: str
    stderr: float | None = None
    data: Mapping[str, Any] = field(default_factory=dict)
    range: Mapping[str, tuple[float, float]] = field(default_factory=dict)


@dataclass(frozen=True)
class ProfileFile:
    """What one file says, before its base is laid under it. `lines`: of each key, by its path."""

    path: str
    name: str
    base: str | None
    parameters: Mapping[str, Any]
    lines: Mapping[tuple[str, ...], int | None]
    measured: Mapping[str, Any] = field(default_factory=dict)
    correlations: Sequence[Any] = ()
    fits: Sequence[Any] = ()

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
            raise bare.error((key,), f"unknown key {key!r}", nearest(key, KEYS))
    name, base, parameters = data.get("name", path.stem), data.get("base"), data.get("parameters", {})
    for key, text in (("name", name), ("base", base)):
        if text is not None and not isinstance(text, str):
            raise bare.error((key,), f"{text!r} is not text", "a name")
    if parameters is None:
        parameters = {}
    if not isinstance(parameters, dict):
        raise bare.error(("parameters",), "not a mapping of parameters", "`parameters: {gemm_derate: {value: …}}`")
    measured, correlations = data.get("measured") or {}, data.get("correlations") or []
    if not isinstance(measured, dict):
        raise bare.error(("measured",), "not a mapping of roles", "`measured: {train: {token_s: {value: …}}}`")
    if not isinstance(correlations, list):
        example = "`correlations: [{between: [gemm_derate, update_fixed_s], value: -0.4}]`"
        raise bare.error(("correlations",), "not a list", example)
    fits = [one for one in data.get("fits") or [] if isinstance(one, dict)]
    return ProfileFile(str(path), name, base, parameters, lines, measured, correlations, fits)


def parameter(file: ProfileFile, name: str, inherited: Parameter | None, known: Mapping[str, Parameter]) -> Parameter:
    """One parameter of a file, laid over the base's. `known`: those there are; empty where this file defines them."""
    fields, at = file.parameters[name], ("parameters", name)
    if known and inherited is None:
        raise file.error(at, f"no parameter {name!r}", nearest(name, tuple(known)))
    if not isinstance(fields, dict):
        example = f"{name}: {{value: …, low: …, high: …, source: …}}"
        raise file.error(at, "not a mapping of value, low, high and source", example)
    missing = [field for field in NEEDED if fields.get(field) is None]
    if missing and set(fields) <= set(FIELDS):
        raise file.error(at, f"{', '.join(missing)} missing", f"a parameter has {', '.join(NEEDED)}")
    found = parameter_of(file, at, fields, inherited.unit if inherited else "")
    _possible(file, at, found.low, found.high)
    return replace(found, description=str(fields.get("description", inherited.description if inherited else "")))


def fields_of(file: ProfileFile, at: tuple[str, ...], written: Any) -> dict[str, Any]:
    """Fields of a measured term, what is left out filled in: a plain number is exact; the range is ±1.28 stderr."""
    fields = dict(written) if isinstance(written, dict) else {"value": written}
    fields.setdefault("source", "measured")
    if fields.get("value") is None:
        raise file.error(at, "value missing", "`{value: 1.2e-5, stderr: 1e-6}` or a plain number")
    value = _number(file, (*at, "value"), fields["value"], "")
    if value < 0:
        raise file.error(at, f"{value:g} is not possible", "a value ≥ 0")
    error = _number(file, (*at, "stderr"), fields.get("stderr") or 0.0, "")
    fields.setdefault("low", max(0.0, value - Z90 * error))
    fields.setdefault("high", value + Z90 * error)
    return fields


def parameter_of(file: ProfileFile, at: tuple[str, ...], fields: Mapping[str, Any], unit: str) -> Parameter:
    """A parameter from its fields, each checked."""
    for one in fields:
        if one not in FIELDS:
            raise file.error((*at, one), f"unknown field {one!r}", nearest(one, FIELDS))
    low, value, high = (_number(file, (*at, name), fields[name], unit) for name in ("low", "value", "high"))
    if not low <= value <= high:
        raise file.error(at, f"the range {low:g} to {high:g} does not hold the value {value:g}", "low ≤ value ≤ high")
    data = fields.get("data") or {}
    error = fields.get("stderr")
    return Parameter(
        value=value,
        low=low,
        high=high,
        unit=str(fields.get("unit", unit)),
        source=str(fields["source"]),
        description=str(fields.get("description", "")),
        stderr=None if error is None else _number(file, (*at, "stderr"), error, unit),
        data=data if isinstance(data, dict) else {"data": data},
        range=_range(file, (*at, "range"), fields.get("range") or {}),
    )


def _range(file: ProfileFile, at: tuple[str, ...], written: Any) -> dict[str, tuple[float, float]]:
    """Range of validity: quantity -> [least, most]."""
    fix = "`{tokens: [128, 8192]}`"
    if not isinstance(written, dict):
        raise file.error(at, "not a mapping of quantities to [least, most]", fix)
    found = {}
    for quantity, pair in written.items():
        if not isinstance(pair, list) or len(pair) != 2:
            raise file.error((*at, str(quantity)), f"{pair!r} is not [least, most]", fix)
        least, most = (_number(file, (*at, str(quantity)), end, "") for end in pair)
        found[str(quantity)] = (least, most)
    return found


def correlations(file: ProfileFile, known: Mapping[str, Parameter]) -> dict[tuple[str, str], float]:
    """Correlations of the errors of pairs of parameters, -1 to 1."""
    found = {}
    for entry in file.correlations:
        between = entry.get("between") if isinstance(entry, dict) else None
        if not isinstance(between, list) or len(between) != 2 or set(entry) != {"between", "value"}:
            fix = "`{between: [gemm_derate, update_fixed_s], value: -0.4}`"
            raise file.error(("correlations",), f"{entry!r} is not a correlation", fix)
        for name in between:
            if name not in known:
                raise file.error(("correlations",), f"no parameter {name!r}", nearest(str(name), tuple(known)))
        value = _number(file, ("correlations",), entry["value"], "")
        if not -1 <= value <= 1:
            raise file.error(("correlations",), f"{value:g} is not a correlation", "a value from -1 to 1")
        found[between[0], between[1]] = value
    return found


def _number(file: ProfileFile, at: tuple[str, ...], written: Any, unit: str) -> float:
    """A plain number, SI; YAML 1.1 reads `1e9` as text."""
    fix = f"a finite number in SI ({unit or 'no unit'}), without the unit"
    if isinstance(written, bool) or not isinstance(written, int | float | str):
        raise file.error(at, f"{written!r} is not a number", fix)
    try:
        number = float(written)
    except (ValueError, OverflowError):
        raise file.error(at, f"{str(written)[:40]!r} is not a number", fix) from None
    if not math.isfinite(number):
        raise file.error(at, f"{number} is not a finite number", fix)
    return number


def _possible(file: ProfileFile, at: tuple[str, ...], low: float, high: float) -> None:
    """Times, rates and factors are above 0 (a share hidden may be 0); shares are at most 1."""
    name = at[-1]
    overlap = name.endswith(OVERLAP)
    if low < 0 or (low == 0 and not overlap):
        raise file.error((*at, "low"), f"{low:g} is not possible", "a value ≥ 0" if overlap else "a value > 0")
    if is_share(name) and high > 1:
        raise file.error((*at, "high"), f"{high:g} is not possible for a share", "a value ≤ 1")


def is_share(name: str) -> bool:
    """Whether a parameter is a share by its name: at most 1."""
    return name.endswith(("_efficiency", "_share", "_slack", OVERLAP))


def nearest(word: str, words: tuple[str, ...]) -> str:
    """The nearest right word, or all of them."""
    close = difflib.get_close_matches(word, words, n=1, cutoff=0.5)
    return close[0] if close else "one of " + ", ".join(words)
