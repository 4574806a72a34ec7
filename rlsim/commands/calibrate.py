"""`rlsim calibrate`: anchor the simulator on measurements."""

from __future__ import annotations

import json
import sys
from typing import Annotated

import typer

app = typer.Typer(
    help="Anchor the simulator on measurements: fit a profile, read a run's log, show what a profile rests on.",
    no_args_is_help=True,
    rich_markup_mode=None,
)


@app.command()
def show(
    profile: Annotated[str, typer.Argument(help="A profile's file (YAML), or the name of a shipped one.")],
    all_: Annotated[bool, typer.Option("--all", help="Inherited parameters as well.")] = False,
    json_: Annotated[bool, typer.Option("--json", help="Print JSON instead of a table.")] = False,
) -> None:
    """Every parameter of a profile with its error, its source and the range it holds in."""
    from rlsim.catalog import profiles
    from rlsim.views import calibrate as view
    from rlsim.views import text

    found = profiles.profile(profile)
    if json_:
        sys.stdout.write(json.dumps(view.as_dict(found, all_), indent=1, allow_nan=False) + "\n")
    else:
        text.show(view.report(found, all_))
