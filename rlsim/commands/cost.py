"""`rlsim cost`: hours, dollars and energy of a whole training."""

from __future__ import annotations

from typing import Annotated

import typer

from rlsim.commands.options import File, Json, Set, Variant, print_json


def cost(
    file: File,
    steps: Annotated[int, typer.Option("--steps", min=1, help="Steps of the whole training.")],
    set_: Set = None,
    variant: Variant = None,
    mtbf: Annotated[
        str | None,
        typer.Option("--mtbf", help="Mean time between failures of one trainer node: 150d.", metavar="TIME"),
    ] = None,
    every: Annotated[
        int | None, typer.Option("--checkpoint-every", min=1, help="Steps between checkpoints (default: the file's).")
    ] = None,
    simulated: Annotated[
        int | None, typer.Option(min=1, help="Simulated steps that stand for all (default: the file's, 20 at most).")
    ] = None,
    json_: Json = False,
) -> None:
    """What N steps take and cost: hours, dollars and energy, with checkpoints and failures."""
    from rlsim import api
    from rlsim.plan.goal import duration
    from rlsim.runcost import run_cost
    from rlsim.views import runcost as view
    from rlsim.views import text

    found, refused = [], []
    apart = duration(mtbf, "--mtbf") if mtbf is not None else None
    for scenario in api.load_scenario(file, set_ or [], variant).variants:
        try:
            one = run_cost(scenario, steps=steps, mtbf=apart, checkpoint_every=every, simulated=simulated)
            found.append(one)
        except api.InfeasibleError as error:
            refused.append({"variant": scenario.variant, "feasible": False, "problem": str(error)})
    if json_:
        rows = [{**one.as_dict(), "feasible": True} for one in found] + refused
        print_json({"variants": rows})
    else:
        if found:
            text.show(view.report(found))
        for row in refused:
            typer.echo(f"{row['variant']}: does not fit into memory: {row['problem']}")
    if not found:
        raise typer.Exit(2)
