"""Least squares of a handful of profile parameters on published rows, with the profile's ranges as priors.

    minimise  sum over rows rho(log predicted/measured / ROW_SIGMA)  +  sum over parameters z²

with z = log(value / prior) / sigma, sigma from the prior's own range (10th to 90th percentile), |z| within that range,
and rho(r) = 2·(sqrt(1 + r²) - 1), so that a row which nothing explains does not drag the others.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import yaml
from scipy.optimize import least_squares

from rlsim.catalog.profiles import FOLDER, Profile
from validation.published.records import Record

Floats = npt.NDArray[np.float64]
Values = Mapping[str, float]

ROW_SIGMA = 0.08
"""Log error of a row that no overhead explains; the same recipe moves 8% in the median between versions."""
STEP = 0.3
"""Finite difference of z: large enough to stand above the discreteness of a simulated batch."""
QUANTILE = 1.2816
"""Standard deviations from the median to the 90th percentile."""


@dataclass
class Problem:
    """Log errors of rows as a function of z, with every prediction remembered.

    log_error: log of predicted over measured of a row with these values; has: which parameters can move a row.
    """

    prior: Profile
    parameters: Sequence[str]
    log_error: Callable[[Record, Values], float]
    has: Callable[[Record], npt.NDArray[np.bool_]]
    memory: dict[tuple[str, tuple[float, ...]], float] = field(default_factory=dict)

    @property
    def sigma(self) -> Floats:
        """Of the logarithm of each parameter, from its range."""
        ranges = [(self.prior.low(name), self.prior.high(name)) for name in self.parameters]
        return np.array([math.log(high / low) / (2 * QUANTILE) for low, high in ranges])

    def values(self, z: Floats) -> dict[str, float]:
        """Parameters at z, held inside their range."""
        out = {}
        for name, shift in zip(self.parameters, (z * self.sigma).tolist(), strict=True):
            value = self.prior.value(name) * math.exp(shift)
            out[name] = min(max(value, self.prior.low(name)), self.prior.high(name))
        return out

    def error(self, record: Record, z: Floats) -> float:
        """Log error at z; parameters that the row's system does not have are left at their prior."""
        here = np.where(self.has(record), z, 0.0)
        key = (record.id, tuple(np.round(here, 6).tolist()))
        if key not in self.memory:
            self.memory[key] = self.log_error(record, self.values(here))
        return self.memory[key]

    def residuals(self, z: Floats, rows: Sequence[Record]) -> Floats:
        off = np.array([self.error(r, z) for r in rows]) / ROW_SIGMA
        robust = np.sign(off) * np.sqrt(2 * (np.sqrt(1 + off**2) - 1))
        return np.concatenate([robust, z])

    def jacobian(self, z: Floats, rows: Sequence[Record]) -> Floats:
        at = self.residuals(z, rows)
        columns = []
        for i in range(len(z)):
            there = z.copy()
            there[i] += STEP if z[i] <= 0 else -STEP
            columns.append((self.residuals(there, rows) - at) / (there[i] - z[i]))
        return np.stack(columns, axis=1)


@dataclass(frozen=True)
class Fit:
    """z and its posterior standard deviation, and the values there."""

    z: Floats
    spread: Floats
    values: dict[str, float]


def fit(problem: Problem, rows: Sequence[Record], evaluations: int) -> Fit:
    """Least squares from the priors; the posterior from the Jacobian at the end."""
    found = least_squares(
        problem.residuals,
        np.zeros(len(problem.parameters)),
        jac=problem.jacobian,
        bounds=(-QUANTILE, QUANTILE),
        args=(rows,),
        max_nfev=evaluations,
        xtol=0.01,
        ftol=0.003,
    )
    z = np.asarray(found.x)
    j = np.asarray(found.jac)
    spread = np.sqrt(np.diag(np.linalg.inv(j.T @ j)))
    return Fit(z, spread, problem.values(z))


def leave_out(
    problem: Problem, rows: Sequence[Record], group: Callable[[Record], str], evaluations: int
) -> dict[str, Fit]:
    """The fit without each group in turn: from the priors again, so that nothing of it is remembered."""
    groups = dict.fromkeys(map(group, rows))
    return {name: fit(problem, [r for r in rows if group(r) != name], evaluations) for name in groups}


def ranges(problem: Problem, whole: Fit, without: Mapping[str, Fit]) -> dict[str, tuple[float, float, float]]:
    """name -> (low, value, high): posterior and the spread of the leave-one-out fits, added in squares."""
    out = {}
    for i, name in enumerate(problem.parameters):
        shifts = [float(other.z[i] - whole.z[i]) for other in without.values()]
        jackknife = math.sqrt(sum(s * s for s in shifts) / max(1, len(shifts)))
        wide = QUANTILE * math.hypot(float(whole.spread[i]), jackknife) * float(problem.sigma[i])
        value = whole.values[name]
        out[name] = (value * math.exp(-wide), value, value * math.exp(wide))
    return out


def table(problem: Problem, whole: Fit, without: Mapping[str, Fit]) -> str:
    """One line per parameter: prior, fit with its range, and the fits without each group."""
    lines = []
    for i, (name, (low, value, high)) in enumerate(ranges(problem, whole, without).items()):
        others = " ".join(f"{f.values[name]:.4g}" for f in without.values())
        lines.append(
            f"{name:30s} prior {problem.prior.value(name):.4g}  fit {value:.4g} [{low:.4g}, {high:.4g}]"
            f"  z {whole.z[i]:+.2f} ±{whole.spread[i]:.2f}  without each: {others}"
        )
    return "\n".join(lines) + "\n"


def plain(fits: Mapping[str, Fit]) -> dict[str, dict[str, float]]:
    """Values of several fits, for a file."""
    return {name: {k: short(v) for k, v in f.values.items()} for name, f in fits.items()}


def store(path: Path, head: str, content: Mapping[str, Any]) -> None:
    """A fit's file for the report, with a line that says what wrote it."""
    path.parent.mkdir(exist_ok=True)
    path.write_text(head + yaml.safe_dump(dict(content), sort_keys=False), encoding="utf-8")


def write_profile(found: Mapping[str, tuple[float, float, float]], source: str, name: str) -> None:
    """Put the fitted parameters into a framework's profile, keeping what else it says."""
    file = FOLDER / f"{name}.yaml"
    text = file.read_text(encoding="utf-8")
    content = yaml.safe_load(text)
    kept = {k: v for k, v in content["parameters"].items() if k not in found}
    lines = [line for line in text.splitlines() if line.startswith("#")]
    lines += [f"name: {name}", f"base: {content['base']}", "parameters:"]
    for parameter, (low, value, high) in found.items():
        fields = ", ".join(f"{k}: {short(v)!r}" for k, v in (("value", value), ("low", low), ("high", high)))
        lines.append(f'  {parameter}: {{{fields}, source: "{source}"}}')
    for parameter, other in kept.items():
        fields = ", ".join(f"{k}: {_shown(v)}" for k, v in other.items())
        lines.append(f"  {parameter}: {{{fields}}}")
    file.write_text("\n".join(lines) + "\n", encoding="utf-8")


def short(value: float) -> float:
    """Four digits."""
    return float(f"{value:.4g}")


def _shown(value: object) -> str:
    return f'"{value}"' if isinstance(value, str) else repr(value)
