"""Fit a handful of NeMo-RL's overheads to its published step times: `python -m validation.fit_nemo`.

Priors are those of the generic profile; kernels, links and layouts are not touched. Rows: the records of one version.
Then the same without each model in turn. Results go to `validation/fits/nemo_rl.yaml`, and the values with their ranges
into the profile.
"""

from __future__ import annotations

import argparse
import math
import sys
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import numpy.typing as npt

from rlsim import catalog
from rlsim.catalog.profiles import profile
from validation import fitting
from validation.fitting import ROW_SIGMA, Problem, Values
from validation.predict import model_of
from validation.published import nemo_rl, records, simulation
from validation.published.records import Record

NEMO_RL, FITTED_VERSION = "nemo_rl_perf_summary", "v0.4.0"
PARAMETERS = (
    "engine_step_base_s",
    "engine_step_per_seq_s",
    "rollout_kernel_factor",
    "refit_gather_rate",
    "refit_fixed_s",
    "moe_layer_sync_s",
    "expert_imbalance",
    "gemm_derate",
    "step_fixed_s",
    "async_step_fixed_s",
)
EXPERTS = ("moe_layer_sync_s", "expert_imbalance")
FIT = Path(__file__).parent / "fits" / "nemo_rl.yaml"
HEAD = "# Written by `python -m validation.fit_nemo`; held_out: the same fit without that model's rows.\n"


def log_error(record: Record, values: Values) -> float:
    """Log of predicted over published step time."""
    seconds = simulation.predict(nemo_rl.scenario(record), values).seconds
    return math.log(seconds / float(record.measured["total_step_time_s"]))


def has(record: Record) -> npt.NDArray[np.bool_]:
    """Which of the parameters can move this row: experts only in MoE models, the fixed cost only of its own mode."""
    experts = catalog.model(record.config["resolved_recipe"]["model"]).experts is not None
    other = "step_fixed_s" if nemo_rl.mode(record) == nemo_rl.ASYNC else "async_step_fixed_s"
    return np.array([name != other and (experts or name not in EXPERTS) for name in PARAMETERS])


def rows() -> list[Record]:
    """The records of the fitted version."""
    return [r for r in records.load() if r.source == NEMO_RL and nemo_rl.version(r) == FITTED_VERSION]


def main(arguments: Sequence[str] | None = None) -> None:
    """Fit, print, store."""
    parser = argparse.ArgumentParser(description="Fit NeMo-RL's overheads to its published step times.")
    parser.add_argument("--evaluations", type=int, default=4, help="least-squares steps of each fit")
    parser.add_argument("--dry", action="store_true", help="print only")
    chosen = parser.parse_args(arguments)
    known = rows()
    problem = Problem(profile("generic"), PARAMETERS, log_error, has)
    whole = fitting.fit(problem, known, chosen.evaluations)
    without = fitting.leave_out(problem, known, model_of, chosen.evaluations)
    sys.stdout.write(fitting.table(problem, whole, without))
    if chosen.dry:
        return
    content = {
        "version": FITTED_VERSION,
        "rows": [r.id for r in known],
        "row_sigma": ROW_SIGMA,
        "values": fitting.plain({"": whole})[""],
        "held_out": fitting.plain(without),
        "layouts": {nemo_rl.recipe_name(r): list(nemo_rl.layout(r)) for r in known},
    }
    fitting.store(FIT, HEAD, content)
    source = f"fitted on NeMo-RL {FITTED_VERSION[:4]} performance summary, {len(known)} rows"
    fitting.write_profile(fitting.ranges(problem, whole, without), source, "nemo-rl")


if __name__ == "__main__":
    main()
