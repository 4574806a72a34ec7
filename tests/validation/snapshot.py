"""Predictions kept in `tests/predictions/published.json`, so that a review sees what a change moved.

`python -m tests.validation.snapshot` writes them anew; say in the commit why they moved.
"""

from __future__ import annotations

import json
import re
from pathlib import Path

from validation.predict import rows_of
from validation.published import records
from validation.published.records import Record

FILE = Path(__file__).parents[1] / "predictions" / "published.json"
STEPS = r"nemo-v0.4.*(llama3-1-8b-16g-1off|deepseek-v3-256g-onpol)|verl-fa-7b|verl-oso|log-gpg|log3-gsm8k-lora|c550"
ENGINES = r"sglang-ep-(decode|prefill)$|trtllm-llama-3.3-70b-h100-tp2-fp8"
"""Few enough of the slow kinds to be quick: each mode, dense and MoE, decode and prefill."""
CHOSEN = {"rl_step": STEPS, "infer_only": ENGINES}


def kept(record: Record) -> bool:
    """Whether the record's predictions are kept."""
    return record.spec != "C" and bool(re.search(CHOSEN.get(record.kind, ""), record.id))


def predictions() -> dict[str, float]:
    """ "id quantity" -> prediction."""
    rows = [row for record in records.load() if kept(record) for row in rows_of(record, {})]
    return {f"{row.id} {row.quantity}": float(f"{row.predicted:.5g}") for row in rows if row.predicted is not None}


if __name__ == "__main__":
    FILE.parent.mkdir(exist_ok=True)
    FILE.write_text(json.dumps(predictions(), indent=1) + "\n", encoding="utf-8")
