"""`rlsim plan`: what to run, on how many GPUs, and what would change that."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from rlsim.commands.options import Emit, File, First, Json, Set, place, print_json


def plan(
    file: File,
    set_: Set = None,
    variant: First = None,
    gpus: Annotated[
        str | None, typer.Option("--gpus", help="GPUs to divide: 64, or 64,128,256 for the curve.", metavar="N,…")
    ] = None,
    steps: Annotated[int | None, typer.Option("--steps", min=1, help="Steps of the whole training.")] = None,
    within: Annotated[
        str | None, typer.Option("--within", help="Deadline of those steps: 3d, 36h.", metavar="TIME")
    ] = None,
    usd_per_step: Annotated[float | None, typer.Option("--usd-per-step", help="Dollars of a step at most.")] = None,
    budget: Annotated[float | None, typer.Option("--budget", help="Dollars of all steps at most.")] = None,
    only: Annotated[
        list[str] | None,
        typer.Option("--only", help="Limit a choice: --only schedule=sync --only trainer.tp=1,2.", metavar="KEY=A,B"),
    ] = None,
    simulations: Annotated[
        int, typer.Option("--simulations", min=1, help="Simulations of one regime on one number of GPUs at most.")
    ] = 20,
    processes: Annotated[int, typer.Option("--processes", min=1, help="Worker processes.")] = 2,
    out: Annotated[
        Path | None, typer.Option("--out", parser=place, help="Write the best scenario into this file (YAML).")
    ] = None,
    emit: Emit = None,
    json_: Json = False,
) -> None:
    """Search placement, schedule, split, layouts and engine settings for the best way to run a scenario."""
    from rlsim import api, frameworks
    from rlsim.errors import UserError
    from rlsim.plan.goal import Goal, counts, duration
    from rlsim.plan.planner import plan as search
    from rlsim.plan.search.search import PRICING, Limits
    from rlsim.scenario.dump import dump_yaml
    from rlsim.views import files, progress, text
    from rlsim.views import plan as view

    if emit is not None:
        frameworks.known(emit)
    loaded = api.load_scenario(file, set_ or [], variant)
    goal = Goal(
        gpus=counts(gpus) if gpus is not None else (),
        steps=steps,
        within=duration(within) if within is not None else None,
        usd_per_step=usd_per_step,
        budget=budget,
    )
    limits = Limits(processes=processes, simulations=simulations)
    with progress.reported(PRICING) as report:
        answer = search(loaded, goal, only=_limited(only or []), limits=limits, progress=report)
    best = answer.best
    settings, refusal = None, None
    if emit is not None and best is not None:
        try:
            settings = frameworks.export(emit, best.scenario)
        except UserError as error:  # told after the plan, which is not lost by it
            refusal = error
    if json_:
        print_json({**answer.as_dict(), **({"emit": settings} if emit is not None else {})})
    else:
        text.show(view.report(answer))
        if settings is not None:
            typer.echo(f"\n{settings}")
    if out is not None and best is not None:
        files.write_text(out, dump_yaml(best.scenario), "--out")
        typer.echo(f"wrote {out}: rlsim run {out}", err=json_)
    if refusal is not None:
        raise refusal
    if best is None or not answer.met:
        raise typer.Exit(2)


def _limited(texts: list[str]) -> dict[str, list[Any]]:
    """Values by key of "KEY=A,B"."""
    from rlsim.errors import UserError
    from rlsim.scenario.yamltext import read_value

    found: dict[str, list[Any]] = {}
    for text in texts:
        key, equals, values = text.partition("=")
        if not equals or not key.strip():
            raise UserError("not KEY=A,B", key=f"--only {text}", fix="for example --only trainer.tp=1,2")
        found[key.strip()] = [read_value(value) for value in values.split(",") if value.strip()]
    return found
