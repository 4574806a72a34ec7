"""The command line: parse, call, print. Exit codes: 0 done, 2 the input is wrong, 1 a defect of ours."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from rlsim.commands import calibrate, checkout, interview
from rlsim.commands.cost import cost
from rlsim.commands.crossover import crossover
from rlsim.commands.explain import explain
from rlsim.commands.export import export
from rlsim.commands.options import Emit, File, Files, Json, Set, Variant, place, print_json
from rlsim.commands.plan import plan
from rlsim.commands.sensitivity import sensitivity
from rlsim.commands.sweep import sweep
from rlsim.errors import UserError

if TYPE_CHECKING:
    from rlsim.scenario.schema import Scenario

app = typer.Typer(
    name="rlsim",
    help="Simulate a GRPO step of a large language model: where its time goes, whether it fits, what it costs.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)
app.add_typer(calibrate.app, name="calibrate")
app.command()(plan)
app.command()(sweep)
app.command()(sensitivity)
app.command()(crossover)
app.command()(explain)
app.command()(cost)
app.command()(export)
app.add_typer(interview.app, name="interview")


@app.command()
def run(
    files: Files,
    set_: Set = None,
    steps: Annotated[int | None, typer.Option(min=1, help="Measured steps (default: the file's).")] = None,
    seed: Annotated[int | None, typer.Option(min=0, help="Random seed (default: the file's).")] = None,
    variant: Variant = None,
    json_: Json = False,
    out: Annotated[
        Path | None, typer.Option("--out", parser=place, help="Write tables, trace and report into this folder.")
    ] = None,
    emit: Emit = None,
) -> None:
    """Simulate a scenario with all its variants and compare them."""
    from rlsim import api, frameworks
    from rlsim.views import files as written
    from rlsim.views import progress

    if out is not None:
        written.folder(out, "--out")
    comparisons = []
    settings: list[dict[str, str]] = []
    for file in files:
        scenarios = api.load_scenario(file, set_ or [], variant).variants
        if emit is not None:
            settings += [
                {"name": s.name, "variant": s.variant, "settings": frameworks.export(emit, s)} for s in scenarios
            ]
        comparisons.append(
            api.compare(scenarios, steps=steps, seed=seed, keep=out is not None, progress=progress.variants)
        )
    summaries = [s for c in comparisons for s in c.summaries]
    if out is not None:
        from rlsim.views import export

        export.write(comparisons, out)
    if json_:
        print_json({"variants": summaries, **({"emit": settings} if emit is not None else {})})
    else:
        from rlsim.views import text

        for comparison in comparisons:
            text.show(text.summary(comparison))
        if out is not None:
            typer.echo(f"wrote {out}/ (summary.json, *.parquet, trace.json for ui.perfetto.dev, report.html)")
        for one in settings:
            typer.echo(f"\n{one['settings']}")
    if not any(s["feasible"] for s in summaries):
        raise typer.Exit(2)


@app.command()
def check(file: File, set_: Set = None, variant: Variant = None, json_: Json = False) -> None:
    """Parse a scenario, build its layouts and check its memory, without simulating."""
    from rlsim import api

    reports = [api.check(s) for s in api.load_scenario(file, set_ or [], variant).variants]
    if json_:
        from rlsim.views import check as view

        print_json({"variants": [view.as_dict(r) for r in reports]})
    else:
        from rlsim.views import check as view
        from rlsim.views import text

        text.show(view.report(reports))
    if not all(r.feasible for r in reports):
        raise typer.Exit(2)


@app.command()
def diff(
    a: Annotated[Path, typer.Argument(help="Scenario file A, or FILE#VARIANT.", show_default=False)],
    b: Annotated[Path, typer.Argument(help="Scenario file B, or FILE#VARIANT.", show_default=False)],
    steps: Annotated[int | None, typer.Option(min=1, help="Measured steps.")] = None,
    json_: Json = False,
) -> None:
    """What changed between two scenarios, and what it did to the step."""
    from rlsim import difference
    from rlsim.views import progress

    answer = difference.diff(str(a), str(b), steps=steps, progress=progress.variants)
    if json_:
        print_json(answer.as_dict())
    else:
        from rlsim.views import diff as view
        from rlsim.views import text

        text.show(view.report(answer))
    if not (answer.a["feasible"] and answer.b["feasible"]):
        raise typer.Exit(2)


@app.command()
def reshard(
    file: File,
    set_: Set = None,
    variant: Variant = None,
    tensor: Annotated[str | None, typer.Option(help="Explain one tensor run by run (any of its names).")] = None,
    html: Annotated[Path | None, typer.Option("--html", parser=place, help="Write the map as a page.")] = None,
    verify: Annotated[
        tuple[Path, Path] | None,
        typer.Option(help="Two checkpoints, before and after a conversion: which tensors are wrong, and why."),
    ] = None,
    explain: Annotated[Path | None, typer.Option(help="A DCP checkpoint: bytes per rank and its metadata.")] = None,
    convert: Annotated[
        tuple[Path, Path] | None,
        typer.Option(help="A sharded checkpoint of this trainer's layout into a Hugging Face .safetensors file."),
    ] = None,
    json_: Json = False,
) -> None:
    """Which weights go from which trainer rank to which engine rank at a weight sync, and how long that takes."""
    from rlsim import api
    from rlsim.views import files, text
    from rlsim.views import reshard as view

    scenario = api.load_scenario(file, set_ or [], variant).variants[0]
    if verify is not None:
        _verify(scenario, verify, json_)
        return
    if explain is not None or convert is not None:
        _checkpoint(scenario, explain, convert)
        return
    answer = api.reshard_plan(scenario)
    if html is not None:
        with files.writing(html, "--html"):
            view.write_html(answer, html)
    if json_:
        print_json(answer.as_dict(tensor))
    else:
        text.show(view.tensor(answer, tensor) if tensor is not None else view.report(answer))


def _checkpoint(scenario: Scenario, explain: Path | None, convert: tuple[Path, Path] | None) -> None:
    from rlsim import api
    from rlsim.reshard import checkpoint
    from rlsim.views import reshard as view
    from rlsim.views import text

    if explain is not None:
        text.show(view.checkpoint(checkpoint.explain(explain)))
    if convert is not None:
        system = api.check(scenario).system
        tensors, size = checkpoint.convert(convert[0], system.model, system.trainer, convert[1])
        typer.echo(f"wrote {convert[1]}: {tensors} tensors, {size / 1e9:.3f} GB")


def _verify(scenario: Scenario, checkpoints: tuple[Path, Path], json_: bool) -> None:
    from rlsim import catalog as models
    from rlsim.reshard import checkpoint, detect
    from rlsim.views import reshard as view
    from rlsim.views import text

    before, after = (checkpoint.read(path) for path in checkpoints)
    found = detect.detect(before, after, models.model(scenario.model.base))
    if json_:
        findings = [{"tensors": list(f.tensors), "mistake": f.mistake, "right": f.right} for f in found.findings]
        print_json({"compared": found.compared, "equal": found.equal, "findings": findings})
    else:
        text.show(view.findings(found))
    if found.wrong:
        raise typer.Exit(2)


@app.command()
def lengths(
    source: Annotated[Path, typer.Argument(help="Trace (CSV, JSONL, parquet) or scenario file.", show_default=False)],
    column: Annotated[
        str | None, typer.Option(help="Column of a trace: response_tokens (default) or prompt_tokens.")
    ] = None,
    cap: Annotated[
        float | None, typer.Option(min=2, help="Cap of a trace (default: where its samples pile up).")
    ] = None,
    json_: Json = False,
    html: Annotated[Path | None, typer.Option("--html", parser=place, help="Draw the tails into this file.")] = None,
) -> None:
    """Fit distributions to the lengths of a trace; show what lengths a scenario draws."""
    from rlsim import length_report
    from rlsim.views import files, text
    from rlsim.views import html as pages
    from rlsim.views import lengths as view

    answers = length_report.of(str(source), column, cap)
    if html is not None:
        files.write_text(html, view.page(answers, pages.plain(view.report(answers))), "--html")
    if json_:
        print_json({"lengths": [view.as_dict(a) for a in answers]})
    else:
        text.show(view.report(answers))


@app.command()
def catalog(
    kind: Annotated[str | None, typer.Argument(help="gpus or models.", show_default=False)] = None,
    name: Annotated[str | None, typer.Argument(help="One entry, in full.", show_default=False)] = None,
    json_: Json = False,
) -> None:
    """GPUs and models that scenarios can name, each figure with its source."""
    from rlsim.views import catalog as view
    from rlsim.views import text

    if kind not in (None, "gpus", "models"):
        raise UserError(f"no catalog of {kind!r}", fix="`rlsim catalog gpus` or `rlsim catalog models`")
    if json_:
        print_json(view.as_dict(kind, name))
    else:
        text.show(view.table(kind, name))


@app.command(context_settings={"allow_extra_args": True, "ignore_unknown_options": True}, add_help_option=False)
def validate(context: typer.Context) -> None:
    """Predictions against published measurements (from a checkout of the repository)."""
    command = checkout.module("cli", "the records and converters", "validate published")
    command.app(context.args, prog_name="rlsim validate")


def main() -> None:
    """Entry point of the `rlsim` command."""
    try:
        try:
            app()
        finally:
            sys.stdout.flush()
    except UserError as error:
        typer.echo(f"error: {error}", err=True)
        raise SystemExit(2) from None
    except OSError as error:
        if error.filename is not None:
            raise
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # what is left is not tried again
        typer.echo(f"error: the answer cannot be written: {error.strerror or error}", err=True)
        raise SystemExit(2) from None


if __name__ == "__main__":
    main()
