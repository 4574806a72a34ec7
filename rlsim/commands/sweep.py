"""`rlsim sweep`: one scenario at many points."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from rlsim.commands.options import File, Jobs, Json, Ray, Seed, Set, Steps, Variant, place, print_json
from rlsim.errors import UserError


def sweep(
    file: File,
    over: Annotated[
        list[str] | None,
        typer.Option(
            "--over",
            metavar="KEY=A,B,C",
            help="What to vary: values, or with --random and --lhs a range KEY=LOW..HIGH[:log]. May be repeated.",
        ),
    ] = None,
    random: Annotated[int | None, typer.Option("--random", min=1, help="So many random points.")] = None,
    lhs: Annotated[int | None, typer.Option("--lhs", min=1, help="So many points of a Latin hypercube.")] = None,
    sample_seed: Annotated[int, typer.Option("--sample-seed", min=0, help="Seed of the points.")] = 0,
    set_: Set = None,
    variant: Variant = None,
    steps: Steps = None,
    seed: Seed = None,
    jobs: Jobs = None,
    ray: Ray = None,
    out: Annotated[
        Path | None,
        typer.Option("--out", parser=place, help="Keep finished points in this folder; the same command goes on."),
    ] = None,
    metric: Annotated[
        list[str] | None, typer.Option("--metric", help="Figure to show, as --json names it. May be repeated.")
    ] = None,
    json_: Json = False,
) -> None:
    """Simulate a scenario at every combination of values, or at samples of ranges."""
    from rlsim.plan import figures
    from rlsim.plan.sweep import sweep as run
    from rlsim.views import progress, text
    from rlsim.views import sweep as view

    if random is not None and lhs is not None:
        raise UserError("both --random and --lhs are given", key="--random", fix="one of them")
    shown = tuple(figures.figure(name) for name in metric or ())
    try:
        answer = run(
            file,
            over or [],
            sets=set_ or [],
            variant=variant,
            sampler="random" if random is not None else "lhs" if lhs is not None else "grid",
            n=random or lhs or 0,
            sample_seed=sample_seed,
            steps=steps,
            seed=seed,
            jobs=jobs,
            ray=ray,
            out=out,
            progress=progress.simulations,
        )
    except KeyboardInterrupt:
        kept = f"finished points are in {out}/; the same command goes on from there" if out else "nothing was kept"
        typer.echo(f"stopped: {kept}", err=True)
        raise typer.Exit(130) from None
    if json_:
        print_json(answer.as_dict(shown))
    else:
        text.show(view.report(answer, shown or figures.DEFAULT, out))
    if not answer.count("ok"):
        raise typer.Exit(2)
