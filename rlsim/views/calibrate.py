"""`rlsim calibrate show`: what every figure of a profile rests on."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from rlsim.calibrate.command import FitAnswer
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
    parts: list[RenderableType] = [Text(title, style="bold"), *_origin(profile), grid]
    for role, knots in profile.knots.items():
        points = ", ".join(f"{x:g}: {y:.3g} s" for x, y in zip(knots.at, knots.seconds, strict=True))
        parts.append(Text(f"measured.{role} along a curve: {points}"))
    if profile.correlations:
        strong = sorted(profile.correlations.items(), key=lambda item: -abs(item[1]))
        told = "; ".join(f"{a} and {b} {rho:+.2f}" for (a, b), rho in strong[:8])
        parts.append(Text(f"errors go together: {told}"))
    parts += [Text(_fit_line(one)) for one in profile.fits]
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
        "fits": [dict(one) for one in profile.fits],
    }


def _fit_line(fit: Mapping[str, Any]) -> str:
    """ "fit collective all_gather (tree): alpha_s 1e-4 s/step, …; 1.3% off on 18 points; 2.0% off on 9 held out" """
    name = " ".join([str(fit.get("benchmark")), *map(str, (fit.get("group") or {}).values())])
    terms = ", ".join(f"{t} {number(c['value'])} {c['unit']}" for t, c in (fit.get("terms") or {}).items())
    told = f"fit {name} ({fit.get('form')}): {terms}"
    for key, where in (("error_fitted", "points"), ("error_held_out", "held out")):
        error = fit.get(key)
        if error:
            told += f"; {100 * error['median']:.1f}% off on {error['points']} {where}"
    return told


def fit_report(answer: FitAnswer) -> RenderableType:
    """Every fit with its terms, its error on fitted points and on those held out; what went into the profile."""
    grid = Table(box=None, padding=(0, 2, 0, 0), header_style="bold")
    grid.add_column("fit", overflow="fold")
    grid.add_column("form", overflow="fold")
    grid.add_column("terms", overflow="fold")
    grid.add_column("points", justify="right")
    grid.add_column("error", justify="right")
    grid.add_column("held out", justify="right")
    grid.add_column("error there\nmedian / p90", justify="right")
    for fit in answer.fits:
        terms = "\n".join(
            f"{name} {number(c.value)} {c.unit} ±{100 * c.stderr / c.value:.1f}%"
            for name, c in fit.coefficients.items()
        )
        held = fit.held
        grid.add_row(
            fit.name,
            fit.form,
            terms,
            str(fit.fitted.points),
            f"{100 * fit.fitted.median:.1f}%",
            "-" if held is None else str(held.points),
            "-" if held is None else f"{100 * held.median:.1f}% / {100 * held.p90:.1f}%",
        )
    profile = answer.profile
    told = [f"measured {role}" for role in profile.measured] + list(profile.parameters)
    heading = f"held out: {', '.join(answer.rules)}; error: |predicted / measured - 1|, median"
    wrote = f"wrote {answer.path} on top of {profile.base}: {', '.join(told)}"
    parts: list[RenderableType] = [Text(heading), grid, Text(wrote)]
    parts += [Text(f"  {note}", style="dim") for note in profile.notes]
    parts.append(Text(f"use it: costs: {{profile: {answer.path.name}}} in a scenario beside it"))
    return Group(*parts)


def fit_dict(answer: FitAnswer) -> dict[str, Any]:
    """The same as plain data."""
    profile = answer.profile
    return {
        "profile": str(answer.path),
        "base": profile.base,
        "hold_out": list(answer.rules),
        "fits": list(profile.fits),
        "parameters": {name: _as_dict(one, True) for name, one in profile.parameters.items()},
        "measured": {
            role: {term: _as_dict(one, True) for term, one in terms.items()} for role, terms in profile.measured.items()
        },
        "notes": list(profile.notes),
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
        told += [f"{key} {_value(value)}" for key, value in one.data.items() if key not in ("files", "machine")]
    if one.range:
        told.append("holds for " + ", ".join(f"{q} {_span(*ends)}" for q, ends in one.range.items()))
    return "; ".join(told)


def _span(low: float, high: float) -> str:
    return number(low) if low == high else f"{number(low)}-{number(high)}"


def _origin(profile: Profile) -> list[Text]:
    """Machines and files of the figures, once."""
    machines = dict.fromkeys(str(p.data["machine"]) for p in profile.parameters.values() if "machine" in p.data)
    files = dict.fromkeys(str(f) for p in profile.parameters.values() for f in p.data.get("files", ()))
    told = f"measured on {'; '.join(machines)}; files {', '.join(files)}"
    return [Text(told, style="dim")] if machines else []


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
