"""An explanation as sentences for a design review, as a table, and as a page."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from itertools import pairwise
from pathlib import Path

from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from rlsim.counterfactual.explain import WORTH_A_KNOB, Explanation, Turned, Worth, noun
from rlsim.views.palette import label

SHOWN = 4  # knobs of one cost that are told
FAINT = 0.001  # share of the step below which a difference is none


def report(answer: Explanation) -> RenderableType:
    """The whole answer."""
    lines: list[RenderableType] = [
        Text(answer.header, style="bold"),
        Text(f"{answer.scenario.variant}: a step takes {_s(answer.seconds)}. {answer.summary['bottleneck']}\n"),
        Text("What each cost is worth: the step simulated again without it", style="bold"),
        _table(answer),
        Text(""),
    ]
    lines += [_indented(text) for text in sentences(answer)]
    lines += [Text(""), Text("Together", style="bold"), *(_indented(text) for text in jointly(answer))]
    if answer.others:
        lines += [Text(""), Text("Other changes", style="bold"), *(_indented(t) for t in other_changes(answer))]
    lines.append(Text(f"\n{answer.simulations} simulations of {answer.summary['steps']} steps each", style="dim"))
    return Group(*lines)


def _indented(text: str) -> RenderableType:
    return Padding(Text(text), (0, 0, 0, 2), expand=False)


def _s(seconds: float) -> str:
    """Seconds with as many digits as matter."""
    return (
        f"{seconds:,.0f} s"
        if abs(seconds) >= 1000
        else f"{seconds:.1f} s"
        if abs(seconds) >= 10
        else f"{seconds:.2f} s"
    )


def large(answer: Explanation) -> list[Worth]:
    """The costs that are worth a sentence each."""
    return [c for c in answer.costs if answer.seconds - c.seconds >= WORTH_A_KNOB * answer.seconds]


def _table(answer: Explanation) -> Table:
    table = Table(box=None, padding=(0, 2, 0, 2), show_edge=False, header_style="bold")
    table.add_column("cost", no_wrap=True)
    for title in ("worth", "of the step", "step without it", "best knob saves"):
        table.add_column(title, justify="right", no_wrap=True)
    for cost in large(answer):
        worth = answer.seconds - cost.seconds
        best = next((k for k in cost.knobs if k.seconds is not None), None)
        gain = "-" if best is None or best.seconds is None else _s(max(0.0, answer.seconds - best.seconds))
        table.add_row(cost.removal.noun, _s(worth), f"{worth / answer.seconds:.0%}", _s(cost.seconds), gain)
    return table


def sentences(answer: Explanation) -> list[str]:
    """One paragraph for each large cost, and one sentence for all the rest."""
    told = [_sentence(answer, cost) for cost in large(answer)]
    small = [c for c in answer.costs if c not in large(answer)]
    faster = [c.removal.noun for c in small if answer.seconds - c.seconds >= FAINT * answer.seconds]
    nothing = [c.removal.noun for c in small if abs(answer.seconds - c.seconds) < FAINT * answer.seconds]
    slower = [c for c in small if c.seconds - answer.seconds >= FAINT * answer.seconds]
    if faster:
        told.append(f"Less than {WORTH_A_KNOB:.0%} of the step each: {'; '.join(faster)}.")
    if nothing:
        told.append(f"Nothing, or hidden behind something else: {'; '.join(nothing)}.")
    told += [f"A step would be longer, {_s(c.seconds)}, {c.removal.without}: {c.removal.caution}." for c in slower]
    return told


def _sentence(answer: Explanation, cost: Worth) -> str:
    step, worth = answer.seconds, answer.seconds - cost.seconds
    text = f"{_upper(cost.removal.noun)} costs {_s(worth)} of {_s(step)} ({worth / step:.0%}): "
    text += f"{cost.removal.without}, a step would take {_s(cost.seconds)}."
    useful = [k for k in cost.knobs if k.seconds is not None and step - k.seconds >= FAINT * step]
    useless = [k for k in cost.knobs if k.seconds is not None and k not in useful]
    for knob in useful[:SHOWN]:
        saved = step - (knob.seconds or 0.0)
        text += f" {_upper(knob.knob.text)} gets back {_s(saved)} ({_share(saved, worth)})."
    if useless:
        text += f" Of no help: {_listed(answer, useless)}."
    for knob in [k for k in cost.knobs if k.seconds is None][:2]:
        text += f" {_upper(knob.knob.text)}: {knob.refusal}."
    if not cost.knobs:
        text += " No key of the scenario gets part of it back."
    return text


def _share(saved: float, worth: float) -> str:
    """How much of a cost a knob realises; above all of it, it works elsewhere too."""
    return f"{saved / worth:.0%} of it" if saved <= worth else "all of it, and more elsewhere"


def _listed(answer: Explanation, knobs: Sequence[Turned]) -> str:
    return "; ".join(
        f"{k.knob.text} ({_signed((k.seconds or 0.0) - answer.seconds, answer.seconds)})" for k in knobs[:SHOWN]
    )


def _signed(change: float, step: float) -> str:
    return "no change" if abs(change) < FAINT * step else f"{'+' if change > 0 else '-'}{_s(abs(change))}"


def jointly(answer: Explanation) -> list[str]:
    """That effects do not add up, the largest costs removed one after another, and what remains."""
    step, floor, total = answer.seconds, answer.floor_seconds, answer.sum_of_parts
    joint = step - floor
    how = "more than" if total > joint * 1.01 else "less than" if total < joint * 0.99 else "as much as"
    why = {
        "more than": "what one removal gains, another would have gained too",
        "less than": "some costs hide behind others, and show only when those are gone",
        "as much as": "here they hardly overlap",
    }[how]
    told = [
        f"The effects do not add up: one by one they are worth {_s(total)}, {how} the {_s(joint)} of all at once "
        f"({why})."
    ]
    if len(answer.cascade) > 1:
        parts = [f"without {noun(name)} {_s(seconds)}" for name, seconds in answer.cascade]
        told.append(f"One after another, largest first: {_s(step)}; " + "; then ".join(parts) + ".")
    left = {name: s for name, s in answer.floor["phases_s"].items() if s > FAINT * floor}
    parts = [f"{label(name)} {_s(s)}" for name, s in sorted(left.items(), key=lambda item: -item[1])]
    told.append(
        f"With every cost removed a step takes {_s(floor)} ({floor / step:.0%}): {', '.join(parts)}. That is decoding "
        "and training these tokens with this layout; only other layouts, other GPUs or fewer tokens shorten it."
    )
    return told


def other_changes(answer: Explanation) -> list[str]:
    """Knobs for no single cost, best first."""
    told = []
    for one in answer.others:
        if one.seconds is None:
            told.append(f"{_upper(one.knob.text)}: {one.refusal}.")
            continue
        change = _signed(one.seconds - answer.seconds, answer.seconds)
        moved = (one.staleness or 0.0) - (answer.summary["staleness"]["mean"] or 0.0)
        stale = f", samples {one.staleness:.1f} versions old" if abs(moved) >= 0.1 else ""
        told.append(
            f"{_upper(one.knob.text)}: {_s(one.seconds)} a step ({change}), ${one.usd_per_step:,.2f} a step{stale}."
        )
    return told


def _upper(text: str) -> str:
    return text[:1].upper() + text[1:]


def _lower(text: str) -> str:
    return text[:1].lower() + text[1:]


def write_html(answer: Explanation, path: Path) -> None:
    """A page: what each cost is worth with its best knob, the costs removed one after another, and the sentences."""
    import plotly.graph_objects as go
    from plotly.offline import get_plotlyjs

    from rlsim.views import files, html

    shown = large(answer)[::-1]
    names = [cost.removal.noun for cost in shown]
    worth = [answer.seconds - cost.seconds for cost in shown]
    saved = [
        max((answer.seconds - k.seconds for k in cost.knobs if k.seconds is not None), default=0.0) for cost in shown
    ]
    bars = go.Figure(
        [
            go.Bar(y=names, x=worth, orientation="h", name="worth", marker_color="#4c78a8"),
            go.Bar(y=names, x=[max(0.0, s) for s in saved], orientation="h", name="best knob", marker_color="#f58518"),
        ]
    )
    bars.update_layout(title="Seconds of the step that each cost is worth", template="plotly_white", barmode="group")
    bars.update_layout(xaxis_title="s", yaxis_automargin=True, height=160 + 55 * len(names))
    steps = [answer.seconds, *(s for _, s in answer.cascade), answer.floor_seconds]
    down = go.Figure(
        go.Waterfall(
            x=["as it is", *(f"without {noun(n)}" for n, _ in answer.cascade), "all the rest", "floor"],
            y=[steps[0], *(b - a for a, b in pairwise(steps)), steps[-1]],
            measure=["absolute", *["relative"] * (len(steps) - 1), "total"],
            text=[_s(s) for s in (*steps, steps[-1])],
        )
    )
    down.update_layout(
        title="Removed one after another", template="plotly_white", yaxis_title="s", xaxis_automargin=True, height=560
    )
    title = escape(answer.header.splitlines()[0])
    figures = "\n".join(
        f'<div class="figure">{figure.to_html(full_html=False, include_plotlyjs=False)}</div>'
        for figure in (bars, down)
    )
    page = (
        f'<!doctype html><html lang="en"><head><meta charset="utf-8"><title>{title}</title>'
        f'<meta name="viewport" content="width=device-width,initial-scale=1"><style>{html.STYLE}'
        f"pre{{white-space:pre-wrap}}</style><script>{get_plotlyjs()}</script></head><body><h1>{title}</h1>"
        f"{figures}<pre>{escape(html.plain(report(answer)))}</pre></body></html>"
    )
    files.write_text(path, page, "--html")
