"""`python -m validation.netcluster`: weight syncs over a cluster on this machine, measured and predicted.

    --hosts 5 --nic "50 MB/s"   one cluster, a table on the screen; the first host (--trainers) has the trainer
    --grid                      measure again what validation/measurements/netcluster/ holds (20 minutes)
    --results                   what the tables there say, into results.json beside them

Needs Linux, root and iproute2. Exit code 2: asked for what cannot be.
"""

from __future__ import annotations

import argparse
import json
import signal
import sys
from collections.abc import Sequence
from pathlib import Path

import pandas as pd
from rich.table import Table

from rlsim.errors import UserError
from rlsim.scenario.quantity import BYTES, RATE, MistakeError, parse
from rlsim.views import text
from validation import tables
from validation.netcluster import results
from validation.netcluster.launch import HostFailed
from validation.netcluster.measure import GRID, STRATEGIES, grid, measure
from validation.netcluster.worker import Orders
from validation.sections import MEASUREMENTS

FOLDER = MEASUREMENTS / "netcluster"


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure, write, tell."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--hosts", type=int, default=3)
    parser.add_argument("--nic", default="50 MB/s", help="of each host, in and out; headers count")
    parser.add_argument("--trainers", type=int, default=1, help="hosts with the trainer; the others are engines")
    parser.add_argument("--size", default="24 MB", help="of the model")
    parser.add_argument("--bucket", default="2 MB")
    parser.add_argument("--strategy", nargs="+", choices=STRATEGIES, default=STRATEGIES)
    parser.add_argument("--repetitions", type=int, default=5)
    parser.add_argument("--out", type=Path, help="folder for the table of repetitions")
    parser.add_argument("--grid", action="store_true")
    parser.add_argument("--results", action="store_true")
    asked = parser.parse_args(arguments)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that the cluster is taken down
    try:
        if asked.grid:
            _grid(asked.out or FOLDER)
        elif asked.results:
            _results(asked.out or FOLDER)
        else:
            _one(asked)
    except UserError as error:
        sys.stderr.write(f"error: {error}\n")
        return 2
    except HostFailed as error:
        sys.stderr.write(f"{error}\n")
        return 1
    return 0


def _one(asked: argparse.Namespace) -> None:
    receivers = asked.hosts - asked.trainers
    if asked.trainers < 1 or receivers < 1:
        message = f"{asked.hosts} hosts, {asked.trainers} of them with the trainer"
        raise UserError(message, key="--hosts", fix="at least one for the trainer and one for an engine")
    if asked.repetitions < 1:
        raise UserError(f"{asked.repetitions} repetitions", key="--repetitions", fix="1 or more")
    try:
        nic = parse(asked.nic, RATE)
        size, bucket = parse(asked.size, BYTES), int(parse(asked.bucket, BYTES))
    except MistakeError as error:
        raise UserError(error.message, key="--nic, --size, --bucket", fix=error.fix) from None
    if size < 10e6 or bucket < 1e5:
        raise UserError("so little is sent at once", key="--size, --bucket", fix="at least 10 MB and 100 kB")
    orders = Orders(asked.trainers, (nic,), (size,), tuple(asked.strategy), (bucket,), asked.repetitions)
    rows = measure(receivers, [orders], _tell)
    if asked.out is not None:
        _tell(f"written: {tables.write(rows, asked.out, f'hosts-{asked.hosts}')}")
    text.show(shown(results.points_of(pd.DataFrame(rows).assign(file=""))))


def shown(points: pd.DataFrame) -> Table:
    """Measured beside predicted."""
    found = Table(box=None, pad_edge=False)
    for name in ("strategy", "receivers", "NIC", "model", "measured", "predicted", "error", "floor"):
        found.add_column(name, justify="left" if name == "strategy" else "right")
    for cells in results.table(points):
        found.add_row(*cells)
    return found


def _grid(folder: Path) -> None:
    for trainers, receivers in GRID:
        rows = measure(receivers, grid(trainers, receivers), _tell)
        tables.write(rows, folder, f"trainers-{trainers}-receivers-{receivers}")
    _results(folder)


def _results(folder: Path) -> None:
    file = folder / "results.json"
    file.write_text(json.dumps(results.content(folder), indent=1) + "\n", encoding="utf-8")
    _tell(f"written: {file}")


def _tell(line: str) -> None:
    sys.stderr.write(line + "\n")


if __name__ == "__main__":
    sys.exit(main())
