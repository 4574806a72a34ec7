"""Writes the generated parts of README.md: the scenario tables and the headline of the validation page.

`python -m validation.readme` rewrites them; a test holds the page equal to what this writes.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from rlsim import api
from rlsim.views import verdict
from rlsim.views.palette import PHASES, label

ROOT = Path(__file__).parents[1]
README = ROOT / "README.md"
PAGE = ROOT / "docs" / "validation.md"
Summary = Mapping[str, Any]


def generated(text: str) -> str:
    """The page with its generated parts written anew."""
    text = re.sub(r"<!-- table (\S+) -->\n.*?<!-- end -->", lambda m: _block(m, scenario_table), text, flags=re.S)
    return re.sub(r"<!-- (validation) -->\n.*?<!-- end -->", lambda m: _block(m, _headline), text, flags=re.S)


def _block(found: re.Match[str], write: Callable[[str], str]) -> str:
    head = found.group(0).split("\n", 1)[0]
    return f"{head}\n{write(found.group(1)).strip()}\n<!-- end -->"


def scenario_table(file: str) -> str:
    """All variants of a scenario file side by side, and how each compares with the first."""
    answer = api.compare(api.load_scenario(ROOT / file).variants)
    shown = [s for s in answer.summaries if s["feasible"]]
    rows = [["seconds per step", *[s["variant"] for s in shown]]]
    rows.append(["**step time**", *[f"**{s['step_time_s']['mean']:.1f}**" for s in shown]])
    rows.append(["p10–p90 of the prediction", *[_interval(s) for s in shown]])
    for name in PHASES:
        if any(s["phases_s"][name] > 0.005 * s["step_time_s"]["mean"] for s in shown):
            rows.append([label(name), *[_seconds(s["phases_s"][name]) for s in shown]])
    rows.append(["tail: under a quarter of the samples runs", *[_tail(s) for s in shown]])
    rows.append(["busy, trainer / rollout", *[_busy(s) for s in shown]])
    rows.append(["staleness, mean (versions)", *[f"{s['staleness']['mean']:.1f}" for s in shown]])
    rows.append(["$ per step", *[f"{s['cost']['usd_per_step']:.2f}" for s in shown]])
    rows.append(["time from measured kernels", *[f"{s['provenance']['measured']:.0%}" for s in shown]])
    lines = [*verdict.sentences(shown), _switch(shown[0]), _sync(answer.outcomes[-1])]
    return f"{_markdown(rows)}\n\n" + "\n".join(f"- {line}" for line in lines) + "\n"


def _switch(base: Summary) -> str:
    """What the co-located variant pays for sharing its GPUs."""
    seconds = base["phases_s"]["offload"] + base["phases_s"]["onload"]
    share = seconds / base["step_time_s"]["mean"]
    tail = base["tail"]["share"]
    return (
        f"{base['variant']}: offload and onload together take {seconds:.1f} s ({share:.1%} of the step); "
        f"for {tail:.0%} of the step fewer than a quarter of its samples run"
    )


def _sync(outcome: api.Outcome) -> str:
    """What the weight sync takes as the framework does it, by plan, and at least."""
    used, times = outcome.summary["weight_sync"], outcome.sync_seconds
    return (
        f"{outcome.summary['variant']}: the weight sync takes {used['seconds']:.1f} s by {used['strategy']} as the "
        f"framework does it, {times['p2p']:.1f} s point-to-point by plan, "
        f"{used['floor_seconds']:.2f} s at the links' rates"
    )


def _seconds(seconds: float) -> str:
    return f"{seconds:.1f}" if seconds else "–"


def _interval(one: Summary) -> str:
    return f"{one['prediction_interval_s']['p10']:.0f}–{one['prediction_interval_s']['p90']:.0f}"


def _tail(one: Summary) -> str:
    tail = one["tail"]
    return "–" if tail is None or tail["seconds"] is None else f"{tail['seconds']:.1f}"


def _busy(one: Summary) -> str:
    use = one["utilization"]
    return f"{use['trainer']:.0%} / {use['rollout']:.0%}"


def _markdown(rows: Sequence[Sequence[str]]) -> str:
    lines = ["| " + " | ".join(row) + " |" for row in rows]
    lines.insert(1, "|---|" + "--:|" * (len(rows[0]) - 1))
    return "\n".join(lines)


def _headline(_: str) -> str:
    """The scores of the validation page."""
    scores = PAGE.read_text(encoding="utf-8").split("## Scores")[1].split("\n## ")[0]
    return scores.strip()


if __name__ == "__main__":
    README.write_text(generated(README.read_text(encoding="utf-8")), encoding="utf-8")
