"""One process of torch.distributed on every host of a cluster."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from validation.netcluster.cluster import Cluster

ROOT = Path(__file__).parents[2]
PORT = 29500
PAUSE = 0.05


class HostFailed(RuntimeError):
    """A process ended badly; the message has its last words."""


def launch(built: Cluster, module: str, arguments: Sequence[str], limit: float) -> str:
    """Runs `python -m module` on every host and returns what the first one printed.

    limit  seconds after which all are ended
    Raises `HostFailed` when any of them fails; the others are ended then.
    """
    with tempfile.TemporaryDirectory() as folder:
        logs = [Path(folder, f"{rank}.log") for rank in range(len(built.hosts))]
        said = Path(folder, "out")
        processes = [_start(built, rank, module, arguments, said, log) for rank, log in enumerate(logs)]
        try:
            _wait(processes, logs, time.monotonic() + limit)
        finally:
            for process in processes:
                process.kill()
                process.wait()
        return said.read_text()


def _start(
    built: Cluster, rank: int, module: str, arguments: Sequence[str], said: Path, log: Path
) -> subprocess.Popen[bytes]:
    path = os.pathsep.join(p for p in (str(ROOT), os.environ.get("PYTHONPATH", "")) if p)
    environment = {
        **os.environ,
        "PYTHONPATH": path,
        "OMP_NUM_THREADS": "1",
        "RANK": str(rank),
        "WORLD_SIZE": str(len(built.hosts)),
        "LOCAL_RANK": "0",
        "LOCAL_WORLD_SIZE": "1",
        "MASTER_ADDR": built.hosts[0].address,
        "MASTER_PORT": str(PORT),
        "GLOO_SOCKET_IFNAME": "eth0",
    }
    command = built.inside(rank, sys.executable, "-W", "ignore", "-m", module, *arguments)
    with log.open("wb") as errors, (said if rank == 0 else Path(os.devnull)).open("wb") as out:
        return subprocess.Popen(command, env=environment, cwd=ROOT, stdout=out, stderr=errors)


def _wait(processes: Sequence[subprocess.Popen[bytes]], logs: Sequence[Path], until: float) -> None:
    while True:
        codes = [process.poll() for process in processes]
        failed = [rank for rank, code in enumerate(codes) if code]
        if failed:
            raise HostFailed(f"host {failed[0]}: {_reason(logs[failed[0]])}")
        if all(code == 0 for code in codes):
            return
        if time.monotonic() > until:
            raise HostFailed("the hosts did not end in time")
        time.sleep(PAUSE)


def _reason(log: Path) -> str:
    lines = [line for line in log.read_text(errors="replace").splitlines() if line.strip()]
    return lines[-1].strip() if lines else "no word"
