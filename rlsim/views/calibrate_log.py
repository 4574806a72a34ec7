"""`rlsim calibrate from-log`: the run's phases before and after the fit, and what moved."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from typing import Any

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from rlsim.calibrate.from_log import LogAnswer, PhaseError
from rlsim.views.calibrate import number

NAMES = {
    "rollout": "rollout",
    "logprob": "log-probs",
    "train": "update",
    "weight_sync": "weight sync",
    "other": "the rest",
    "step": "step",
}


def report(answer: LogAnswer) -> RenderableType:
    """Errors by phase, parameters with their errors, lengths, and how to go on."""
    log = answer.log
    title = f"{log.framework} log, {len(log.steps)} steps ({log.steps[0]} to {log.steps[-1]})"
    parts: list[RenderableType] = [Text(title, style="bold"), _phases(f"fitted on {answer.steps} steps", answer.fitted)]
    if answer.held:
        parts.append(_phases(f"{answer.steps_held} later steps, not fitted", answer.held))
    parts += [_parameters(answer), *(Text(f"  {note}", style="dim") for note in answer.notes)]
    parts.append(Text(f"wrote {answer.path}; `rlsim calibrate show {answer.path}` tells what it rests on"))
    parts.append(
        Text(f"this run:  rlsim run {answer.scenario} " + " ".join(f"--set {shlex.quote(s)}" for s in answer.sets))
    )
    parts.append(Text("a what-if: the same with more --set, for example --set schedule=async"))
    return Group(*parts)


def as_dict(answer: LogAnswer) -> dict[str, Any]:
    """The same as plain data; seconds a step."""

    def rows(errors: Sequence[PhaseError]) -> list[dict[str, Any]]:
        return [{"phase": e.phase, "measured": e.measured, "before": e.before, "after": e.after} for e in errors]

    return {
        "framework": answer.log.framework,
        "steps_fitted": answer.steps,
        "steps_held_out": answer.steps_held,
        "fitted": rows(answer.fitted),
        "held_out": rows(answer.held),
        "parameters": {
            name: {
                "before": answer.prior.value(name),
                "value": answer.profile.value(name),
                "stderr": answer.profile.parameters[name].stderr,
                "low": answer.profile.low(name),
                "high": answer.profile.high(name),
            }
            for name in answer.found.names
        },
        "set": list(answer.sets),
        "notes": list(answer.notes),
        "profile": str(answer.path),
    }


def _phases(title: str, errors: Sequence[PhaseError]) -> Table:
    grid = Table(box=None, padding=(0, 2, 0, 0), header_style="bold")
    grid.add_column(title)
    for name in ("measured, s", "before, s", "error", "after, s", "error"):
        grid.add_column(name, justify="right")
    for one in errors:
        style = "bold" if one.phase == "step" else ""
        cells = [f"{one.measured:.1f}"]
        for value in (one.before, one.after):
            cells += [f"{value:.1f}", f"{100 * (value / one.measured - 1):+.0f}%" if one.measured > 0 else "-"]
        grid.add_row(NAMES.get(one.phase, one.phase), *cells, style=style)
    return grid


def _parameters(answer: LogAnswer) -> RenderableType:
    if not answer.found.names:
        return Text("no parameter moves this run by 0.3% of its step: the profile stays as it was")
    grid = Table(box=None, padding=(0, 2, 0, 0), header_style="bold")
    grid.add_column("parameter")
    for name in ("was", "range", "is", "p10-p90"):
        grid.add_column(name, justify="right")
    grid.add_column("what it is", overflow="fold")
    for name in answer.found.names:
        was, now = answer.prior.parameters[name], answer.profile.parameters[name]
        grid.add_row(
            name,
            number(was.value),
            f"{number(was.low)}-{number(was.high)}",
            number(now.value),
            f"{number(now.low)}-{number(now.high)}",
            f"{was.description} ({was.unit})" if was.unit else was.description,
        )
    return grid
