"""A profile as YAML text that `rlsim.catalog.profile_file` reads again."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from rlsim.catalog.profile_file import Z90, Parameter

DIGITS = 5


@dataclass(frozen=True)
class NewProfile:
    """What a calibration found. measured: role -> term -> parameter. notes: what could not be had, and why."""

    name: str
    base: str
    parameters: Mapping[str, Parameter] = field(default_factory=dict)
    measured: Mapping[str, Mapping[str, Parameter]] = field(default_factory=dict)
    correlations: Mapping[tuple[str, str], float] = field(default_factory=dict)
    fits: Sequence[Mapping[str, Any]] = ()
    notes: tuple[str, ...] = ()


class _Flow(dict[str, Any]):
    """A mapping on one line."""


class _Dumper(yaml.SafeDumper):
    pass


_Dumper.add_representer(
    _Flow, lambda dumper, data: dumper.represent_mapping("tag:yaml.org,2002:map", data, flow_style=True)
)


def fitted(value: float, stderr: float, unit: str, source: str, **more: Any) -> Parameter:
    """A fitted figure above 0; its range by its standard error on a logarithmic scale, where it cannot reach 0."""
    relative = min(stderr / value, 2.0) if value > 0 else 0.0
    factor = math.exp(Z90 * relative)
    return Parameter(value, value / factor, value * factor, unit, source, "", stderr, **more)


def write(profile: NewProfile, path: Path, header: str) -> None:
    """Write the file; `header` goes on top as a comment. Raises OSError."""
    data: dict[str, Any] = {"name": profile.name, "base": profile.base}
    if profile.parameters:
        data["parameters"] = {name: _fields(one) for name, one in profile.parameters.items()}
    if profile.measured:
        data["measured"] = {
            role: {term: _fields(one) for term, one in terms.items()} for role, terms in profile.measured.items()
        }
    if profile.correlations:
        data["correlations"] = [
            _Flow(between=list(pair), value=round(rho, 3)) for pair, rho in profile.correlations.items()
        ]
    if profile.fits:
        data["fits"] = [_rounded(one) for one in profile.fits]
    comment = "".join(f"# {line}\n" for line in header.splitlines())
    text = yaml.dump(data, Dumper=_Dumper, sort_keys=False, width=120, allow_unicode=True)
    path.write_text(comment + text, encoding="utf-8")


def _fields(one: Parameter) -> _Flow:
    fields: dict[str, Any] = {"value": one.value, "low": one.low, "high": one.high}
    if one.stderr is not None:
        fields["stderr"] = one.stderr
    fields["source"] = one.source
    if one.data:
        fields["data"] = _Flow(one.data)
    if one.range:
        fields["range"] = _Flow({name: list(pair) for name, pair in one.range.items()})
    return _Flow(_rounded(fields))


def _rounded(value: Any) -> Any:
    """Numbers to a few digits, containers in one line each."""
    if isinstance(value, bool):
        return value
    if isinstance(value, float):
        return float(f"{value:.{DIGITS}g}")
    if isinstance(value, Mapping):
        return _Flow({str(k): _rounded(v) for k, v in value.items()})
    if isinstance(value, list | tuple):
        return [_rounded(v) for v in value]
    return value if isinstance(value, int | str) or value is None else str(value)
