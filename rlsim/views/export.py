"""`--out DIR`: everything a run knows, as files."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import pandas as pd

from rlsim.api import Comparison
from rlsim.views import files, html, perfetto


def write(comparisons: Sequence[Comparison], folder: Path) -> None:
    """Write `summary.json`, `steps.parquet`, `samples.parquet`, `spans.parquet`, `trace.json` and `report.html`.

    The tables hold all variants, told apart by the columns `scenario` and `variant`.
    """
    files.folder(folder, "--out")
    with files.writing(folder, "--out"):
        _write(comparisons, folder)


def _write(comparisons: Sequence[Comparison], folder: Path) -> None:
    results = [r for c in comparisons for r in c.results]
    summaries = [s for c in comparisons for s in c.summaries]
    (folder / "summary.json").write_text(json.dumps({"variants": summaries}, indent=1, allow_nan=False) + "\n")
    for table in ("steps", "samples", "spans"):
        frames = [getattr(r, table).assign(scenario=r.name, variant=r.variant) for r in results]
        if frames:
            pd.concat(frames, ignore_index=True).to_parquet(folder / f"{table}.parquet")
    if results:
        perfetto.write(results, folder / "trace.json")
    html.write(comparisons, folder / "report.html")
