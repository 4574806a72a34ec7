"""`rlsim explain`: what each cost of a step is worth, and what gets part of it back."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from rlsim.commands.options import File, First, Json, Set, place, print_json


def explain(
    file: File,
    set_: Set = None,
    variant: First = None,
    steps: Annotated[int | None, typer.Option(min=1, help="Measured steps (default: 5, or the file's).")] = None,
    seed: Annotated[int | None, typer.Option(min=0, help="Random seed (default: the file's).")] = None,
    json_: Json = False,
    html: Annotated[Path | None, typer.Option("--html", parser=place, help="Write the answer as a page.")] = None,
) -> None:
    """Simulate a step without each of its costs: what each is worth, and which knobs get part of it back."""
    from rlsim import api
    from rlsim.counterfactual import explain as counterfactual
    from rlsim.views import explain as view
    from rlsim.views import progress, text

    scenarios = api.load_scenario(file, set_ or [], variant).variants
    try:
        with progress.reported("simulating") as report:
            answer = counterfactual.explain(
                scenarios[0], steps=steps, seed=seed, progress=lambda done, total: report("simulating", done, total)
            )
    except api.InfeasibleError as error:
        typer.echo(f"error: {scenarios[0].variant} does not fit into memory: {error}", err=True)
        raise typer.Exit(2) from None
    if html is not None:
        view.write_html(answer, html)
    if json_:
        print_json(answer.as_dict())
        return
    text.show(view.report(answer))
    others = [s.variant for s in scenarios[1:]]
    if others:
        typer.echo(f"other variants (--variant): {', '.join(others)}")
