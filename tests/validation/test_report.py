"""The page and the JSON are made of the rows, whatever they hold."""

from __future__ import annotations

import json

from validation.page import markdown
from validation.published.rows import FITTED, PREDICTED, REPEAT, Row
from validation.summary import as_dict, drift_pairs

from .rows_by_hand import row as by_hand

NEMO = "nemo_rl_perf_summary"


def row(id_: str, measured: float, status: str, source: str = NEMO) -> Row:
    more = {"without": {"model": 95.0}, "p10": 80.0, "p90": 120.0, "floor": 1.0, "work": 2.0, "recipe": "a"}
    return by_hand(id_, measured, status=status, source=source, **more)


ROWS = [row("nemo-v0.4.0-a", 100.0, FITTED), row("nemo-v0.5.0-a", 90.0, REPEAT)]


def test_json_form() -> None:
    data = json.loads(json.dumps(as_dict([*ROWS, row("nemo-v0.5.0-b", 130.0, PREDICTED)])))
    first = data["rows"][0]
    assert {"id", "kind", "spec", "source", "quantity", "measured", "predicted", "p10", "p90", "fitted", "note"} <= set(
        first
    )
    assert first["fitted"] is True
    coverage = {"rows": 3, "predicted": 3, "share": 1.0, "records": 3, "records_predicted": 3, "why_not": {}}
    assert data["summary"]["coverage"] == coverage
    assert data["summary"]["inside_interval"]["share"] == 0.0  # 130 is above the p90 of the one predicted row


def test_repeats_show_the_drift() -> None:
    assert drift_pairs(ROWS) == [(100.0, 90.0)]


def test_page_lists_what_it_leaves_out() -> None:
    text = markdown([*ROWS, row("x", 0.0, FITTED, "inference_only").skipped("not said")], "## Findings\n")
    assert "| nemo-v0.4.0-a | step_time_s | 100 | 90 | 80–120 | -10% | fitted |  |" in text
    assert "| 1 | not said |" in text
    assert "## Findings" in text
