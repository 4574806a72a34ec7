"""Options that several commands have, and how commands answer."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from rlsim.errors import UserError


def place(text: str | Path) -> Path:
    """A file or folder to write to, typed or a default; nothing is not the current folder."""
    if not str(text).strip():
        raise UserError("no name to write to", key="--out or --html", fix="for example --out out/")
    return Path(text)


File = Annotated[Path, typer.Argument(help="Scenario file (YAML).", show_default=False)]
Files = Annotated[list[Path], typer.Argument(help="Scenario files (YAML).", show_default=False)]
Set = Annotated[
    list[str] | None,
    typer.Option("--set", help="Override a key: --set cluster.nic='25 GB/s'.", metavar="KEY=VALUE"),
]
Variant = Annotated[str | None, typer.Option("--variant", help="Only this variant.")]
First = Annotated[str | None, typer.Option("--variant", help="This variant (default: the file's base).")]
Html = Annotated[Path | None, typer.Option("--html", parser=place, help="Draw into this file.")]
Jobs = Annotated[int | None, typer.Option("--jobs", min=1, help="Local processes (default: one a core).")]
Ray = Annotated[
    str | None,
    typer.Option("--ray", metavar="ADDR|local", help="Run on a Ray cluster: its address, or a local one."),
]
Steps = Annotated[int | None, typer.Option("--steps", min=1, help="Measured steps (default: the file's).")]
Seed = Annotated[int | None, typer.Option("--seed", min=0, help="Random seed (default: the file's).")]
Json = Annotated[bool, typer.Option("--json", help="Print JSON instead of a table.")]
Emit = Annotated[
    str | None, typer.Option("--emit", help="Print it as this framework's flags too.", metavar="FRAMEWORK")
]


def print_json(value: Any) -> None:
    sys.stdout.write(json.dumps(value, indent=1, allow_nan=False) + "\n")
