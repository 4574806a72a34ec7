"""The report as Markdown; every figure in it is generated."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from validation import fits, pairs
from validation.ablation import Rung
from validation.published.rows import SKIPPED, Row
from validation.summary import summary

TITLES = {
    "comm_hw_train_misc": "Collectives, peaks and further training rows",
    "inference_only": "Inference throughput: TensorRT-LLM, SGLang, DeepSeek",
    "issue_reports": "Phase timings posted by users",
    "megatron_bridge_h100_training": "Megatron Bridge on H100",
    "nemo_automodel_h100_training": "NeMo Automodel on H100",
    "nemo_rl_perf_summary": "NeMo-RL performance summary: whole GRPO steps on H100, bf16",
    "other_public_logs": "Logs of other RL systems",
    "prime_rl_trainer_benchmarks": "prime-rl trainer benchmarks",
    "rl_systems_misc": "Other frameworks, blogs and papers",
    "simumax_b200_training": "SimuMax on B200",
    "torchtitan_training": "torchtitan on H100 (500 W)",
    "verl_docs_rl_steps": "verl's documentation: co-located and asynchronous steps on H20",
    "verl_docs_weight_sync": "verl's documentation: weight sync",
    "verl_public_logs": "verl console logs: 7B GPG and small PPO runs",
    "verl_public_logs_2": "verl console logs: 7B GRPO with Megatron",
    "verl_public_logs_3": "verl console logs: LoRA runs, L20 and C550",
    "weight_sync_misc": "Weight sync of other systems",
}
INTRODUCTION = """\
Records of public documentation, converted source by source into what rlsim prices: whole steps simulated from their
recipe or log, phases, training updates, saturated engines, weight syncs, links. An error is predicted over measured
time, less one: +10% is 10% too slow (for a rate, the inverse of its ratio). Bias is the geometric mean. `fitted` rows
set the profile that predicts them, `repeat` rows are the same recipe in another version; neither is scored as a
prediction.

