"""Fit a handful of training overheads on torchtitan's and SimuMax's rows: `python -m validation.fit_training`.

Priors are the ranges in PRIORS, which no record of these two sets; what a converter knows of its stack stays. Then the
same without each model, and without each source, which is at once a framework and a GPU (torchtitan: FSDP2 on H100,
SimuMax: Megatron on B200). Results go to `validation/fits/training.yaml`, and the values with their ranges into the
generic profile. All other training rows are predictions.
"""

from __future__ import annotations

import argparse
import math
import re
import sys
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import numpy.typing as npt

from rlsim import catalog
from rlsim.catalog.profile_file import Parameter
from rlsim.catalog.profiles import FOLDER, Profile, profile
from validation import fitting
from validation.fitting import ROW_SIGMA, Problem, Values
from validation.published import records, simumax, torchtitan, training
from validation.published.records import Record, SkipError
from validation.published.training import TrainingCase

CONVERTERS = {"torchtitan_training": torchtitan.convert, "simumax_b200_training": simumax.convert}
PRIORS: Mapping[str, tuple[float, float, float]] = {
    "gemm_derate": (1.0, 1.08, 1.2),
    "flop_joules_hopper": (0.75e-12, 0.85e-12, 0.95e-12),
    "flop_joules_blackwell": (0.6e-12, 0.72e-12, 0.85e-12),
    "attention_forward_efficiency": (0.45, 0.55, 0.68),
    "attention_backward_efficiency": (0.35, 0.45, 0.55),
    "elementwise_eager": (1.5, 2.5, 4.0),
    "elementwise_fused": (1.0, 1.3, 2.0),
    "moe_layer_sync_s": (0.6e-3, 1.8e-3, 5.0e-3),
    "ring_attention_factor": (1.0, 1.2, 1.6),
}
"""(low, value, high): FlashAttention 3 on H100, kernel launches, public GEMM sweeps."""
STACK = ("gemm_derate", "elementwise_eager", "elementwise_fused", "moe_layer_sync_s", "ring_attention_factor")
"""What differs between software stacks: two of them do not narrow the range for a third."""
GENERATION = {"torchtitan_training": "flop_joules_blackwell", "simumax_b200_training": "flop_joules_hopper"}
"""Which of the two energies of a FLOP a source does not have."""
FIT = Path(__file__).parent / "fits" / "training.yaml"
HEAD = "# Written by `python -m validation.fit_training`; held_out: the same fit without those rows.\n"


def case_of(record: Record) -> TrainingCase:
    """The record's update."""
    return CONVERTERS[record.source](record)


def rows() -> list[Record]:
    """All records of the two sources that can be priced."""
    out = []
    for record in records.load():
        if record.source in CONVERTERS and record.spec in ("A", "B"):
            try:
                case_of(record)
            except SkipError:
                continue
            out.append(record)
    return out


def log_error(record: Record, values: Values) -> float:
    """Log of predicted over published seconds of an update."""
    case = case_of(record)
    return math.log(training.price(case, values)[0] / case.measured)


def has(record: Record) -> npt.NDArray[np.bool_]:
    """Which of the parameters can move this row."""
    case = case_of(record)
    trainer = case.scenario["trainer"]
    eager = trainer["backend"] != "megatron"
    absent = {GENERATION[record.source], *case.profile}
    absent.add("elementwise_fused" if eager else "elementwise_eager")
    if not (eager and trainer["cp"] > 1):
        absent.add("ring_attention_factor")
    if catalog.model(str(case.scenario["model"])).experts is None:
        absent.add("moe_layer_sync_s")
    return np.array([name not in absent for name in PRIORS])


def model(record: Record) -> str:
    """What is held out together: the model, whatever its number of layers."""
    name = str(record.config.get("model") or record.config["case"])
    found = re.search(r"(llama|deepseek)[^0-9v]*(?:3(?:\.1)?[ _])?(v?\d+b?)", name.lower())
    return f"{found.group(1)} {found.group(2)}" if found else name


def prior() -> Profile:
    """The generic profile with the ranges before the fit."""
    generic = profile("generic")
    changed: dict[str, Parameter] = {
        name: replace(generic.parameters[name], low=low, value=value, high=high)
        for name, (low, value, high) in PRIORS.items()
    }
    return replace(generic, parameters={**generic.parameters, **changed})


def write_generic(found: Mapping[str, tuple[float, float, float]], source: str) -> None:
    """Put value, range and source of the fitted parameters into the generic profile, line by line."""
    file = FOLDER / "generic.yaml"
    lines = file.read_text(encoding="utf-8").splitlines()
    for i, line in enumerate(lines):
        name = line.strip().split(":")[0]
        if name in found and line.startswith("  "):
            low, value, high = (fitting.short(v) for v in found[name])
            if name in STACK:
                low, high = min(low, PRIORS[name][0]), max(high, PRIORS[name][2])
            line = re.sub(r"value: [^,]+, low: [^,]+, high: [^,]+,", f"value: {value}, low: {low}, high: {high},", line)
            lines[i] = re.sub(r'source: "[^"]*"', f'source: "{source}"', line)
    file.write_text("\n".join(lines) + "\n", encoding="utf-8")


def main(arguments: Sequence[str] | None = None) -> None:
    """Fit, print, store."""
    parser = argparse.ArgumentParser(description="Fit training overheads on torchtitan's and SimuMax's rows.")
    parser.add_argument("--evaluations", type=int, default=5, help="least-squares steps of each fit")
    parser.add_argument("--dry", action="store_true", help="print only")
    chosen = parser.parse_args(arguments)
    known = rows()
    problem = Problem(prior(), tuple(PRIORS), log_error, has)
    whole = fitting.fit(problem, known, chosen.evaluations)
    by_model = fitting.leave_out(problem, known, model, chosen.evaluations)
    by_source = fitting.leave_out(problem, known, lambda r: r.source, chosen.evaluations)
    sys.stdout.write(fitting.table(problem, whole, {**by_model, **by_source}))
    if chosen.dry:
        return
    content = {
        "rows": [r.id for r in known],
        "row_sigma": ROW_SIGMA,
        "values": fitting.plain({"": whole})[""],
        "models": {r.id: model(r) for r in known},
        "held_out": {"model": fitting.plain(by_model), "source": fitting.plain(by_source)},
    }
    fitting.store(FIT, HEAD, content)
    source = f"fitted on {len(known)} training rows of torchtitan (H100) and SimuMax (B200)"
    write_generic(fitting.ranges(problem, whole, {**by_model, **by_source}), source)


if __name__ == "__main__":
    main()
