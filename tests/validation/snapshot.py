"""Predictions kept in `tests/predictions/published.json`, so that a review sees what a change moved.

`python -m tests.validation.snapshot` writes them anew; say in the commit why they moved.
"""

from __future__ import annotations

import json
from pathlib import Path

from validation.predict import INFERENCE, NEMO_RL, TRAINING, inference_rows, training_row
from validation.published import nemo_rl, records, simulation
from validation.published.rows import SKIPPED

FILE = Path(__file__).parents[1] / "predictions" / "published.json"
STEPS = ("llama3-1-8b-16g-1off", "deepseek-v3-256g-onpol")
ENGINES = ("sglang-ep-decode", "sglang-ep-prefill", "trtllm-llama-3.3-70b-h100-tp2-fp8")
"""Few enough to be quick: each mode, dense and MoE, decode and prefill."""


def predictions() -> dict[str, float]:
    """ "id quantity" -> prediction."""
    out: dict[str, float] = {}
    for record in records.load():
        if record.source in TRAINING:
            row = training_row(record)
            if row.status != SKIPPED and row.predicted is not None:
                out[f"{row.id} {row.quantity}"] = row.predicted
        elif record.source == INFERENCE and record.id in ENGINES:
            out |= {f"{r.id} {r.quantity}": r.predicted for r in inference_rows(record) if r.predicted is not None}
        elif record.source == NEMO_RL and record.id.startswith("nemo-v0.4") and any(s in record.id for s in STEPS):
            out[f"{record.id} step_time_s"] = simulation.predict(nemo_rl.scenario(record)).seconds
    return {key: float(f"{value:.5g}") for key, value in out.items()}


if __name__ == "__main__":
    FILE.parent.mkdir(exist_ok=True)
    FILE.write_text(json.dumps(predictions(), indent=1) + "\n", encoding="utf-8")
