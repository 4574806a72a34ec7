"""What the report says, as plain data: the form that scripts read (`rows`, `summary`)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from validation import score
from validation.predict import INFERENCE, NEMO_RL, TRAINING
from validation.published import weight_sync
from validation.published.rows import FITTED, PREDICTED, REPEAT, SKIPPED, Row
from validation.score import Score

TARGETS = {
    "NeMo-RL steps, leaving one model out": (0.15, 0.30),
    "training only": (0.15, None),
    "inference only": (0.15, None),
    "weight sync": (0.25, None),
}
"""Median and 90th percentile of |error| to hold."""


def as_dict(rows: Sequence[Row]) -> dict[str, Any]:
    """One object: rows by (id, quantity), and the summary."""
    return {"rows": [_row(row) for row in rows], "summary": summary(rows)}


def _row(row: Row) -> dict[str, Any]:
    return {
        "id": row.id,
        "kind": row.kind,
        "spec": row.spec,
        "source": row.source,
        "quantity": row.quantity,
        "measured": row.measured or None,
        "predicted": row.predicted,
        "held_out": row.held_out,
        "p10": row.p10,
        "p90": row.p90,
        "fitted": row.status in (FITTED, REPEAT),
        "status": row.status,
        "note": row.note,
    }


def summary(rows: Sequence[Row]) -> dict[str, Any]:
    """Scores by group, the rival's, coverage, and the drift between versions."""
    graded = [row for row in rows if row.spec in ("A", "B")]
    done = [row for row in graded if row.status != SKIPPED]
    return {
        "scores": {name: _with_rival(part, held) for name, part, held in groups(rows)},
        "coverage": {
            "records": len({row.id for row in graded}),
            "predicted": len({row.id for row in done}),
            "why_not": _reasons(graded),
        },
        "version_drift": _plain(score.version_drift(drift_pairs(rows))),
        "inside_interval": _inside(rows),
    }


def groups(rows: Sequence[Row]) -> list[tuple[str, list[Row], bool]]:
    """(name, rows, whether their held-out predictions are scored)."""
    nemo = [row for row in rows if row.source == NEMO_RL and row.status != SKIPPED]
    train = [row for row in rows if row.source in TRAINING and row.status != SKIPPED]
    sync = [row for row in rows if row.source in weight_sync.SOURCES and row.status != SKIPPED]
    infer = [row for row in rows if row.source == INFERENCE and row.status != SKIPPED]
    return [
        ("NeMo-RL steps, fitted rows", _of(nemo, FITTED), False),
        ("NeMo-RL steps, other layouts of the next version", _of(nemo, PREDICTED), False),
        ("NeMo-RL steps, repeats in the next version", _of(nemo, REPEAT), False),
        ("NeMo-RL steps, leaving one model out", nemo, True),
        ("training only", train, False),
        ("training only, sources that set the priors", _of(train, FITTED), False),
        ("training only, other sources", _of(train, PREDICTED), False),
        ("inference only", infer, False),
        ("weight sync", sync, False),
        ("weight sync, rows that set no prior", _of(sync, PREDICTED), False),
    ]


def _of(rows: Sequence[Row], status: str) -> list[Row]:
    return [row for row in rows if row.status == status]


def _with_rival(rows: Sequence[Row], held_out: bool) -> dict[str, Any]:
    return {
        "score": _plain(score.score(score.errors(rows, held_out))),
        "rival": _plain(score.score(score.trivial_errors(rows))),
    }


def _plain(found: Score | None) -> dict[str, float] | None:
    return None if found is None else asdict(found)


def _reasons(rows: Sequence[Row]) -> dict[str, int]:
    reasons: dict[str, int] = {}
    for row in rows:
        if row.status == SKIPPED:
            reasons[row.note] = reasons.get(row.note, 0) + 1
    return reasons


def drift_pairs(rows: Sequence[Row]) -> list[tuple[float, float]]:
    """(earlier, later) measured times of recipes that repeat with the same layout in the next version."""
    fitted = {row.id.split("-", 2)[2]: row for row in rows if row.status == FITTED and row.source == NEMO_RL}
    later = [row for row in rows if row.status == REPEAT]
    return [(fitted[key].measured, row.measured) for row in later if (key := row.id.split("-", 2)[2]) in fitted]


def _inside(rows: Sequence[Row]) -> dict[str, Any] | None:
    """Share of the intervals that hold what was measured, and their median width over the prediction."""
    known = [row for row in rows if row.p10 is not None and row.p90 is not None and row.predicted]
    if not known:
        return None
    held = [row for row in known if (row.p10 or 0.0) <= row.measured <= (row.p90 or 0.0)]
    widths = sorted(((row.p90 or 0.0) - (row.p10 or 0.0)) / (row.predicted or 1.0) for row in known)
    return {"rows": len(known), "share": len(held) / len(known), "median_width": widths[len(widths) // 2]}
