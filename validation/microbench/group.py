"""One group of processes by torchrun, watched: what it has ended, why it failed, an end to it when it hangs."""

from __future__ import annotations

import os
import queue
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]
START = 120.0
"""Seconds that the processes have to begin."""
GRACE = 3.0
"""Seconds that torchrun has to end its processes before it is killed, and they with it."""


@dataclass(frozen=True)
class Asked:
    """How benchmarks are run.

    suite     quick | full
    device    auto | cpu | cuda
    max_size  bytes of the largest message, copy, model or checkpoint
    limit     seconds that one benchmark may take
    """

    suite: str = "full"
    device: str = "auto"
    max_size: float = float("inf")
    limit: float = 600.0


def run_group(
    names: Sequence[str], world: int, asked: Asked, parts: Path, told: Callable[[str, int], object], until: float
) -> str | None:
    """Run benchmarks one after another in `world` processes.

    parts  folder of the tables and of the log
    told   called with the name and number of rows of each benchmark that ended
    until  time.monotonic() at which the group ends at the latest
    Returns why the benchmark behind the last that ended did not; None: all ended.
    """
    log = parts / f"world-{world}.log"
    with log.open("w") as errors:
        process = subprocess.Popen(
            _command(names, world, asked, parts),
            env=_environment(world), cwd=ROOT, stdout=subprocess.PIPE, stderr=errors, text=True, start_new_session=True,
        )  # fmt: skip
        try:
            late = _watch(process, asked.limit, told, until)
        finally:
            end(process)
    reason = late or (_reason(log) if process.returncode else None)
    log.unlink()
    return reason


def _watch(
    process: subprocess.Popen[str], limit: float, told: Callable[[str, int], object], until: float
) -> str | None:
    """Pass on what ended until all has, or the time of a benchmark is up: then what to say about it."""
    lines: queue.Queue[str | None] = queue.Queue()
    threading.Thread(target=_read, args=(process, lines), daemon=True).start()
    deadline, late = time.monotonic() + START, f"not started within {START:.0f} s"
    while True:
        try:
            line = lines.get(timeout=max(0.0, min(deadline, until) - time.monotonic()))
        except queue.Empty:
            return late if deadline < until else "the time for all benchmarks was up"
        if line is None:
            break
        if line.startswith("begin"):
            deadline, late = time.monotonic() + limit, f"not done within {limit:.0f} s"
        elif line.startswith("done "):
            _, name, rows = line.split()
            told(name, int(rows))
    with suppress(subprocess.TimeoutExpired):  # its output is closed, it is about to end
        process.wait(GRACE)
    return None


def _read(process: subprocess.Popen[str], lines: queue.Queue[str | None]) -> None:
    assert process.stdout is not None
    for line in process.stdout:
        lines.put(line)
    lines.put(None)


def end(process: subprocess.Popen[str]) -> None:
    """End a process with its group; torchrun's own children, in groups of their own, die with it."""
    if process.poll() is not None:
        return
    os.killpg(process.pid, signal.SIGTERM)
    try:
        process.wait(GRACE)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def _command(names: Sequence[str], world: int, asked: Asked, parts: Path) -> list[str]:
    return [
        sys.executable, "-W", "ignore", "-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={world}",
        "-m", "validation.microbench", *names, f"--suite={asked.suite}", f"--device={asked.device}",
        f"--max-size={asked.max_size}", f"--out={parts.resolve()}",
    ]  # fmt: skip


def _environment(world: int) -> dict[str, str]:
    path = os.pathsep.join(p for p in (str(ROOT), os.environ.get("PYTHONPATH", "")) if p)
    return {**os.environ, "OMP_NUM_THREADS": str(max(1, (os.cpu_count() or 1) // world)), "PYTHONPATH": path}


def _reason(log: Path) -> str:
    """The line of a traceback that says what went wrong, else the last one."""
    lines = [line.split("]: ", 1)[-1].strip() for line in log.read_text().splitlines() if line.strip()]
    errors = [
        line for line in lines if line.split(":")[0].endswith(("Error", "Exception")) and "ChildFailed" not in line
    ]
    return (errors or lines or ["no message"])[0 if errors else -1][:300]
