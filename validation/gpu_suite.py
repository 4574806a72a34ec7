"""Everything that one GPU can measure in under eight minutes: `python -m validation.gpu_suite`.

Leaves the rows in `validation/measurements/gpu/` as they come, and what they amount to in `results.json` beside them.
Needs `pip install -e '.[torch]'` and nothing outside this machine. A benchmark that fails or hangs costs its own rows.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pandas as pd

from rlsim.calibrate.tables import medians, read
from validation.microbench import suite
from validation.microbench.command import report
from validation.microbench.group import Asked
from validation.microbench.suite import MODULES, TABLE, TOGETHER, Outcome
from validation.sections import MEASUREMENTS

BUDGET = 460.0
"""Seconds for all."""
LIMIT = 100.0
"""Seconds for one benchmark."""
ORDER = ("gemm", "copy", "attention", "decode", "prefill", "logprob", "train_step", "ipc", "dcp")
"""What tells most in the least time comes first."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure, write, tell; 0 where all ended."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", choices=["cuda", "cpu"], default="cuda")
    parser.add_argument("--quick", action="store_true", help="the smallest sizes alone")
    parser.add_argument("--out", type=Path, default=MEASUREMENTS / "gpu")
    parser.add_argument("--budget", type=float, default=BUDGET, help="seconds for all")
    parser.add_argument("--limit", type=float, default=LIMIT, help="seconds for one benchmark")
    parser.add_argument("--max-size", type=float, default=float("inf"), help="bytes of the largest copy or checkpoint")
    asked = parser.parse_args(arguments)
    how = Asked("quick" if asked.quick else "full", asked.device, asked.max_size, asked.limit)
    names = [name for name in ORDER if name in set(MODULES) - set(TOGETHER)]
    outcomes = suite.run(names, [1], how, asked.out, _tell, asked.budget)
    if (asked.out / f"{TABLE}.parquet").exists():
        content = results(medians(read([asked.out / f"{TABLE}.parquet"])))
        (asked.out / "results.json").write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")
    from rlsim.views import text

    text.show(report(outcomes, asked.out))
    return 1 if any(one.error for one in outcomes) else 0


def _tell(one: Outcome) -> None:
    sys.stderr.write(f"{one.name}: {one.rows} rows, {one.seconds:.0f} s{f', {one.error}' if one.error else ''}\n")


def results(points: pd.DataFrame) -> dict[str, Any]:
    """The best rate of each kind of work on each device, in the form of `validation.sections`."""
    rows = []
    for device, here in points.groupby("device"):
        for name, unit, rate in _rates(here):
            rows.append([device, name, rate, unit])
    text = "Best rates over all sizes, medians of the repetitions; the sizes and every repetition are in the table."
    table = {"columns": ["device", "work", "rate", "unit"], "rows": rows}
    return {"title": "One device at work", "text": text, "tables": [table]}


def _rates(here: pd.DataFrame) -> list[tuple[str, str, float]]:
    found = []
    by = {str(name): rows for name, rows in here.groupby("benchmark")}
    if "gemm" in by:
        for dtype, g in by["gemm"].groupby("dtype"):
            flops = 2 * g["m"] * g["n"] * g["k"] / g["seconds"]
            found.append((f"matrix product, {dtype}", "TFLOP/s", float(flops.max()) / 1e12))
    if "attention" in by:
        a = by["attention"][by["attention"]["op"] == "forward"]
        flops = 2 * a["batch"] * a["sequence"] ** 2 * a["hidden"] / a["seconds"]  # half of 4 s² h: causal
        found.append(("attention, forward, causal", "TFLOP/s", float(flops.max()) / 1e12))
    for benchmark, columns in (("copy", ["direction", "pinned"]), ("ipc", []), ("dcp", ["op"])):
        rows = by.get(benchmark)
        for key, g in [] if rows is None else rows.groupby(columns) if columns else [((), rows)]:
            what = " ".join([benchmark, *(_word(k) for k in key)])
            found.append((what, "GB/s", float((g["bytes"] / g["seconds"]).max()) / 1e9))
    for benchmark in ("train_step", "prefill", "logprob"):
        if benchmark in by:
            for size, g in by[benchmark].groupby("parameters"):
                what = f"{benchmark}, {size / 1e6:.3g}M parameters"
                found.append((what, "tokens/s", float((g["tokens"] / g["seconds"]).max())))
    if "decode" in by:
        for size, g in by["decode"].groupby("parameters"):
            found.append(
                (f"decode, {size / 1e6:.3g}M parameters", "tokens/s", float((g["batch"] / g["seconds"]).max()))
            )
    return found


def _word(value: Any) -> str:
    return value if isinstance(value, str) else "pinned" if value else "pageable"


if __name__ == "__main__":
    sys.exit(main())
