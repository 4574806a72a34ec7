"""One simulation of many: a scenario file with some keys changed, and what came of it.

Everything here travels between processes and machines, so it is plain data; the file's text goes along.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from rlsim.errors import UserError
from rlsim.plan.figures import flat
from rlsim.plan.keys import PROFILE

Status = Literal["ok", "infeasible", "error"]
Setting = tuple[str, str]
"""A key and its value, both as in `--set key=value`."""


@dataclass(frozen=True)
class Study:
    """What all simulations of one study share. `sets` are the user's own `--set`, below those of the case."""

    text: str
    file: str
    folder: str
    sets: tuple[str, ...] = ()
    steps: int | None = None
    seed: int | None = None


@dataclass(frozen=True)
class Case:
    """What is special to one simulation: the variant (None: the base) and settings laid over it."""

    variant: str | None
    settings: tuple[Setting, ...]


@dataclass(frozen=True)
class Outcome:
    """`status` ok: `values` holds the figures of the JSON summary by dotted key. Else `message` says why not."""

    status: Status
    message: str
    values: Mapping[str, Any]


def read_study(file: str | Path, sets: tuple[str, ...], steps: int | None, seed: int | None) -> Study:
    """A study of a scenario file. Raises `UserError` where the file cannot be read."""
    path = Path(file)
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError):
        from rlsim.scenario.load import load_scenario

        load_scenario(file)  # says what is wrong
        raise
    return Study(text, str(file), str(path.parent.resolve()), sets, steps, seed)


def evaluate(study: Study, case: Case) -> Outcome:
    """Simulate one case. Whatever goes wrong with it is an outcome: the others go on."""
    from rlsim.api import InfeasibleError, simulate
    from rlsim.scenario.load import loads_scenario

    profile = {key.removeprefix(PROFILE): float(v) for key, v in case.settings if key.startswith(PROFILE)}
    sets = [f"{key}={v}" for key, v in case.settings if not key.startswith(PROFILE)]
    try:
        loaded = loads_scenario(study.text, study.file, [*study.sets, *sets], case.variant, study.folder)
        result = simulate(loaded.variants[0], steps=study.steps, seed=study.seed, profile=profile)
        return Outcome("ok", "", flat(result.summary()))
    except UserError as error:
        return Outcome("error", str(error), {})
    except InfeasibleError as error:
        return Outcome("infeasible", str(error), {})
    except Exception as error:
        return Outcome("error", f"defect of rlsim: {type(error).__name__}: {error}", {})
