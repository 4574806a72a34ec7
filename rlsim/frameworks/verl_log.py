"""verl's logs: console lines, JSONL of the file logger, CSV as tracking tools export it.

Console: `step:12 - timing_s/gen:46.2 - response_length/mean:181.9 - …`, with Ray's `(TaskRunner pid=…)` and colours
before it, values also as `np.float64(46.2)`. File logger: `{"step": 12, "data": {"timing_s/gen": 46.2, …}}`. Old
versions wrote `timing/gen`, and asynchronous ones `timing_s/timing_s/param_sync`.
Source: verl, `verl/utils/tracking.py`, `verl/utils/logger/aggregate_logger.py`, `verl/trainer/ppo/metric_utils.py`.
"""

from __future__ import annotations

import csv
import json
import math
import re
from collections.abc import Iterator, Sequence
from io import StringIO
from pathlib import Path
from typing import Any

from rlsim.errors import UserError
from rlsim.frameworks.run_log import RunLog

TIMER = "timing_s/"
COLOURS = re.compile(r"\x1b\[[0-9;]*m")
LINE = re.compile(r"(?:^|[\s)])step:(\d+) - (.*)$")
NUMBER = r"[-+]?(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?"
PAIR = re.compile(rf"([A-Za-z_][\w./@-]*):(?:np\.\w+\(|tensor\()?({NUMBER})\)?(?:\s|$|,)")
FIX = "verl's console output (`step:1 - timing_s/gen:… - …`), its JSONL file, or a CSV with a column `step`"
REPEATS = 0.1  # share of step numbers that may come again (a restart from a checkpoint) before it is another run
Row = tuple[int, dict[str, float]]


def read(files: Sequence[Path]) -> RunLog:
    """All steps of one run. Raises `UserError` for what is no log, has no timers, or mixes runs."""
    rows: list[Row] = []
    for file in files:
        found = list(_rows(_text(file), file.suffix.lower()))
        if not found:
            raise UserError("not a run's log: no line of metrics by step in it", file=str(file), fix=FIX)
        rows += found
    names = ", ".join(map(str, files))
    if not any(name.startswith(TIMER) for _, metrics in rows for name in metrics):
        some = ", ".join(sorted(rows[0][1])[:5])
        message = f"no timers in the log (timing_s/…); it has {some}"
        raise UserError(message, file=names, fix="the log of a run whose trainer.logger has console or file")
    merged, notes = _one_run(rows, names)
    steps = sorted(merged)
    return RunLog("verl", tuple(map(str, files)), tuple(steps), tuple(merged[s] for s in steps), tuple(notes))


def _text(file: Path) -> str:
    try:
        return file.read_text(encoding="utf-8", errors="replace")
    except FileNotFoundError:
        raise UserError("no such file", file=str(file), fix=FIX) from None
    except (IsADirectoryError, OSError) as error:
        raise UserError(f"cannot be read: {error.strerror}", file=str(file), fix=FIX) from None


def _rows(text: str, suffix: str) -> Iterator[Row]:
    if suffix == ".csv":
        yield from _csv(text)
        return
    for raw in text.splitlines():
        line = COLOURS.sub("", raw).strip()
        if line.startswith("{"):
            yield from _json(line)
        elif match := LINE.search(line):
            values = {name: float(value) for name, value in PAIR.findall(match[2] + " ")}
            yield int(match[1]), _named(values)


def _json(line: str) -> Iterator[Row]:
    try:
        entry = json.loads(line)
    except ValueError:
        return
    step = _float(entry.get("step", entry.get("_step"))) if isinstance(entry, dict) else None
    if step is None:
        return
    data = entry.get("data", entry)
    if isinstance(data, dict):
        numbers = {k: float(v) for k, v in data.items() if isinstance(v, int | float) and not isinstance(v, bool)}
        yield int(step), _named(numbers)


def _csv(text: str) -> Iterator[Row]:
    lines = (line for line in text.splitlines() if line.strip() and not line.startswith("#"))
    for entry in csv.DictReader(StringIO("\n".join(lines))):
        step = _float(entry.get("step") or entry.get("_step") or entry.get("Step"))
        if step is None:
            return
        numbers = {k: n for k, v in entry.items() if k is not None and (n := _float(v)) is not None}
        yield int(step), _named(numbers)


def _float(text: Any) -> float | None:
    try:
        value = float(text)
    except (TypeError, ValueError):
        return None
    return value if math.isfinite(value) else None


def _named(values: dict[str, float]) -> dict[str, float]:
    """Names of today's version."""
    found = {}
    for name, value in values.items():
        if name in ("step", "_step") or not math.isfinite(value):
            continue
        if name.startswith("timing/"):
            name = TIMER + name.removeprefix("timing/")
        while name.startswith(TIMER + TIMER):
            name = name.removeprefix(TIMER)
        found[name] = value
    return found


def _one_run(rows: Sequence[Row], names: str) -> tuple[dict[int, dict[str, float]], list[str]]:
    """Lines of one step put together; a step that comes again with other timers is a restart, or another run."""
    merged: dict[int, dict[str, float]] = {}
    again: set[int] = set()
    for step, metrics in rows:
        known = merged.get(step, {})
        clash = [k for k, v in metrics.items() if k.startswith(TIMER) and k in known and known[k] != v]
        if clash:
            again.add(step)
            merged[step] = metrics
        else:
            merged[step] = {**known, **metrics}
    with_timers = {s: m for s, m in merged.items() if any(k.startswith(TIMER) for k in m)}
    if len(again) > max(1.0, REPEATS * len(with_timers)):
        message = f"more than one run: {len(again)} of {len(with_timers)} steps come twice with different times"
        raise UserError(message, file=names, fix="the log of one run")
    notes = []
    if again:
        notes.append(f"{len(again)} steps come twice (a restart): the later ones count")
    if len(with_timers) < len(merged):
        notes.append(f"{len(merged) - len(with_timers)} lines without timers are left out (validation)")
    return with_timers, notes
