"""What `rlsim calibrate fit` does: tables to fits to a profile in a file."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rlsim.calibrate import from_fits, profile_text, tables
from rlsim.calibrate.fit import Fitted, fit_all
from rlsim.calibrate.profile_text import NewProfile
from rlsim.catalog import profiles
from rlsim.errors import UserError
from rlsim.model import parameters

if TYPE_CHECKING:
    import pandas as pd

    from rlsim.system import System


@dataclass(frozen=True)
class FitAnswer:
    """What was fitted, the profile made of it, and where it was written."""

    fits: tuple[Fitted, ...]
    profile: NewProfile
    path: Path
    rules: tuple[str, ...]


def fit_tables(
    places: Sequence[Path], out: Path, base: str, rules: Sequence[str], where: Sequence[str], scenario: Path | None
) -> FitAnswer:
    """Fit the tables and write the profile."""
    check_names(out, base)
    points = tables.medians(_filtered(tables.read(places), where))
    system = _system(scenario) if scenario is not None else None
    model = _shape(system) if system is not None else None
    _one_model(points, model)
    fits = fit_all(points, rules, model)
    gpu = from_fits.gpu_of(points)
    sync = None
    if system is not None:
        engines = sum(part.layout.engines for part in system.rollout)
        bucket = system.scenario.weight_sync.bucket
        sync = from_fits.Receivers(system.trainer.gpus, engines, system.trainer_pool.nic, float(bucket or 0.0))
    profile = from_fits.profile_of(fits, out.stem, base, sync, gpu)
    if gpu is not None:
        factors = from_fits.kernel_factors(points, gpu)
        profile = replace(profile, parameters={**profile.parameters, **factors})
    write(profile, out, f"Fitted by `rlsim calibrate fit`: {len(points)} settings in {', '.join(map(str, places))}.")
    return FitAnswer(tuple(fits), profile, out, tuple(rules))


def check_names(out: Path, base: str) -> None:
    """The profile can be written and read again."""
    if out.suffix not in (".yaml", ".yml"):
        raise UserError(f"{out} is not a profile's name", key="--out", fix="a file that ends in .yaml")
    if base not in profiles.names():
        raise UserError(f"no calibration profile {base!r}", key="--base", fix="one of " + ", ".join(profiles.names()))


def write(profile: NewProfile, out: Path, header: str) -> None:
    """Write it, or say why that cannot be."""
    try:
        profile_text.write(profile, out, header)
    except OSError as error:
        raise UserError(f"cannot be written: {error.strerror}", file=str(out), key="--out") from None


def _filtered(rows: pd.DataFrame, where: Sequence[str]) -> pd.DataFrame:
    for condition in where:
        name, equals, value = condition.partition("=")
        if not equals or name not in rows.columns:
            fix = "COLUMN=VALUE with one of " + ", ".join(map(str, rows.columns))
            raise UserError(f"no condition {condition!r}", key="--where", fix=fix)
        column = rows[name]
        rows = rows[[_same(v, value) for v in column]]
        if rows.empty:
            told = ", ".join(map(str, column.dropna().unique()[:8]))
            raise UserError(f"no row with {condition}", key="--where", fix=f"one of {told}")
    return rows


def _same(cell: Any, written: str) -> bool:
    try:
        return float(cell) == float(written)
    except (TypeError, ValueError):
        return str(cell) == written


def _system(file: Path) -> System:
    from rlsim.scenario.load import load_scenario
    from rlsim.system import resolve

    scenario = load_scenario(file).variants[0]
    asked = scenario.costs.profile
    if asked.endswith((".yaml", ".yml")) and not Path(asked).exists():  # the one that is about to be written
        scenario = scenario.model_copy(update={"costs": scenario.costs.model_copy(update={"profile": "generic"})})
    return resolve(scenario)


def _shape(system: System) -> pd.DataFrame:
    import pandas as pd

    model = system.model
    return pd.DataFrame([{"parameters": parameters(model), "layers": model.num_layers, "hidden": model.hidden}])


def _one_model(points: pd.DataFrame, model: pd.DataFrame | None) -> None:
    """Terms that differ from model to model need to be told at which one they are wanted."""
    if model is not None:
        return
    for benchmark in from_fits.ROLES:
        rows = points[points["benchmark"] == benchmark]
        sizes = sorted(set(rows["parameters"].dropna())) if "parameters" in rows.columns else []
        if len(sizes) > 1:
            told = ", ".join(f"{n / 1e6:.3g}M" for n in sizes)
            message = f"{benchmark}: the tables hold models of {told} parameters"
            raise UserError(message, key="--scenario", fix="a scenario with the model to fit for")
