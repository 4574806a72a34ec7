"""Fit a handful of NeMo-RL's overheads to its published step times: `python -m validation.fit_nemo`.

    minimise  sum over rows (log predicted/measured / ROW_SIGMA)²  +  sum over parameters z²

with z = log(value / prior) / sigma, sigma from the prior's own range (10th to 90th percentile). Priors are those of the
generic profile; kernels, links and layouts are not touched. Rows: the records of one version. Then the same without
each model in turn. Results go to `validation/fits/nemo_rl.yaml`, and the values with their ranges into the profile.
"""

from __future__ import annotations

import argparse
import math
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import yaml
from scipy.optimize import least_squares

from rlsim import catalog
from rlsim.catalog.profiles import FOLDER, Profile, profile
from validation.predict import model_of
from validation.published import nemo_rl, records, simulation
from validation.published.records import Record

Floats = npt.NDArray[np.float64]

NEMO_RL, FITTED_VERSION = "nemo_rl_perf_summary", "v0.4.0"
PARAMETERS = (
    "engine_step_base_s",
    "engine_step_per_seq_s",
    "rollout_kernel_factor",
    "refit_gather_rate",
    "refit_fixed_s",
    "moe_layer_sync_s",
    "expert_imbalance",
    "gemm_derate",
    "step_fixed_s",
    "async_step_fixed_s",
)
EXPERTS = ("moe_layer_sync_s", "expert_imbalance")
ROW_SIGMA = 0.08
"""Log error of a row that no overhead explains; the same recipe moves 8% in the median between versions."""
STEP = 0.3
"""Finite difference of z: large enough to stand above the discreteness of a simulated batch."""
QUANTILE = 1.2816
"""Standard deviations from the median to the 90th percentile."""
FIT = Path(__file__).parent / "fits" / "nemo_rl.yaml"


@dataclass
class Problem:
    """Log errors of rows as a function of z, with every simulation remembered."""

    prior: Profile
    rows: Sequence[Record]
    memory: dict[tuple[str, tuple[float, ...]], float] = field(default_factory=dict)

    @property
    def sigma(self) -> Floats:
        """Of the logarithm of each parameter, from its range."""
        ranges = [(self.prior.low(name), self.prior.high(name)) for name in PARAMETERS]
        return np.array([math.log(high / low) / (2 * QUANTILE) for low, high in ranges])

    def values(self, z: Floats) -> dict[str, float]:
        """Parameters at z, held inside their range."""
        out = {}
        for name, shift in zip(PARAMETERS, (z * self.sigma).tolist(), strict=True):
            value = self.prior.value(name) * math.exp(shift)
            out[name] = min(max(value, self.prior.low(name)), self.prior.high(name))
        return out

    def log_error(self, record: Record, z: Floats) -> float:
        """Log of predicted over measured; parameters that the row's system does not have are left at their prior."""
        here = np.where(has(record), z, 0.0)
        key = (record.id, tuple(np.round(here, 6).tolist()))
        if key not in self.memory:
            seconds = simulation.predict(nemo_rl.scenario(record), self.values(here)).seconds
            self.memory[key] = math.log(seconds / float(record.measured["total_step_time_s"]))
        return self.memory[key]

    def residuals(self, z: Floats, rows: Sequence[Record]) -> Floats:
        return np.array([*(self.log_error(r, z) / ROW_SIGMA for r in rows), *z])

    def jacobian(self, z: Floats, rows: Sequence[Record]) -> Floats:
        at = self.residuals(z, rows)
        columns = []
        for i in range(len(z)):
            there = z.copy()
            there[i] += STEP if z[i] <= 0 else -STEP
            columns.append((self.residuals(there, rows) - at) / (there[i] - z[i]))
        return np.stack(columns, axis=1)


def has(record: Record) -> npt.NDArray[np.bool_]:
    """Which of the parameters can move this row: experts only in MoE models, the fixed cost only of its own mode."""
    experts = catalog.model(record.config["resolved_recipe"]["model"]).experts is not None
    other = "step_fixed_s" if nemo_rl.mode(record) == nemo_rl.ASYNC else "async_step_fixed_s"
    return np.array([name != other and (experts or name not in EXPERTS) for name in PARAMETERS])


@dataclass(frozen=True)
class Fit:
    """z and its posterior standard deviation, and the values there."""

    z: Floats
    spread: Floats
    values: dict[str, float]


def fit(problem: Problem, rows: Sequence[Record], start: Floats, evaluations: int) -> Fit:
    """Least squares from `start`; the posterior from the Jacobian at the end."""
    limit = QUANTILE
    found = least_squares(
        problem.residuals,
        np.clip(start, -limit + 1e-6, limit - 1e-6),
        jac=problem.jacobian,
        bounds=(-limit, limit),
        args=(rows,),
        max_nfev=evaluations,
        xtol=0.01,
        ftol=0.003,
    )
    z = np.asarray(found.x)
    j = np.asarray(found.jac)
    spread = np.sqrt(np.diag(np.linalg.inv(j.T @ j)))
    return Fit(z, spread, problem.values(z))


