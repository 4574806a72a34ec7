"""Calibration profiles: what physics cannot give, per framework, each figure with a range and a source.

`profiles/generic.yaml` holds every parameter with its prior. `profiles/<framework>.yaml` overrides some of them; a
profile is never a global constant, and the output names the one in use.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

import yaml

from rlsim.errors import UserError

FOLDER = Path(__file__).parent / "profiles"


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
class Profile:
    """Named parameters of one framework; versions and GPUs that they come from are in their sources."""

    name: str
    parameters: Mapping[str, Parameter]

    def value(self, name: str) -> float:
        """SI value of a parameter; a KeyError is a defect of ours."""
        return self.parameters[name].value

    def low(self, name: str) -> float:
        return self.parameters[name].low

    def high(self, name: str) -> float:
        return self.parameters[name].high

    def with_values(self, **values: float) -> Profile:
        """The same profile with some values changed (for sensitivity, fitting and tests)."""
        changed = dict(self.parameters)
        for name, value in values.items():
            changed[name] = replace(changed[name], value=value)
        return Profile(self.name, changed)


def names() -> list[str]:
    """The profiles that are shipped."""
    return sorted(path.stem for path in FOLDER.glob("*.yaml"))


def profile(name: str) -> Profile:
    """A shipped profile by name, or one from a YAML file of the same form (path)."""
    path = Path(name) if name.endswith((".yaml", ".yml")) else FOLDER / f"{name}.yaml"
    if not path.exists():
        raise UserError(f"no calibration profile {name!r}", key="costs.profile", fix="one of " + ", ".join(names()))
    return _load(path)


def profile_for(framework: str, requested: str = "auto") -> Profile:
    """The profile of a scenario: the one asked for, else the framework's, else `generic`."""
    if requested != "auto":
        return profile(requested)
    return profile(framework if framework in names() else "generic")


@cache
def _load(path: Path) -> Profile:
    content = yaml.safe_load(path.read_text()) or {}
    base = dict(_load(FOLDER / f"{content['base']}.yaml").parameters) if "base" in content else {}
    for name, fields in content.get("parameters", {}).items():
        base[name] = _parameter(name, fields, base.get(name), path)
    return Profile(content.get("name", path.stem), base)


def _parameter(name: str, fields: Mapping[str, Any], inherited: Parameter | None, path: Path) -> Parameter:
    known = {"value", "low", "high", "unit", "source", "description"}
    unknown = set(fields) - known
    missing = {"value", "low", "high", "source"} - set(fields)
    if unknown or missing:
        raise UserError(
            f"a profile parameter has {', '.join(sorted(known))}", file=str(path), key=name, fix="complete it"
        )
    low, value, high = (float(fields[k]) for k in ("low", "value", "high"))
    if not low <= value <= high:
        raise UserError("the range does not hold the value", file=str(path), key=name, fix="low <= value <= high")
    unit = str(fields.get("unit", inherited.unit if inherited else ""))
    text = str(fields.get("description", inherited.description if inherited else ""))
    return Parameter(value, low, high, unit, str(fields["source"]), text)