The *rival* is the best constant MFU per mode (placement and phase; training source; decode or prefill), chosen on the
very rows that it is scored on; where a mode has one row, it is right by definition."""


def markdown(
    rows: Sequence[Row],
    findings: str = "",
    rungs: Sequence[Rung] = (),
    sections: Sequence[tuple[str, str]] = (),
) -> str:
    """The whole page."""
    data = summary(rows)
    parts = [
        "# Predicted against measured",
        "<!-- Written by `rlsim validate report`. -->",
        INTRODUCTION,
        "## Scores",
        headline(data),
        "## Tier by tier",
        _tiers(data),
        "## By source and kind",
        _groups(data["by_source"], "source / kind"),
        "## By quantity of an RL step",
        _groups(data["by_quantity"], "quantity"),
        "## Directions",
        _pairs(rows, data),
        *(["## What each effect is worth", _ladder(rungs)] if rungs else []),
        _fit(),
        findings.strip(),
        *(text for title, body in sections for text in (f"## {title}", body)),
        "## What is not predicted",
        _reasons(data),
    ]
    for source in dict.fromkeys(row.source for row in rows):
        parts += [f"## {TITLES.get(source, source)}", _table([row for row in rows if row.source == source])]
    return "\n\n".join(part for part in parts if part) + "\n"


def headline(data: dict[str, Any]) -> str:
    """Predicted rows by kind of claim, coverage, intervals, drift: what the README shows."""
    lines = [
        "| rows | n | median | p90 | bias | inside p10–p90 |",
        "|---|--:|--:|--:|--:|--:|",
        _line("all predicted rows (not fitted; some of their sources helped to set priors)", data["predicted"]),
        *(_line(name, part) for name, part in data["by_kind"].items()),
        _line("fitted rows", data["fitted"]),
    ]
    c, drift, inside = data["coverage"], data["version_drift"], data["inside_interval"]
    text = (
        f"Predicted: {c['predicted']} of {c['rows']} quantities ({c['share']:.0%}) of grade A and B, in "
        f"{c['records_predicted']} of {c['records']} records."
    )
    if drift:
        text += (
            f" The same recipe in the next version of NeMo-RL moved {_percent(drift['median'])} in the median, "
            f"{_percent(drift['p90'])} at the 90th percentile (n = {drift['n']}): the floor of any comparison."
        )
    if inside:
        text += (
            f" {_percent(inside['share'])} of {inside['rows']} predicted rows with an interval are inside it; its "
            f"median width is {_percent(inside['median_width'])} of the prediction."
        )
    return "\n".join(line for line in lines if line) + "\n\n" + text


def _line(name: str, part: dict[str, Any]) -> str:
    own, inside = part["score"], part.get("inside_interval")
    if own is None:
        return ""
    held = f"{_percent(inside['share'])} of {inside['rows']}" if inside else "–"
    errors = f"{_percent(own['median'])} | {_percent(own['p90'])} | {_signed(own['bias'])}"
    return f"| {name} | {own['n']} | {errors} | {held} |"


def _tiers(data: dict[str, Any]) -> str:
    lines = [
        "| tier | n | median | p90 | bias | rival median | rival p90 | to hold (median / p90 / bias) | |",
        "|---|--:|--:|--:|--:|--:|--:|--:|---|",
    ]
    for name, found in data["tiers"].items():
        own, rival, bounds = found["score"], found["rival"], found["bounds"]
        if own is None:
            continue
        r = f"{_percent(rival['median'])} | {_percent(rival['p90'])}" if rival else "– | –"
        hold = " / ".join("–" if b is None else _percent(b) for b in bounds.values())
        verdict = "" if found["held"] is None else "held" if found["held"] else "missed"
        lines.append(
            f"| {name} | {own['n']} | {_percent(own['median'])} | {_percent(own['p90'])} | {_signed(own['bias'])} | "
            f"{r} | {hold} | {verdict} |"
        )
    return "\n".join(lines)


def _groups(groups: dict[str, Any], head: str) -> str:
    lines = [
        f"| {head} | n | median | p90 | bias | rival median | inside p10–p90 | median width |",
        "|---|--:|--:|--:|--:|--:|--:|--:|",
    ]
    for name, found in groups.items():
        own, rival, inside = found["score"], found["rival"], found["inside_interval"]
        if own is None:
            continue
        held = f"{_percent(inside['share'])} | {_percent(inside['median_width'])}" if inside else "– | –"
        r = _percent(rival["median"]) if rival else "–"
        lines.append(
            f"| {name} | {own['n']} | {_percent(own['median'])} | {_percent(own['p90'])} | {_signed(own['bias'])} | "
            f"{r} | {held} |"
        )
    return "\n".join(lines)


def _pairs(rows: Sequence[Row], data: dict[str, Any]) -> str:
    lines = [
        "Two rows of one source, model and workload that differ in one thing. A direction counts where the measured",
        "times differ by over 15%.\n",
        "| what differs | pairs | over 15% apart | right direction | median error of the ratio |",
        "|---|--:|--:|--:|--:|",
    ]
    for axis, found in data["pairs"].items():
        right = "–" if math.isnan(found["right"]) else f"{found['right']:.0%}"
        lines.append(
            f"| {axis} | {found['pairs']:.0f} | {found['distinct']:.0f} | {right} | "
            f"{_percent(found['median_error_of_ratio'])} |"
        )
    shown = [p for p in pairs.pairs(rows) if p.axis != "layout"]
    if shown:
        lines += ["", "| a | b | differs in | measured a/b | predicted a/b | |", "|---|---|---|--:|--:|---|"]
        for p in shown:
            verdict = "" if not p.distinct else "right" if p.right else "wrong"
            lines.append(f"| {p.a} | {p.b} | {p.axis} | {p.measured:.2f} | {p.predicted:.2f} | {verdict} |")
    return "\n".join(lines)


def _ladder(rungs: Sequence[Rung]) -> str:
    lines = [
        "NeMo-RL's recipes predicted again with one effect switched off, nothing fitted anew.\n",
        "| without | median | p90 | bias | moves the step by |",
        "|---|--:|--:|--:|--:|",
    ]
    for rung in rungs:
        own = rung.score
        lines.append(
            f"| {rung.name} | {_percent(own.median)} | {_percent(own.p90)} | {_signed(own.bias)} | "
            f"{100 * rung.shift:+.1f}% |"
        )
    return "\n".join(lines)


def _fit() -> str:
    nemo, training = fits.nemo_rl(), fits.training()
    held = training["held_out"]
    without = {**held["model"], **{TITLES.get(name, name): values for name, values in held["source"].items()}}
    return "\n\n".join(
        [
            "## What was fitted",
            f"NeMo-RL's overheads, on its {nemo['version']} rows (n = {len(nemo['rows'])}), with the generic profile's "
            "ranges as priors; all of these rows ran on H100, so no GPU can be left out.",
            _values(nemo["values"], nemo["held_out"]),
            f"Training, on torchtitan's and SimuMax's rows (n = {len(training['rows'])}), with ranges from kernels "
            "alone as priors. Leaving out a source leaves out a framework and a GPU at once. No other training row was "
            "fitted.",
            _values(training["values"], without),
        ]
    )


def _values(values: dict[str, float], held: dict[str, dict[str, float]]) -> str:
    lines = [
        "| parameter | all rows | " + " | ".join(f"without {name}" for name in held) + " |",
        "|---|--:|" + "--:|" * len(held),
    ]
    for name, value in values.items():
        others = " | ".join(f"{fit[name]:.3g}" for fit in held.values())
        lines.append(f"| `{name}` | {value:.3g} | {others} |")
    return "\n".join(lines)


def _reasons(data: dict[str, Any]) -> str:
    why = sorted(data["coverage"]["why_not"].items(), key=lambda item: -item[1])
    lines = ["| records of grade A and B | why not |", "|--:|---|"]
    return "\n".join([*lines, *(f"| {n} | {reason} |" for reason, n in why)])


def _table(rows: Sequence[Row]) -> str:
    head = ["record", "quantity", "measured", "predicted", "p10–p90", "error", "status", "note"]
    lines = ["| " + " | ".join(head) + " |", "|---|---|--:|--:|--:|--:|---|---|"]
    for row in rows:
        if row.status == SKIPPED:
            figures = ["–" if not row.measured else _figure(row.measured), "–", "–", "–"]
        else:
            between = "–" if row.p10 is None else f"{_figure(row.p10)}–{_figure(row.p90)}"
            figures = [_figure(row.measured), _figure(row.predicted), between, _signed(row.error)]
        lines.append("| " + " | ".join([row.id, row.quantity, *figures, row.status, row.note]) + " |")
    return "\n".join(lines)


def _figure(value: float | None) -> str:
    return "–" if value is None else f"{value:,.0f}" if 1000 <= value < 1e7 else f"{value:.3g}"


def _percent(value: float) -> str:
    return f"{100 * value:.0f}%" if value >= 0.0995 else f"{100 * value:.1f}%"


def _signed(value: float | None) -> str:
    return "–" if value is None else f"{100 * value:+.0f}%"
