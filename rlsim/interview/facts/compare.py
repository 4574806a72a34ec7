"""Cases played side by side: what most questions come down to."""

from __future__ import annotations

from collections.abc import Mapping

from rlsim.errors import UserError
from rlsim.interview.figure import Figure, Pick, seconds, slower
from rlsim.interview.lab import Case, Lab, Run, Unanswerable

Found = dict[str, Figure | Pick]


def compared(lab: Lab, cases: Mapping[str, Case]) -> tuple[dict[str, Run], Found]:
    """Runs by name, and two figures for each: `NAME`, its step, and `NAME_change`, against the first case's step."""
    runs = lab.runs(cases)
    base = next(iter(runs.values())).step
    found: Found = {}
    for name, run in runs.items():
        found[name] = seconds(run.step)
        found[f"{name}_change"] = slower(run.step, base)
    return runs, found


def altered(lab: Lab, base: Case, **sets: tuple[str, ...]) -> tuple[dict[str, Run], Found]:
    """`compared`, of a case named "base" and what overrides make of it."""
    return compared(lab, {"base": base, **{name: base & keys for name, keys in sets.items()}})


def those_that_run(lab: Lab, cases: Mapping[str, Case]) -> dict[str, Run]:
    """Runs of the cases that are possible on this system; the others are left out."""
    started = {name: lab.start(case) for name, case in cases.items()}
    impossible = (Unanswerable, UserError)
    return {name: one.result() for name, one in started.items() if not isinstance(one.exception(), impossible)}
