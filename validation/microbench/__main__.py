"""One process of a group that torchrun started: `torchrun -m validation.microbench gemm decode --out DIR`.

Benchmarks run one after another; rank 0 writes each one's table while it runs and prints the line `begin` before it and
`done NAME ROWS` when it has ended, so that whoever started the group knows which one fails or hangs.
"""

from __future__ import annotations

import argparse
import importlib
import sys
import time
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import torch.distributed as dist

from validation import tables
from validation.microbench.setting import die_with_parent, start
from validation.microbench.suite import MODULES

EVERY = 1.0
"""Seconds after which rows that came since are written; between two cases, where no clock runs."""


def main() -> None:
    """Run the named benchmarks in this process."""
    parser = argparse.ArgumentParser()
    parser.add_argument("names", nargs="+", choices=list(MODULES))
    parser.add_argument("--suite", choices=["quick", "full"], default="quick")
    parser.add_argument("--device", choices=["auto", "cpu", "cuda"], default="auto")
    parser.add_argument("--max-size", type=float, default=float("inf"), help="bytes")
    parser.add_argument("--out", type=Path, required=True)
    asked = parser.parse_args()
    die_with_parent()
    setting = start(asked.suite, asked.device, asked.max_size)
    for name in asked.names:
        module, function = MODULES[name]
        run = getattr(importlib.import_module(f"validation.microbench.{module}"), function)
        if setting.rank == 0:
            _say("begin")
            count = written(run(setting), asked.out, f"{name}-w{setting.world}")
            _say(f"done {name} {count}")
        else:
            for _ in run(setting):
                pass
    if dist.is_initialized():
        dist.destroy_process_group()


def _say(line: str) -> None:
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


def written(rows: Iterable[Mapping[str, Any]], folder: Path, name: str) -> int:
    """Write the rows as they come: those of a benchmark that fails, or is ended, are kept. Returns their number."""
    kept: list[Mapping[str, Any]] = []
    last = time.monotonic()
    try:
        for row in rows:
            kept.append(row)
            if time.monotonic() - last > EVERY:
                tables.write(kept, folder, name)
                last = time.monotonic()
    finally:
        if kept:
            tables.write(kept, folder, name)
    return len(kept)


if __name__ == "__main__":
    main()
