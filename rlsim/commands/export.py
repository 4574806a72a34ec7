"""`rlsim export`: a scenario as a framework's own flags or config file."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer


def export(
    framework: Annotated[str, typer.Argument(help="verl, slime, openrlhf, areal, nemo-rl or trl.", show_default=False)],
    file: Annotated[Path, typer.Argument(help="Scenario file (YAML).", show_default=False)],
    set_: Annotated[list[str] | None, typer.Option("--set", help="Override a key.", metavar="KEY=VALUE")] = None,
    variant: Annotated[str | None, typer.Option("--variant", help="This variant (default: the base).")] = None,
) -> None:
    """Print a scenario as a framework's own settings; what it cannot say is told in comments."""
    from rlsim import frameworks
    from rlsim.scenario.load import load_scenario

    typer.echo(frameworks.export(framework, load_scenario(file, set_ or [], variant).variants[0]))
