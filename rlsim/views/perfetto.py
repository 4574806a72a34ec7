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
MAX_POINTS = 20_000  # points of one counter; the trace of a long run stays small enough to open


def write(results: Sequence[Result], path: Path) -> None:
    """Write the trace of all variants into one file."""
    events: list[dict[str, Any]] = []
    for pid, result in enumerate(results, start=1):
        events += _events(result, pid)
    with path.open("w", encoding="utf-8") as out:
        json.dump({"traceEvents": events, "displayTimeUnit": "ms"}, out, separators=(",", ":"))


def _events(result: Result, pid: int) -> list[dict[str, Any]]:
    spans = result.spans
    tracks = {name: tid for tid, name in enumerate(dict.fromkeys(spans["track"].astype(str)), start=1)}
    events: list[dict[str, Any]] = [_name("process_name", pid, 0, result.variant)]
    events += [_name("thread_name", pid, tid, name) for name, tid in tracks.items()]
    columns = [spans[name].astype(str).tolist() for name in ("name", "track", "phase")]
    columns += [spans[name].to_numpy().tolist() for name in ("start", "end", "step")]
    for name, track, phase, start, end, step in zip(*columns, strict=True):
        events.append(
            {
                "ph": "X",
                "pid": pid,
                "tid": tracks[track],
                "name": label(name),
                "cat": phase,
                "ts": round(start * MICRO, 3),
                "dur": round((end - start) * MICRO, 3),
                "args": {"step": step},
            }
        )
    counters = result.counters
    stride = max(1, len(counters) // MAX_POINTS)
    points = [counters[name].to_numpy()[::stride].tolist() for name in ("time", "running", "kv_tokens")]
    for time, running, tokens in zip(*points, strict=True):
        at = round(time * MICRO, 3)
        events.append(_counter("running batch", pid, at, "sequences", running))
        events.append(_counter("KV in use", pid, at, "tokens", tokens))
    return events


def _name(kind: str, pid: int, tid: int, name: str) -> dict[str, Any]:
    return {"ph": "M", "pid": pid, "tid": tid, "name": kind, "args": {"name": name}}


def _counter(name: str, pid: int, at: float, unit: str, value: int) -> dict[str, Any]:
    return {"ph": "C", "pid": pid, "name": name, "ts": at, "args": {unit: value}}
