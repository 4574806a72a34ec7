"""Which benchmarks there are, and how they are started: groups of processes by torchrun, one failing is survived."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).parents[2]
MODULES = {
    "gemm": ("gemm", "run"),
    "attention": ("attention", "run"),
    "logprob": ("models", "logprob"),
    "prefill": ("models", "prefill"),
    "decode": ("models", "decode"),
    "copy": ("copies", "run"),
    "ipc": ("ipc", "run"),
    "train_step": ("models", "train_step"),
    "collective": ("collective", "run"),
    "reshard": ("reshard", "run"),
    "dcp": ("dcp", "run"),
}
ALONE = ("gemm", "attention", "logprob", "prefill", "decode", "copy", "ipc")
"""Measured in one process; the others in as many as the world has."""
LIMIT = 1200.0


@dataclass
class Outcome:
    """rows: of each benchmark that ended, by name and world; errors: the last lines of those that failed."""

    rows: dict[str, int] = field(default_factory=dict)
    errors: dict[str, str] = field(default_factory=dict)


def run(
    names: Sequence[str],
    suite: str,
    worlds: Sequence[int],
    out: Path,
    device: str = "auto",
    tell: Callable[[str], object] = lambda line: None,
) -> Outcome:
    """Run benchmarks and write their tables into `out`, with `errors.json` where some failed.

    worlds  numbers of processes for the benchmarks of several
    tell    called with a line about each benchmark that ended
    """
    outcome = Outcome()
    alone = [n for n in names if n in ALONE]
    together = [n for n in names if n not in ALONE]
    for world, left in [(1, alone), *((w, list(together)) for w in worlds)]:
        while left:
            done = _group(left, suite, world, out, device, outcome, tell)
            left = left[done:]
            if left:  # the group ended at this one: go on behind it
                left = left[1:]
    out.mkdir(parents=True, exist_ok=True)
    (out / "errors.json").unlink(missing_ok=True)
    if outcome.errors:
        (out / "errors.json").write_text(json.dumps(outcome.errors, indent=1) + "\n")
    return outcome


def _group(
    names: Sequence[str],
    suite: str,
    world: int,
    out: Path,
    device: str,
    outcome: Outcome,
    tell: Callable[[str], object],
) -> int:
    """One torchrun over these benchmarks; how many ended."""
    threads = max(1, (os.cpu_count() or 1) // world)
    path = os.pathsep.join(p for p in (str(ROOT), os.environ.get("PYTHONPATH", "")) if p)
    environment = {**os.environ, "OMP_NUM_THREADS": str(threads), "PYTHONPATH": path}
    command = [
        sys.executable, "-W", "ignore", "-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={world}",
        "-m", "validation.microbench", *names, f"--suite={suite}", f"--device={device}", f"--out={out.resolve()}",
    ]  # fmt: skip
    out.mkdir(parents=True, exist_ok=True)
    log = out / f"world-{world}.log"
    done = 0
    with log.open("w") as errors:
        process = subprocess.Popen(command, env=environment, cwd=ROOT, stdout=subprocess.PIPE, stderr=errors, text=True)
        assert process.stdout is not None
        for line in process.stdout:
            if line.startswith("done "):
                _, name, rows = line.split()
                outcome.rows[f"{name}-w{world}"] = int(rows)
                done += 1
                tell(
                    f"{name} ({_processes(world)}): {rows} rows" if int(rows) else f"{name}: needs 2 processes, skipped"
                )
        code = process.wait(LIMIT)
    if code and done < len(names):
        outcome.errors[f"{names[done]}-w{world}"] = _reason(log)
        tell(f"{names[done]} ({_processes(world)}): FAILED: {outcome.errors[f'{names[done]}-w{world}']}")
    elif not code:
        log.unlink()
    return done


def _processes(world: int) -> str:
    return "1 process" if world == 1 else f"{world} processes"


def _reason(log: Path) -> str:
    """The line of a traceback that says what went wrong, else the last one."""
    lines = [line.split("]: ", 1)[-1].strip() for line in log.read_text().splitlines() if line.strip()]
    told = [line for line in lines if line.split(":")[0].endswith(("Error", "Exception")) and "ChildFailed" not in line]
    return (told or lines or ["no message"])[0 if told else -1][:300]
