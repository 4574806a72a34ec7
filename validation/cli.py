"""`rlsim validate`: runs from a checkout, where the records and converters are."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from validation import report
from validation.published import records

app = typer.Typer(help="Predictions against published measurements.", no_args_is_help=True)


@app.callback()
def validate() -> None:
    """Predictions against published measurements."""


@app.command()
def published(
    folder: Annotated[Path, typer.Option("--records", help="Folder of record files.")] = records.FOLDER,
    json_: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
    out: Annotated[Path | None, typer.Option("--out", help="Write the Markdown page there.")] = None,
) -> None:
    """Predict the published records and compare with what was measured."""
    arguments = ["--records", str(folder)]
    arguments += ["--json"] if json_ else ["--out", str(out or report.PAGE)]
    report.main(arguments)
