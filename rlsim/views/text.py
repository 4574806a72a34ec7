"""The summary on a terminal: one column per variant, one block per question."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from rich.console import Console, Group, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from rlsim import goodput
from rlsim.api import Comparison
from rlsim.views import memory, verdict
from rlsim.views import sync as sync_view
from rlsim.views.palette import PHASES, UPKEEP, colour, label

Summary = Mapping[str, Any]
Cell = Callable[[Summary], str]


def summary(answer: Comparison) -> RenderableType:
    """The whole answer of `rlsim run`: header, table, bottlenecks, comparison, weight sync, assumptions."""
    summaries = answer.summaries
    parts: list[RenderableType] = [Text(answer.header, style="bold"), Text("")]
    if any(s["feasible"] for s in summaries):
        parts += [_table(summaries), Text("")]
    parts += [problem_text(s) for s in summaries if not s["feasible"]]
    parts += _list("Bottleneck", [f"{s['variant']}: {s['bottleneck']}" for s in summaries if s["feasible"]])
    parts += _list("Comparison", verdict.sentences(summaries))
    parts += _list("Checkpoints", _checkpoints(summaries))
    parts += _list("Weight sync", sync_view.losses(summaries))
    parts += _list("Weight sync by strategy", _strategies(answer))
    shown = [s for s in summaries if s["feasible"]]
    parts += _list("Memory of one GPU over the step", _by_line(shown, memory.step_lines))
    parts += _list("Offload ledger", _by_line(shown, memory.ledger_of))
    parts += _list("Delta sync", sync_view.deltas(summaries))
    shared = [a for s in summaries for a in (s["assumptions"] or [])]
    parts += _list("Assumed", list(dict.fromkeys(shared)), "dim")
    return Group(*parts)


def _list(title: str, lines: Sequence[str], style: str = "") -> list[RenderableType]:
    """A title and its lines, wrapped under it; nothing when there are none."""
    if not lines:
        return []
    return [
        Text(title, style="bold"),
        *[Padding(Text(line, style=style), (0, 0, 0, 2), expand=False) for line in lines],
    ]


def _strategies(answer: Comparison) -> list[str]:
    """Seconds of each strategy, cheapest first; variants with the same figures share a line."""
    lines: dict[str, list[str]] = {}
    for outcome in answer.outcomes:
        if not outcome.sync_seconds:
            continue
        one = outcome.summary["weight_sync"]
        ranked = sorted(outcome.sync_seconds.items(), key=lambda item: item[1])
        times = ", ".join(f"{n} {t:.2f} s" + (" (in use)" if n == one["strategy"] else "") for n, t in ranked)
        lines.setdefault(f"{times}; floor {one['floor_seconds']:.2f} s", []).append(outcome.summary["variant"])
    return [f"{', '.join(names)}: {times}" for times, names in lines.items()]


def _by_line(shown: Sequence[Summary], lines_of: Callable[[Summary], list[str]]) -> list[str]:
    """Lines of each variant; those that say the same share a line."""
    lines: dict[str, list[str]] = {}
    for one in shown:
        for line in lines_of(one):
            lines.setdefault(line, []).append(one["variant"])
    return [f"{', '.join(names)}: {line}" for line, names in lines.items()]


def _checkpoints(summaries: Sequence[Summary]) -> list[str]:
    """What checkpoints cost and whether their interval is right; variants with the same answer share a line."""
    lines: dict[str, list[str]] = {}
    for one in summaries:
        if one["feasible"] and (told := goodput.sentence(one)):
            lines.setdefault(told, []).append(one["variant"])
    return [f"{', '.join(names)}: {told}" for told, names in lines.items()]


def show(renderable: RenderableType) -> None:
    """Print to standard output; in a pipe the width is fixed, so that nothing is cut."""
    console = Console(highlight=False, soft_wrap=False)
    if not console.is_terminal:
        console = Console(highlight=False, width=150)
    console.print(renderable)


def problem_text(one: Summary) -> RenderableType:
    """Why an infeasible variant does not fit, and the nearest change that would."""
    lines = [Text(f"{one['variant']}: does not fit", style="bold red")]
    for p in one["problems"]:
        lines.append(Text(f"  {p['role']}: needs {p['need_gib']:.1f} GiB, has {p['have_gib']:.1f} GiB; {p['by']}"))
        lines.append(Text(f"  nearest change: {p['fix']}"))
    return Group(*lines)


def _table(summaries: Sequence[Summary]) -> Table:
    shown = [s for s in summaries if s["feasible"]]
    table = Table(box=None, padding=(0, 2, 0, 0), show_edge=False, header_style="bold")
    table.add_column("per step", no_wrap=True)
    table.add_column("unit", style="dim", no_wrap=True)
    for one in shown:
        table.add_column(one["variant"], justify="right", no_wrap=True)
    for block in _blocks(shown):
        for name, unit, cell in block:
            style = "bold" if name == "step time" else None
            swatch = Text(f"  {label(name)}", style=colour(name)) if name in PHASES else Text(name)
            table.add_row(swatch, unit, *[cell(s) for s in shown], style=style)
        table.add_section()
    return table


def _blocks(shown: Sequence[Summary]) -> list[list[tuple[str, str, Cell]]]:
    phases = [n for n in PHASES if any((s["phases_s"][n] or 0) > 0 for s in shown)]
    time: list[tuple[str, str, Cell]] = [
        ("step time", "s", lambda s: f"{s['step_time_s']['mean']:.1f}"),
        ("  p10-p90 of the prediction", "s", _interval),
    ]
    time += [(n, "s (share)", _phase(n)) for n in phases]
    time += [(f"    of it {label(n)}", "s", _upkeep(n)) for n in UPKEEP if any(s["other_s"][n] > 0 for s in shown)]
    rates: list[tuple[str, str, Cell]] = [
        ("tokens/s/GPU", "", lambda s: f"{s['tokens_per_s_per_gpu']:.0f}"),
        ("busy: trainer / rollout", "%", lambda s: _pair(s["utilization"], "trainer", "rollout", 100)),
        ("MFU of the update", "%", lambda s: _number(s["mfu_train"], 100)),
        ("running batch, mean", "seqs", lambda s: _number(s["mean_running_batch"])),
        ("tail (below 1/4 of the peak)", "s (share)", _tail),
        ("preemptions", "", lambda s: f"{s['preemptions']:.0f}"),
    ]
    if any(s["kv"]["swapped_tokens"] for s in shown):
        rates += [
            ("swapped to the host", "k tokens", lambda s: f"{s['kv']['swapped_tokens'] / 1e3:.0f}"),
            ("  engines wait for it", "s", lambda s: f"{s['kv']['swap_s']:.1f}"),
        ]
    if any(s["kv"]["reused_tokens"] or s["kv"]["evicted_tokens"] for s in shown):
        rates += [("context of later turns found", "%", _found)]
    if any(s["samples"]["dropped"] or s["samples"]["aborted"] for s in shown):
        rates += [
            ("samples dropped, of 100 trained", "", _dropped),
            ("tokens wasted, of those generated", "%", lambda s: _share(s["tokens"], "wasted", "generated")),
            ("response drawn / trained", "tokens", lambda s: _pair(s["response_tokens"], "drawn", "trained")),
        ]
    if any(s["goodput"] < 1 for s in shown):
        rates.insert(1, ("goodput", "%", lambda s: f"{100 * s['goodput']:.1f}"))
    sync: list[tuple[str, str, Cell]] = [
        ("sync strategy", "", lambda s: str(s["weight_sync"]["strategy"])),
        ("sync: one copy of the model", "GB", lambda s: f"{s['weight_sync']['bytes_total'] / 1e9:,.0f}"),
        ("sync into the busiest GPU", "GB", lambda s: f"{s['weight_sync']['bytes_max_per_gpu'] / 1e9:.2f}"),
        ("sync takes / floor", "s", lambda s: _pair(s["weight_sync"], "seconds", "floor_seconds", 1, 2)),
        ("staleness mean / max", "versions", lambda s: _pair(s["staleness"], "mean", "max", 1, 1)),
    ]
    money: list[tuple[str, str, Cell]] = [
        (
            "memory: trainer / rollout",
            "GiB/GPU",
            lambda s: _pair(s["memory_gib"], "trainer_peak", "rollout_peak"),
        ),
        ("host memory", "GiB/node", lambda s: _number(s["memory_gib"]["host_peak"])),
        ("cost", "$/step", lambda s: f"{s['cost']['usd_per_step']:.2f}"),
        ("GPU-hours", "/step", lambda s: f"{s['cost']['gpu_hours_per_step']:.2f}"),
        ("time from measured kernels", "%", _measured),
    ]
    return [time, rates, sync, money]


def _phase(name: str) -> Cell:
    def cell(s: Summary) -> str:
        seconds = s["phases_s"][name]
        return f"{seconds:.1f} ({seconds / s['step_time_s']['mean']:.0%})" if seconds else "-"

    return cell


def _upkeep(name: str) -> Cell:
    return lambda s: f"{s['other_s'][name]:.1f}" if s["other_s"][name] else "-"


def _interval(s: Summary) -> str:
    band = s["prediction_interval_s"]
    return f"{band['p10']:.0f}-{band['p90']:.0f}"


def _found(s: Summary) -> str:
    """Share of what later turns could have found in the prefix cache."""
    found, lost = s["kv"]["reused_tokens"], s["kv"]["evicted_tokens"]
    return f"{100 * found / (found + lost):.0f}" if found + lost else "-"


def _tail(s: Summary) -> str:
    if s["tail"] is None or s["tail"]["seconds"] is None:
        return "-"
    return f"{s['tail']['seconds']:.1f} ({s['tail']['share']:.0%})"


def _dropped(s: Summary) -> str:
    samples = s["samples"]
    return f"{100 * sum(samples['dropped'].values()) / samples['trained']:.0f}"


def _share(group: Mapping[str, Any], part: str, whole: str) -> str:
    return f"{100 * group[part] / group[whole]:.0f}" if group[whole] else "-"


def _measured(s: Summary) -> str:
    return f"{100 * s['provenance']['measured']:.0f}"


def _number(value: float | None, scale: float = 1.0) -> str:
    return "-" if value is None else f"{value * scale:.0f}"


def _pair(group: Mapping[str, Any], a: str, b: str, scale: float = 1.0, digits: int = 0) -> str:
    first, second = group[a], group[b]
    return " / ".join("-" if v is None else f"{v * scale:.{digits}f}" for v in (first, second))
