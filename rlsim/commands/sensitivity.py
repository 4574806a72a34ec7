"""`rlsim sensitivity`: which uncertain inputs would change the answer."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from rlsim.commands.options import File, First, Html, Jobs, Json, Ray, Seed, Set, place, print_json


def sensitivity(
    file: File,
    over: Annotated[
        list[str] | None,
        typer.Option(
            "--over",
            metavar="INPUT=LOW..HIGH",
            help="An input and its range (or INPUT alone: its default range). Default: all known ones.",
        ),
    ] = None,
    method: Annotated[
        str, typer.Option("--method", help="tornado (one at a time), sobol or morris (all at once too).")
    ] = "tornado",
    metric: Annotated[
        str, typer.Option("--metric", help="Figure, as run --json names it, or margin (between two variants).")
    ] = "step_time",
    between: Annotated[
        str | None, typer.Option("--between", metavar="A,B", help="With --metric margin: the two variants.")
    ] = None,
    set_: Set = None,
    variant: First = None,
    samples: Annotated[
        int | None, typer.Option("--samples", min=2, help="Groups of points of sobol (64) or walks of morris (10).")
    ] = None,
    steps: Annotated[
        int | None, typer.Option("--steps", min=1, help="Measured steps of a simulation (default: 2).")
    ] = None,
    seed: Seed = None,
    jobs: Jobs = None,
    ray: Ray = None,
    out: Annotated[
        Path | None,
        typer.Option("--out", parser=place, help="Keep finished simulations in this folder; the same command goes on."),
    ] = None,
    json_: Json = False,
    html: Html = None,
) -> None:
    """Move each uncertain input over its range: which would change the step time, the price or the winner."""
    from rlsim.errors import UserError
    from rlsim.plan.sensitivity import sensitivity as run
    from rlsim.views import progress, text
    from rlsim.views import sensitivity as view

    pair = None
    if between is not None:
        first, _, second = (part.strip() for part in between.partition(","))
        if not first or not second:
            raise UserError("not two variants", key=f"--between {between}", fix="--between A,B")
        pair = (first, second)
    try:
        answer = run(
            file,
            over or [],
            method=method,  # type: ignore[arg-type]
            metric=metric,
            between=pair,
            sets=set_ or [],
            variant=variant,
            samples=samples,
            steps=steps,
            seed=seed,
            jobs=jobs,
            ray=ray,
            out=out,
            progress=progress.simulations,
        )
    except KeyboardInterrupt:
        kept = f"finished simulations are in {out}/; the same command goes on from there" if out else "nothing was kept"
        typer.echo(f"stopped: {kept}", err=True)
        raise typer.Exit(130) from None
    if html is not None:
        view.write_html(answer, html)
    if json_:
        print_json({**answer.as_dict(), "sentences": view.sentences(answer)})
    else:
        text.show(view.report(answer))
