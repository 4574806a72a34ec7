"""`rlsim calibrate show`: what every figure of a profile rests on."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from rlsim.catalog.profile_file import Parameter
from rlsim.catalog.profiles import Profile


def report(profile: Profile, every: bool) -> RenderableType:
    """The parameters that the file itself gives, or all; each with error, source and range of validity."""
    shown = _shown(profile, every)
    base = f", on top of {profile.base}" if profile.base is not None else ""
    title = f"profile {profile.name}{base}: {len(shown)} of {len(profile.parameters)} parameters"
    grid = Table(box=None, padding=(0, 2, 0, 0), header_style="bold")
    for name, justify in (("parameter", "left"), ("value", "right"), ("p10-p90", "right"), ("error", "right")):
        grid.add_column(name, justify=justify, no_wrap=True)  # type: ignore[arg-type]
    grid.add_column("unit", no_wrap=True)
    grid.add_column("rests on", overflow="fold")
    for name, one in shown.items():
        error = f"±{100 * one.stderr / one.value:.1f}%" if one.stderr is not None and one.value else "-"
        spread = f"{number(one.low)}-{number(one.high)}"
        grid.add_row(name, number(one.value), spread, error, one.unit or "-", _basis(one))
    parts: list[RenderableType] = [Text(title, style="bold"), grid]
    for role, knots in profile.knots.items():
        points = ", ".join(f"{x:g}: {y:.3g} s" for x, y in zip(knots.at, knots.seconds, strict=True))
        parts.append(Text(f"measured.{role} along a curve: {points}"))
    if profile.correlations:
        strong = sorted(profile.correlations.items(), key=lambda item: -abs(item[1]))
        told = "; ".join(f"{a} and {b} {rho:+.2f}" for (a, b), rho in strong[:8])
        parts.append(Text(f"errors go together: {told}"))
    if not every and profile.base is not None:
        parts.append(Text("`--all` shows what is inherited", style="dim"))
    return Group(*parts)


def as_dict(profile: Profile, every: bool) -> dict[str, Any]:
    """The same as plain data."""
    return {
        "name": profile.name,
        "base": profile.base,
        "parameters": {name: _as_dict(one, name in profile.own) for name, one in _shown(profile, every).items()},
        "knots": {role: {"at": list(k.at), "seconds": list(k.seconds)} for role, k in profile.knots.items()},
        "correlations": [{"between": list(pair), "value": rho} for pair, rho in profile.correlations.items()],
    }


def number(value: float) -> str:
    """Three digits; plain where that is short."""
    if value == 0 or 1e-3 <= abs(value) < 1e4:
        return f"{value:.4g}" if abs(value) >= 1000 else f"{value:.3g}"
    return f"{value:.2e}".replace("e-0", "e-").replace("e+0", "e")


def _shown(profile: Profile, every: bool) -> Mapping[str, Parameter]:
    return {name: one for name, one in profile.parameters.items() if every or name in profile.own}


def _basis(one: Parameter) -> str:
    """Source, points and range of validity in a line."""
    told = [one.source]
    if one.data:
        told.append(", ".join(f"{key} {_value(value)}" for key, value in one.data.items()))
    if one.range:
        told.append("holds for " + ", ".join(f"{q} {number(a)}-{number(b)}" for q, (a, b) in one.range.items()))
    return "; ".join(told)


def _value(value: Any) -> str:
    if isinstance(value, float):
        return number(value)
    return " ".join(map(str, value)) if isinstance(value, list) else str(value)


def _as_dict(one: Parameter, own: bool) -> dict[str, Any]:
    return {
        "value": one.value,
        "low": one.low,
        "high": one.high,
        "stderr": one.stderr,
        "unit": one.unit,
        "source": one.source,
        "data": dict(one.data),
        "range": {quantity: list(pair) for quantity, pair in one.range.items()},
        "inherited": not own,
    }
