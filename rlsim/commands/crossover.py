"""`rlsim crossover`: where co-located and disaggregated trade places."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from rlsim.commands.options import File, Html, Jobs, Json, Ray, Seed, Set, place, print_json


def crossover(
    file: File,
    x: Annotated[str, typer.Option("--x", help="Across: gpus, or any key with numbers.")] = "gpus",
    y: Annotated[
        str, typer.Option("--y", help="Up: response_tokens.p99 (all responses are scaled), or any key with numbers.")
    ] = "response_tokens.p99",
    x_range: Annotated[
        str | None, typer.Option("--x-range", metavar="LOW..HIGH", help="Default: from 1/8 to 4 times the file's.")
    ] = None,
    y_range: Annotated[
        str | None, typer.Option("--y-range", metavar="LOW..HIGH", help="Default: from 1/8 to 4 times the file's.")
    ] = None,
    against: Annotated[
        list[str] | None,
        typer.Option("--against", help="Compare with this only: disaggregated-sync, one-step-off or async."),
    ] = None,
    set_: Set = None,
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
    """Map over two inputs where co-located and where disaggregated is faster, on-policy and off-policy apart."""
    from rlsim.plan.crossover.crossover import crossover as run
    from rlsim.plan.crossover.designs import AGAINST
    from rlsim.views import crossover as view
    from rlsim.views import progress, text

    try:
        answer = run(
            file,
            x,
            y,
            x_range=x_range,
            y_range=y_range,
            against=against or AGAINST,
            sets=set_ or [],
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
