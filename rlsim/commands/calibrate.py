"""`rlsim calibrate`: anchor the simulator on measurements."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from rlsim.commands import checkout
from rlsim.commands.options import Json, Set, place, print_json
from rlsim.errors import UserError

app = typer.Typer(
    help="Anchor the simulator on measurements: measure a machine, fit a profile, read a run's log, show its basis.",
    no_args_is_help=True,
    rich_markup_mode=None,
)


@app.command()
def run(
    benchmarks: Annotated[
        list[str] | None,
        typer.Argument(
            help="gemm, attention, logprob, prefill, decode, copy, ipc, train_step, collective, reshard, dcp; or all.",
            show_default=False,
        ),
    ] = None,
    out: Annotated[Path, typer.Option("--out", parser=place, help="Folder for the table.")] = Path("measurements"),
    device: Annotated[str, typer.Option(help="auto, cpu or cuda.")] = "auto",
    world: Annotated[
        list[int] | None,
        typer.Option(help="Processes of train_step, collective, reshard and dcp; several times for several."),
    ] = None,
    max_size: Annotated[
        str | None, typer.Option(help="Largest message, copy, model or checkpoint, such as '64 MB'.", metavar="BYTES")
    ] = None,
    quick: Annotated[bool, typer.Option("--quick", help="The smallest sizes alone: does it work here?")] = False,
    limit: Annotated[float, typer.Option(min=1, help="Seconds after which one benchmark is ended.")] = 600.0,
    json_: Json = False,
) -> None:
    """Measure this machine in real torch and torch.distributed (from a checkout of the repository)."""
    command = checkout.module("microbench.command", "the benchmarks", "calibrate run")
    if device not in ("auto", "cpu", "cuda"):
        raise UserError(f"no device {device!r}", key="--device", fix="auto, cpu or cuda")
    asked = command.Asked("quick" if quick else "full", device, _size(max_size), limit)
    if not command.command(benchmarks or [], out, asked, world or [], json_):
        raise typer.Exit(1)


def _size(written: str | None) -> float:
    from rlsim.scenario import quantity

    try:
        return float("inf") if written is None else quantity.parse(written, quantity.BYTES)
    except quantity.MistakeError as error:
        raise UserError(error.message, key="--max-size", fix=error.fix) from None


@app.command()
def show(
    profile: Annotated[str, typer.Argument(help="A profile's file (YAML), or the name of a shipped one.")],
    all_: Annotated[bool, typer.Option("--all", help="Inherited parameters as well.")] = False,
    json_: Json = False,
) -> None:
    """Every parameter of a profile with its error, its source and the range it holds in."""
    from rlsim.catalog import profiles
    from rlsim.views import calibrate as view
    from rlsim.views import text

    found = profiles.profile(profile)
    if json_:
        print_json(view.as_dict(found, all_))
    else:
        text.show(view.report(found, all_))


@app.command()
def fit(
    tables: Annotated[list[Path], typer.Argument(help="Tables of measurements, or folders of them.")],
    out: Annotated[Path, typer.Option("--out", help="Profile to write (YAML).", show_default=False)],
    base: Annotated[str, typer.Option(help="Shipped profile for what was not measured.")] = "generic",
    hold_out: Annotated[
        list[str] | None,
        typer.Option(help="Points that are not fitted: size, world, receivers, nic, none or world=4. Default: size."),
    ] = None,
    where: Annotated[
        list[str] | None, typer.Option(help="Only rows with COLUMN=VALUE.", metavar="COLUMN=VALUE")
    ] = None,
    scenario: Annotated[
        Path | None, typer.Option(help="Scenario whose model, engines and NIC the terms are given for.")
    ] = None,
    json_: Json = False,
) -> None:
    """Turn tables of measurements into a profile: each figure with its error, its data and the range it holds in."""
    from rlsim.calibrate.command import fit_tables
    from rlsim.views import calibrate as view
    from rlsim.views import text

    answer = fit_tables(tables, out, base, hold_out or ["size"], where or [], scenario)
    if json_:
        print_json(view.fit_dict(answer))
    else:
        text.show(view.fit_report(answer))


@app.command("from-log")
def from_log(
    logs: Annotated[list[Path], typer.Argument(help="Log of one run: console output, JSONL or CSV.")],
    scenario: Annotated[Path, typer.Option(help="Scenario of that run (YAML).", show_default=False)],
    out: Annotated[Path, typer.Option("--out", help="Profile to write (YAML).", show_default=False)],
    set_: Set = None,
    variant: Annotated[str | None, typer.Option(help="Variant of the scenario that was run.")] = None,
    hold_out: Annotated[float, typer.Option(help="Share of the steps, the last, that is predicted, not fitted.")] = 0.0,
    json_: Json = False,
) -> None:
    """Fit a framework's overheads to a real run, so that what-ifs start from your cluster."""
    from rlsim.calibrate import from_log as work
    from rlsim.views import calibrate_log as view
    from rlsim.views import text

    answer = work.from_log(logs, scenario, out, set_ or [], variant, hold_out)
    if json_:
        print_json(view.as_dict(answer))
    else:
        text.show(view.report(answer))
