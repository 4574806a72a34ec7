"""Calibration profiles: what physics cannot give, per framework, each figure with a range and a source.

`profiles/generic.yaml` holds every parameter with its prior. `profiles/<framework>.yaml` overrides some of them; a
profile is never a global constant, and the output names the one in use.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path
from typing import Any

from rlsim.catalog import measured_curves, profile_file
from rlsim.catalog.measured_curves import Knots
from rlsim.catalog.profile_file import Parameter, ProfileFile
from rlsim.errors import UserError

FOLDER = Path(__file__).parent / "profiles"
GENERIC = "generic"


@dataclass(frozen=True)
class Profile:
    """Named parameters of one framework; versions and GPUs that they come from are in their sources.

    measured      roles priced by curves of the file (`measured_curves`) in place of the kernel tables
    knots         of such a role, where it has a curve in place of a line
    correlations  between two fitted parameters' errors, where they are known
    fits          what was fitted to tables, as the fit reports it; nothing is priced by it
    own           parameters that the file itself gives; the others are its base's
    """

    name: str
    parameters: Mapping[str, Parameter]
    measured: frozenset[str] = frozenset()
    knots: Mapping[str, Knots] = field(default_factory=dict)
    correlations: Mapping[tuple[str, str], float] = field(default_factory=dict)
    own: frozenset[str] = frozenset()
    base: str | None = None
    fits: tuple[Mapping[str, Any], ...] = ()

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
        return replace(self, parameters=changed)

    def term(self, role: str, name: str) -> float:
        """A coefficient of a measured role; 0 (a scale: 1) where the file has none."""
        found = self.parameters.get(measured_curves.full_name(role, name))
        return found.value if found is not None else float(name == "scale")


def names() -> list[str]:
    """The profiles that are shipped."""
    return sorted(path.stem for path in FOLDER.glob("*.yaml"))


def profile(name: str) -> Profile:
    """A shipped profile by name, or one from a YAML file of the same form (path)."""
    if name.endswith((".yaml", ".yml")):
        if not Path(name).exists():
            raise UserError(f"no such file: {name}", key="costs.profile", fix="a path relative to the scenario file")
        return _laid_over(profile_file.read(Path(name)))
    if name not in names():
        fix = "one of " + ", ".join(names()) + ", or a path that ends in .yaml"
        raise UserError(f"no calibration profile {name!r}", key="costs.profile", fix=fix)
    return _shipped(name)


def profile_for(framework: str, requested: str = "auto") -> Profile:
    """The profile of a scenario: the one asked for, else the framework's, else `generic`."""
    if requested != "auto":
        return profile(requested)
    return profile(framework if framework in names() else GENERIC)


@cache
def _shipped(name: str) -> Profile:
    """A profile of the package; `generic` has no base and defines the parameters."""
    file = profile_file.read_shipped(FOLDER / f"{name}.yaml")
    if name != GENERIC:
        return _laid_over(file)
    parameters = {key: profile_file.parameter(file, key, None, {}) for key in file.parameters}
    return Profile(file.name, parameters, own=frozenset(parameters))


def _laid_over(file: ProfileFile) -> Profile:
    """A file over its base, by default `generic`."""
    base = file.base or GENERIC
    if base not in names():
        raise file.error(("base",), f"no calibration profile {base!r}", "one of " + ", ".join(names()))
    known = _shipped(base).parameters
    own = {name: profile_file.parameter(file, name, known.get(name), known) for name in file.parameters}
    terms, knots, measured = measured_curves.read(file)
    parameters = {**known, **own, **terms}
    correlations = profile_file.correlations(file, parameters)
    return Profile(
        file.name, parameters, measured, knots, correlations, frozenset({**own, **terms}), base, tuple(file.fits)
    )
