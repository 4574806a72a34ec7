"""A trace in the Chrome / Perfetto JSON form: one process per variant, one thread per role, counters for the engines.

Open it at https://ui.perfetto.dev. Format: "Trace Event Format", complete events (ph X, microseconds), counters (ph C)
and metadata (ph M).
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rlsim.result import Result
from rlsim.views.palette import label

MICRO = 1e6


def write(results: Sequence[Result], path: Path) -> None:
    """Write the trace of all variants into one file."""
    events: list[dict[str, Any]] = []
    for pid, result in enumerate(results, start=1):
        events += _events(result, pid)
    with path.open("w", encoding="utf-8") as out:
        json.dump({"traceEvents": events, "displayTimeUnit": "ms"}, out, separators=(",", ":"))


def _events(result: Result, pid: int) -> list[dict[str, Any]]:
    spans = result.spans
    tracks = {name: tid for tid, name in enumerate(dict.fromkeys(spans["track"]), start=1)}
    events: list[dict[str, Any]] = [_name("process_name", pid, 0, result.variant)]
    events += [_name("thread_name", pid, tid, name) for name, tid in tracks.items()]
    for row in spans.itertuples(index=False):
        events.append(
            {
                "ph": "X",
                "pid": pid,
                "tid": tracks[row.track],
                "name": label(str(row.name)),
                "cat": str(row.phase),
                "ts": round(row.start * MICRO, 3),
                "dur": round((row.end - row.start) * MICRO, 3),
                "args": {"step": int(row.step)},
            }
        )
    for row in result.counters.itertuples(index=False):
        at = round(row.time * MICRO, 3)
        events.append(_counter("running batch", pid, at, "sequences", int(row.running)))
        events.append(_counter("KV in use", pid, at, "tokens", int(row.kv_tokens)))
    return events


def _name(kind: str, pid: int, tid: int, name: str) -> dict[str, Any]:
    return {"ph": "M", "pid": pid, "tid": tid, "name": kind, "args": {"name": name}}


def _counter(name: str, pid: int, at: float, unit: str, value: int) -> dict[str, Any]:
    return {"ph": "C", "pid": pid, "name": name, "ts": at, "args": {unit: value}}
