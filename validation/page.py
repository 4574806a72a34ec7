"""The report as Markdown and as plain text; every figure in it is generated."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from validation.fit_nemo import load as load_fit
from validation.predict import NEMO_RL
from validation.published.rows import SKIPPED, Row
from validation.summary import TARGETS, as_dict

TITLES = {
    "nemo_rl_perf_summary": "NeMo-RL performance summary: whole GRPO steps on H100, bf16",
    "inference_only": "Inference throughput: TensorRT-LLM, SGLang, DeepSeek",
    "megatron_bridge_h100_training": "Megatron Bridge on H100",
    "nemo_automodel_h100_training": "NeMo Automodel on H100",
    "prime_rl_trainer_benchmarks": "prime-rl trainer benchmarks",
    "simumax_b200_training": "SimuMax on B200",
    "torchtitan_training": "torchtitan on H100 (500 W)",
}


def markdown(rows: Sequence[Row], extra: str = "") -> str:
    """The whole page."""
    data = as_dict(rows)
    parts = [
        "# Predicted against measured",
        "<!-- Written by `python -m validation.report`. -->",
        INTRODUCTION,
        "## Scores",
        _scores(data["summary"]),
        _drift(data["summary"]),
        _coverage(data["summary"]),
        _fit(),
        extra.strip(),
    ]
    for source in dict.fromkeys(row.source for row in rows):
        parts += [f"## {TITLES.get(source, source)}", _table([row for row in rows if row.source == source])]
    return "\n\n".join(part for part in parts if part) + "\n"


INTRODUCTION = """\
Records of public documentation, converted one by one into what rlsim prices: whole steps simulated from their own
recipe, training updates, saturated engines. An error is predicted over measured time, less one: +10% is 10% too slow
(for a rate, the inverse of its ratio). Bias is the geometric mean.

The *rival* is the best constant MFU per mode (co-located or 1 step off; one per training source; decode or prefill),
chosen on the very rows that it is scored on. *Held out* is the prediction of a fit that never saw the row's model."""


def _scores(summary: dict[str, Any]) -> str:
    lines = [
        "| rows | n | median | p90 | bias | rival median | rival p90 | target |",
        "|---|--:|--:|--:|--:|--:|--:|---|",
    ]
    for name, found in summary["scores"].items():
        own, rival = found["score"], found["rival"]
        if own is None:
            continue
        r = f"{_percent(rival['median'])} | {_percent(rival['p90'])}" if rival else "– | –"
        lines.append(
            f"| {name} | {own['n']} | {_percent(own['median'])} | {_percent(own['p90'])} | "
            f"{_signed(own['bias'])} | {r} | {_target(name, own)} |"
        )
    return "\n".join(lines)


def _target(name: str, own: dict[str, float]) -> str:
    if name not in TARGETS:
        return ""
    median, p90 = TARGETS[name]
    text = f"{_percent(median)}" + (f" / {_percent(p90)}" if p90 else "")
    met = own["median"] <= median and (p90 is None or own["p90"] <= p90)
    return f"{text}: {'met' if met else 'missed'}"


def _drift(summary: dict[str, Any]) -> str:
    drift, inside = summary["version_drift"], summary["inside_interval"]
    text = ""
    if drift:
        text += (
            f"The same recipe in the next version of NeMo-RL moved {_percent(drift['median'])} in the median, "
            f"{_percent(drift['p90'])} at the 90th percentile (n = {drift['n']}): the floor of any comparison. "
        )
    if inside:
        text += (
            f"{_percent(inside['share'])} of {inside['rows']} steps are inside their predicted 10th to 90th "
            f"percentile; its median width is {_percent(inside['median_width'])} of the prediction."
        )
    return text


def _coverage(summary: dict[str, Any]) -> str:
    c = summary["coverage"]
    why = "; ".join(f"{reason} ({n})" for reason, n in sorted(c["why_not"].items(), key=lambda item: -item[1]))
    return f"Predicted: {c['predicted']} of {c['records']} records of grade A and B. The others: {why}."


def _fit() -> str:
    stored = load_fit()
    if not stored:
        return ""
    held = stored["held_out"]
    lines = [
        f"## What was fitted\n\nNeMo-RL's overheads, on its {stored['version']} rows (n = {len(stored['rows'])}), "
        "with the generic profile's ranges as priors:\n",
        "| parameter | all rows | " + " | ".join(f"without {model}" for model in held) + " |",
        "|---|--:|" + "--:|" * len(held),
    ]
    for name, value in stored["values"].items():
        others = " | ".join(f"{fit[name]:.3g}" for fit in held.values())
        lines.append(f"| `{name}` | {value:.3g} | {others} |")
    return "\n".join(lines)


def _table(rows: Sequence[Row]) -> str:
    held = any(row.source == NEMO_RL for row in rows)
    head = ["record", "quantity", "measured", "predicted", "error", *(["held out"] if held else []), "status", "note"]
    lines = ["| " + " | ".join(head) + " |", "|---|---|--:|--:|--:|" + ("--:|" if held else "") + "---|---|"]
    for row in rows:
        if row.status == SKIPPED:
            figures = ["–" if not row.measured else _figure(row.measured), "–", "–", *(["–"] if held else [])]
        else:
            figures = [_figure(row.measured), _figure(row.predicted), _signed(row.error)]
            figures += [_signed(row.held_out_error)] if held else []
        lines.append("| " + " | ".join([row.id, row.quantity, *figures, row.status, row.note]) + " |")
    return "\n".join(lines)


def _figure(value: float | None) -> str:
    return "–" if value is None else f"{value:,.0f}" if value >= 1000 else f"{value:.3g}"


def _percent(value: float) -> str:
    return f"{100 * value:.0f}%" if value >= 0.0995 else f"{100 * value:.1f}%"


def _signed(value: float | None) -> str:
    return "–" if value is None else f"{100 * value:+.0f}%"
