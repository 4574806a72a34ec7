"""What the measurements say of the formulas and the fits, as a section of the report."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from rlsim.calibrate.fit import fit_all
from rlsim.calibrate.least_squares import Floats
from rlsim.calibrate.tables import medians, read
from validation.netcluster import predict
from validation.netcluster.cluster import GOODPUT
from validation.netcluster.measure import STRATEGIES
from validation.netcluster.predict import Sync

TITLE = "Weight sync over a cluster on one machine"
TEXT = """\
Hosts are network namespaces with one NIC each, shaped in both directions; `rlsim.reshard.distributed` moves the weights
of a trainer (FSDP2 over one or two hosts) into engines of one host each, over gloo, every byte compared. Seconds are
medians of at least five repetitions, until the last engine has its weights. *Predicted*: rlsim's formulas for the
scenario with a NIC's share for a TCP stream ({goodput:.4f}) and software that costs nothing; nothing is fitted. The
library's broadcast is gloo's binomial tree, not NCCL's ring. Measured, the stream of one connection has {stream:.4f} of
a NIC. The cores are busy for {busy:.0%} of the time in the median, with all that this machine does besides."""
HEADLINE = 141e6
"""Bytes: the text's 70B model at 1:1000."""


def points_of(rows: pd.DataFrame) -> pd.DataFrame:
    """Medians of the weight syncs, with what is predicted of each, the floor, and the relative error."""
    points = medians(rows[rows["benchmark"] == "weight_sync"].dropna(axis=1, how="all"))
    syncs = [_sync(one) for one in points.to_dict("records")]
    points["predicted"] = [predict.seconds(one) for one in syncs]
    points["floor"] = [predict.floor(one) for one in syncs]
    points["error"] = points["predicted"] / points["seconds"] - 1
    sent = rows.groupby(["strategy", "trainers", "receivers", "nic", "bytes", "bucket"])["sent"].median()
    places = zip(*(points[name] for name in sent.index.names), strict=True)
    points["copies"] = [sent[place] for place in places] / points["bytes"]
    order = {name: number for number, name in enumerate(STRATEGIES)}
    return points.sort_values(["strategy", "trainers", "receivers", "nic", "bytes"], key=lambda c: c.replace(order))


def _sync(one: dict[Any, Any]) -> Sync:
    return Sync(
        strategy=str(one["strategy"]),
        trainers=int(one["trainers"]),
        receivers=int(one["receivers"]),
        nic=float(one["nic"]),
        bytes=float(one["bytes"]),
        bucket=float(one["bucket"]),
    )


def content(folder: Path) -> dict[str, Any]:
    """The section: what was measured and predicted, and how far fits carry."""
    rows = read([folder])
    points = points_of(rows)
    streams = rows[rows["benchmark"] == "collective"]
    text = TEXT.format(
        goodput=GOODPUT,
        stream=float((streams["bytes"] / streams["seconds"] / streams["nic"]).median()),
        busy=rows["busy"].median(),
    )
    return {"title": TITLE, "text": text, "tables": [_headline(points), _errors(points), _every(points)]}


def _headline(points: pd.DataFrame) -> dict[str, Any]:
    """141 MB over 50 MB/s."""
    rows = [
        [p.strategy, p.receivers, p.seconds, p.predicted, _percent(p.error), p.floor, p.copies]
        for p in points[points["bytes"] > 0.99 * HEADLINE].itertuples()
    ]
    columns = ["strategy", "receivers", "seconds", "predicted", "error", "floor", "copies out of the busiest NIC"]
    return {
        "title": "141 GB over 50 GB/s to every instance, at 1:1000: 141 MB, NICs of 50 MB/s, a trainer of two hosts",
        "columns": columns,
        "rows": rows,
    }


def _errors(points: pd.DataFrame) -> dict[str, Any]:
    """Of formulas that were fitted to nothing, and of fits on what they have not seen."""
    kinds = {
        "not fitted": {str(name): part["error"].to_numpy() for name, part in points.groupby("strategy")},
        "fit, each number of receivers held out in turn": _unseen(points, "receivers"),
        "fit, each NIC held out in turn": _unseen(points, "nic"),
        "fit, the larger model held out": _unseen(points, "bytes", largest=True),
    }
    rows = []
    for strategy in (*STRATEGIES, "all"):
        for kind, found in kinds.items():
            mine = [found.get(name, np.zeros(0)) for name in (STRATEGIES if strategy == "all" else (strategy,))]
            errors = np.abs(np.concatenate(mine))
            if len(errors):
                spread = [f"{np.quantile(errors, q):.1%}" for q in (0.5, 0.9, 1.0)]
                rows.append([strategy, kind, len(errors), *spread])
    columns = ["strategy", "prediction", "settings", "median", "p90", "worst"]
    return {"title": "Errors of the predictions", "columns": columns, "rows": rows}


def _unseen(points: pd.DataFrame, column: str, largest: bool = False) -> dict[str, Floats]:
    """Errors by strategy when each value of the column (or only the largest) is left out in turn."""
    found: dict[str, list[float]] = {}
    measured = points.drop(columns=["predicted", "floor", "error", "copies"])
    values = sorted(measured[column].unique())
    for value in values[-1:] if largest else values:
        if len(values) > 1:
            for fit in fit_all(measured, [f"{column}={float(value)!r}"]):
                found.setdefault(str(fit.group["strategy"]), []).extend(fit.unseen)
    return {name: np.array(errors) for name, errors in found.items()}


def _every(points: pd.DataFrame) -> dict[str, Any]:
    rows = [
        [p.strategy, p.trainers, p.receivers, p.nic / 1e6, p.bytes / 1e6, p.bucket / 1e6, p.repetitions, p.seconds,
         p.predicted, _percent(p.error)]
        for p in points.itertuples()
    ]  # fmt: skip
    columns = [
        "strategy", "trainer hosts", "receivers", "NIC, MB/s", "model, MB", "bucket, MB", "n", "seconds", "predicted",
        "error",
    ]  # fmt: skip
    return {"title": "Every setting", "columns": columns, "rows": rows}


def _percent(value: float) -> str:
    return f"{value:+.1%}"


def table(points: pd.DataFrame) -> Iterator[list[str]]:
    """A few columns as text."""
    for p in points.itertuples():
        yield [
            p.strategy, str(p.receivers), f"{p.nic / 1e6:g} MB/s", f"{p.bytes / 1e6:.1f} MB", f"{p.seconds:.3f} s",
            f"{p.predicted:.3f} s", _percent(p.error), f"{p.floor:.3f} s",
        ]  # fmt: skip
