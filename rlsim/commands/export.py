"""`rlsim export`: a scenario as a framework's own flags or config file."""

from __future__ import annotations

from typing import Annotated

import typer

from rlsim.commands.options import File, First, Set


def export(
    framework: Annotated[str, typer.Argument(help="verl, slime, openrlhf, areal, nemo-rl or trl.", show_default=False)],
    file: File,
    set_: Set = None,
    variant: First = None,
) -> None:
    """Print a scenario as a framework's own settings; what it cannot say is told in comments."""
    from rlsim import frameworks
    from rlsim.scenario.load import load_scenario

    typer.echo(frameworks.export(framework, load_scenario(file, set_ or [], variant).variants[0]))
