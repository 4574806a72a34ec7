"""What `rlsim lengths` answers: fits to a trace, or the lengths that each variant of a scenario draws."""

from __future__ import annotations

import math
from pathlib import Path

from rlsim.errors import UserError
from rlsim.length_fits import LengthFits, fit_lengths
from rlsim.scenario.load import load_scenario
from rlsim.scenario.schema import Scenario
from rlsim.scenario.schema_lengths import LengthSpec
from rlsim.workload import length_model, workload_lengths

COLUMNS = ("response_tokens", "prompt_tokens")


def of(source: str, column: str | None = None, cap: float | None = None) -> list[LengthFits]:
    """Fits to a trace; of a scenario, fits to its traces and the distributions of its other lengths, once each."""
    if column is not None and column not in COLUMNS:
        raise UserError(f"no lengths in column {column!r}", key="--column", fix=" or ".join(COLUMNS))
    if Path(source).suffix.lower() not in (".yaml", ".yml"):
        return [fit_lengths(source, column or COLUMNS[0], cap)]
    if cap is not None:
        raise UserError("a scenario has its own cap", key="--cap", fix="--cap with a trace")
    found: dict[tuple[str, LengthSpec], LengthFits] = {}
    for scenario in load_scenario(source).variants:
        for name in COLUMNS if column is None else (column,):
            spec = getattr(scenario.workload, name)
            if (name, spec) not in found:
                found[name, spec] = _of_scenario(scenario, name, spec)
    return list(found.values())


def _of_scenario(scenario: Scenario, name: str, spec: LengthSpec) -> LengthFits:
    if spec.trace is not None:
        return fit_lengths(spec.trace, name, spec.max)
    lengths = workload_lengths(scenario.workload)
    model = length_model(spec, column=name)
    return LengthFits(
        source=f"{scenario.name} / {scenario.variant}",
        column=name,
        given=model,
        samples=None,
        cap=model.cap if math.isfinite(model.cap) else math.inf,
        correlation=lengths.correlation if name == "response_tokens" and lengths.group > 1 else None,
        fits=(),
        notes=model.assumptions,
    )
