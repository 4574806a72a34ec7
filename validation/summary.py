"""What the report says, as plain data: the form that scripts read (`rows`, `pairs`, `summary`)."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from validation import pairs, score
from validation.published.rows import FITTED, PREDICTED, REPEAT, SKIPPED, Row
from validation.score import Score

STEP = "step_time_s"
PHASES = {
    "generation": ("gen_s", "generate_sequences_s"),
    "training": ("update_actor_s", "update_critic_s"),
    "log-prob": ("old_log_prob_s", "ref_s", "values_s"),
}
REFIT = ("reshard_s", "update_weights_s")


@dataclass(frozen=True)
class Tier:
    """One line of the table of what to hold: rows, by which prediction, and the bounds (median, p90, bias)."""

    name: str
    rows: Callable[[Row], bool]
    axis: str | None
    bounds: tuple[float | None, float | None, float | None]


def _steps(row: Row) -> bool:
    return row.quantity == STEP and row.source == "nemo_rl_perf_summary"


def _training(row: Row) -> bool:
    return row.kind in ("train_only", "train_mfu")


TIERS = (
    Tier("stack known, same family: new GPU counts and layouts", lambda r: _steps(r) and r.status == PREDICTED, None,
         (0.08, 0.20, 0.04)),
    Tier("stack known: the same recipes in the next version (repeat)", lambda r: _steps(r) and r.status == REPEAT, None,
         (0.08, 0.16, None)),
    Tier("held-out model family, same stack and GPU: NeMo-RL", _steps, "model", (0.12, 0.25, 0.08)),
    Tier("shipped priors only: NeMo-RL steps with the generic profile", _steps, "framework", (0.20, 0.40, 0.15)),
    Tier("shipped priors only: steps of other frameworks, lengths known", lambda r: r.quantity == STEP
         and not _steps(r) and "not published" not in r.note, None, (0.20, 0.40, 0.15)),
    Tier("steps of other frameworks, lengths assumed", lambda r: r.quantity == STEP
         and not _steps(r) and "not published" in r.note, None, (None, None, None)),
    *(
        Tier(f"phase with known lengths: {name}", lambda r, q=quantities: r.quantity in q
             and "not published" not in r.note, None, (0.15, 0.30, None))
        for name, quantities in PHASES.items()
    ),
    Tier("phase: refit", lambda r: r.quantity in REFIT, None, (1.0, 1.0, None)),
    Tier("training, held-out model family (fitted rows)", _training, "model", (0.12, 0.25, 0.08)),
    Tier("training, held-out framework and GPU: FSDP2 on H100 from Megatron on B200, and back", _training, "source",
         (0.15, 0.30, 0.10)),
    Tier("training only, not fitted", lambda r: r.kind in ("train_only", "train_mfu") and r.status == PREDICTED, None,
         (0.12, 0.30, None)),
    Tier("inference only", lambda r: r.kind == "infer_only", None, (0.15, None, None)),
    Tier("weight sync, rows that set no prior", lambda r: r.kind == "weight_sync" and r.status == PREDICTED, None,
         (0.25, None, None)),
    Tier("collectives and expert exchange", lambda r: r.kind == "comm", None, (0.10, None, None)),
)  # fmt: skip


def as_dict(rows: Sequence[Row]) -> dict[str, Any]:
    """One object: rows by (id, quantity), pairs, and the summary."""
    found = pairs.pairs(rows)
    return {
        "rows": [_row(row) for row in rows],
        "pairs": [
            {"a": p.a, "b": p.b, "axis": p.axis, "measured_ratio": p.measured, "predicted_ratio": p.predicted}
            for p in found
        ],
        "summary": summary(rows),
    }


def _row(row: Row) -> dict[str, Any]:
    return {
        "id": row.id,
        "kind": row.kind,
        "spec": row.spec,
        "source": row.source,
        "quantity": row.quantity,
        "measured": row.measured or None,
        "predicted": row.predicted,
        "p10": row.p10,
        "p90": row.p90,
        "fitted": row.status in (FITTED, REPEAT),
        "status": row.status,
        "unit": row.unit,
        "without": dict(row.without),
        "note": row.note,
    }


def done(rows: Sequence[Row]) -> list[Row]:
    """Rows of grade A and B that have a prediction."""
    return [row for row in rows if row.spec in ("A", "B") and row.status != SKIPPED]


def scored(rows: Sequence[Row]) -> list[Row]:
    """Of those, the ones that were not fitted."""
    return [row for row in done(rows) if row.status == PREDICTED]


def summary(rows: Sequence[Row]) -> dict[str, Any]:
    """Scores by tier, source and kind, the rival's, coverage, intervals, pairs, and the drift between versions."""
    graded = [row for row in rows if row.spec in ("A", "B")]
    known = done(rows)
    return {
        "tiers": {tier.name: tier_of(rows, tier) for tier in TIERS},
        "by_source": {
            name: _scores(part) for name, part in score.by(known, lambda r: _apart(r, f"{r.source} / {r.kind}")).items()
        },
        "by_kind": {name: _scores(part) for name, part in score.by(known, lambda r: _apart(r, r.kind)).items()},
        "by_quantity": {
            name: _scores(part)
            for name, part in score.by([r for r in known if r.kind.startswith("rl_")], lambda r: r.quantity).items()
        },
        "predicted": _scores(scored(rows)),
        "fitted": _scores([row for row in known if row.status == FITTED]),
        "coverage": {
            "rows": len(graded),
            "predicted": len(known),
            "share": len(known) / len(graded) if graded else None,
            "records": len({row.id for row in graded}),
            "records_predicted": len({row.id for row in known}),
            "why_not": _reasons(graded),
        },
        "version_drift": _plain(score.version_drift(drift_pairs(rows))),
        "inside_interval": inside(scored(rows)),
        "pairs": pairs.judged(pairs.pairs(rows)),
    }


