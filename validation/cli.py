"""`rlsim validate`: runs from a checkout, where the records and converters are."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from validation import report as reports
from validation.page import headline
from validation.published import records
from validation.summary import summary

app = typer.Typer(help="Predictions against published measurements.", invoke_without_command=True)
Folder = Annotated[Path, typer.Option("--records", help="Folder of record files.")]


@app.callback()
def validate(context: typer.Context) -> None:
    """Predictions against measurements; without a command, the whole report."""
    if context.invoked_subcommand is None:
        report()


@app.command()
def report(
    folder: Folder = records.FOLDER,
    out: Annotated[Path, typer.Option("--out", help="The Markdown page.")] = reports.PAGE,
    html: Annotated[Path, typer.Option("--html", help="The HTML page with plots.")] = reports.HTML,
) -> None:
    """Write the page, in Markdown and HTML with plots, with the ablation ladder."""
    found, steps = reports.rows(folder), reports.rungs(folder)
    out.write_text(reports.page(found, steps), encoding="utf-8")
    reports.write_html(found, steps, html)
    sys.stdout.write(headline(summary(found)) + f"\n\nwritten: {out}, {html}\n")


@app.command()
def published(
    folder: Folder = records.FOLDER,
    json_: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
    html: Annotated[Path | None, typer.Option("--html", help="Write an HTML page with plots there.")] = None,
    out: Annotated[Path | None, typer.Option("--out", help="Write the Markdown page there.")] = None,
) -> None:
    """Predict the published records and compare with what was measured."""
    found = reports.rows(folder)
    if html is not None:
        reports.write_html(found, [], html)
    if out is not None:
        out.write_text(reports.page(found, []), encoding="utf-8")
    sys.stdout.write(reports.as_json(found) + "\n" if json_ else reports.page(found, []))