def run(rows: Sequence[Record], evaluations: int = 4) -> tuple[Fit, dict[str, Fit]]:
    """The fit on all rows, and without each model: from the priors again, so that nothing of it is remembered."""
    problem = Problem(profile("generic"), rows)
    whole = fit(problem, rows, np.zeros(len(PARAMETERS)), evaluations)
    without = {}
    for model in dict.fromkeys(model_of(r) for r in rows):
        rest = [r for r in rows if model_of(r) != model]
        without[model] = fit(problem, rest, np.zeros(len(PARAMETERS)), evaluations)
    return whole, without


def ranges(whole: Fit, without: Mapping[str, Fit], prior: Profile) -> dict[str, tuple[float, float, float]]:
    """name -> (low, value, high): posterior and the spread of the leave-one-model-out fits, added in squares."""
    sigma = Problem(prior, ()).sigma
    out = {}
    for i, name in enumerate(PARAMETERS):
        shifts = [float(other.z[i] - whole.z[i]) for other in without.values()]
        jackknife = math.sqrt(sum(s * s for s in shifts) / max(1, len(shifts)))
        wide = QUANTILE * math.hypot(float(whole.spread[i]), jackknife) * float(sigma[i])
        value = whole.values[name]
        out[name] = (value * math.exp(-wide), value, value * math.exp(wide))
    return out


def load(path: Path = FIT) -> dict[str, Any]:
    """The stored fit; empty where there is none."""
    return dict(yaml.safe_load(path.read_text(encoding="utf-8"))) if path.exists() else {}


def store(whole: Fit, without: Mapping[str, Fit], rows: Sequence[Record], path: Path = FIT) -> None:
    """Values of all fits, for the report."""
    content = {
        "version": FITTED_VERSION,
        "rows": [r.id for r in rows],
        "layouts": {nemo_rl.recipe_name(r): list(nemo_rl.layout(r)) for r in rows},
        "row_sigma": ROW_SIGMA,
        "values": {k: _short(v) for k, v in whole.values.items()},
        "held_out": {model: {k: _short(v) for k, v in f.values.items()} for model, f in without.items()},
    }
    path.parent.mkdir(exist_ok=True)
    head = "# Written by `python -m validation.fit_nemo`; held_out: the same fit without that model's rows.\n"
    path.write_text(head + yaml.safe_dump(content, sort_keys=False), encoding="utf-8")


def write_profile(found: Mapping[str, tuple[float, float, float]], count: int, name: str = "nemo-rl") -> None:
    """Put the fitted parameters into the profile, keeping what else it says."""
    file = FOLDER / f"{name}.yaml"
    content = yaml.safe_load(file.read_text(encoding="utf-8"))
    kept = {k: v for k, v in content["parameters"].items() if k not in found}
    source = f"fitted on NeMo-RL {FITTED_VERSION[:4]} performance summary, {count} rows"
    lines = [
        "# What is known of NeMo-RL; everything else is the generic prior.",
        "# Fitted values are written by `python -m validation.fit_nemo`, ranges from the fit and leaving out models.",
        f"name: {name}",
        "base: generic",
        "parameters:",
    ]
    for parameter, (low, value, high) in found.items():
        text = ", ".join(f"{k}: {_short(v)!r}" for k, v in (("value", value), ("low", low), ("high", high)))
        lines.append(f'  {parameter}: {{{text}, source: "{source}"}}')
    for parameter, fields in kept.items():
        text = ", ".join(f"{k}: {_shown(v)}" for k, v in fields.items())
        lines.append(f"  {parameter}: {{{text}}}")
    file.write_text("\n".join(lines) + "\n", encoding="utf-8")


def _short(value: float) -> float:
    return float(f"{value:.4g}")


def _shown(value: object) -> str:
    return f'"{value}"' if isinstance(value, str) else repr(value)


def main(arguments: Sequence[str] | None = None) -> None:
    """Fit, print, store."""
    parser = argparse.ArgumentParser(description="Fit NeMo-RL's overheads to its published step times.")
    parser.add_argument("--evaluations", type=int, default=4, help="least-squares steps of the fit on all rows")
    parser.add_argument("--dry", action="store_true", help="print only")
    chosen = parser.parse_args(arguments)
    known = [r for r in records.load() if r.source == NEMO_RL and nemo_rl.version(r) == FITTED_VERSION]
    whole, without = run(known, chosen.evaluations)
    prior = profile("generic")
    found = ranges(whole, without, prior)
    for i, (name, (low, value, high)) in enumerate(found.items()):
        others = " ".join(f"{f.values[name]:.4g}" for f in without.values())
        sys.stdout.write(
            f"{name:24s} prior {prior.value(name):.4g}  fit {value:.4g} [{low:.4g}, {high:.4g}]"
            f"  z {whole.z[i]:+.2f} ±{whole.spread[i]:.2f}  without each model: {others}\n"
        )
    if not chosen.dry:
        store(whole, without, known)
        write_profile(found, len(known))


if __name__ == "__main__":
    main()