def _apart(row: Row, name: str) -> str:
    """Fitted and repeated rows have lines of their own."""
    return name if row.status == PREDICTED else f"{name} ({row.status})"


def tier_of(rows: Sequence[Row], tier: Tier) -> dict[str, Any]:
    """Score of a tier's rows, the trivial rival's, the bounds, and whether they are held."""
    mine = [row for row in done(rows) if tier.rows(row)]
    if tier.axis:
        mine = [row for row in mine if tier.axis in row.without]
    own = score.score(score.errors(mine, tier.axis))
    median, p90, bias = tier.bounds
    held = None
    if own is not None and median is not None:
        held = own.median <= median and (p90 is None or own.p90 <= p90) and (bias is None or abs(own.bias) <= bias)
    return {
        "score": _plain(own),
        "rival": _plain(score.score(score.trivial_errors(mine))),
        "bounds": {"median": median, "p90": p90, "bias": bias},
        "held": held,
    }


def _scores(rows: Sequence[Row]) -> dict[str, Any]:
    return {
        "score": _plain(score.score(score.errors(rows))),
        "rival": _plain(score.score(score.trivial_errors(rows))),
        "inside_interval": inside(rows),
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
    fitted = {row.recipe: row for row in rows if row.status == FITTED and row.recipe}
    later = [row for row in rows if row.status == REPEAT]
    return [(fitted[row.recipe].measured, row.measured) for row in later if row.recipe in fitted]


def inside(rows: Sequence[Row]) -> dict[str, Any] | None:
    """Share of the intervals that hold what was measured, and their median width over the prediction."""
    known = [row for row in rows if row.p10 is not None and row.p90 is not None and row.predicted]
    if not known:
        return None
    held = [row for row in known if (row.p10 or 0.0) <= row.measured <= (row.p90 or 0.0)]
    widths = sorted(((row.p90 or 0.0) - (row.p10 or 0.0)) / (row.predicted or 1.0) for row in known)
    return {"rows": len(known), "share": len(held) / len(known), "median_width": widths[len(widths) // 2]}


def finite(value: Any) -> Any:
    """The same with not-a-number as None, for JSON."""
    if isinstance(value, dict):
        return {key: finite(inner) for key, inner in value.items()}
    if isinstance(value, list):
        return [finite(inner) for inner in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
