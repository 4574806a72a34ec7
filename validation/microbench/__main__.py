"""One process of a group that torchrun started: `torchrun -m validation.microbench gemm decode --suite quick --out DIR`.

Benchmarks run one after another; each one's table is written when it is done, and the line `done NAME` is printed by
rank 0, so that whoever started the group knows which one fails.
"""

from __future__ import annotations

import argparse
import importlib
from pathlib import Path

import torch.distributed as dist

from validation import tables
from validation.microbench.setting import start
from validation.microbench.suite import MODULES


def main() -> None:
    """Run the named benchmarks in this process."""
    parser = argparse.ArgumentParser()
    parser.add_argument("names", nargs="+", choices=list(MODULES))
    parser.add_argument("--suite", choices=["quick", "full"], default="quick")
    parser.add_argument("--device", choices=["auto", "cpu", "cuda"], default="auto")
    parser.add_argument("--out", type=Path, required=True)
    asked = parser.parse_args()
    setting = start(asked.suite, asked.device)
    for name in asked.names:
        module, function = MODULES[name]
        run = getattr(importlib.import_module(f"validation.microbench.{module}"), function)
        rows = list(run(setting))
        if setting.rank == 0:
            if rows:
                tables.write(rows, asked.out, f"{name}-w{setting.world}")
            print(f"done {name} {len(rows)}", flush=True)
    if dist.is_initialized():
        dist.destroy_process_group()


if __name__ == "__main__":
    main()
