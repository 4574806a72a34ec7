"""What a benchmark runs on and how it keeps time."""

from __future__ import annotations

import ctypes
import os
import signal
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
import torch.distributed as dist

from validation import tables

BRIEF = 2e-3
"""Seconds below which an operation is repeated inside one repetition, and the mean taken."""
LONG = ((1.0, 3), (0.2, 5))
"""Seconds from which so many repetitions are enough."""
PARENT_DIES = 1
"""PR_SET_PDEATHSIG of Linux's prctl."""


@dataclass(frozen=True)
class Setting:
    """What and how much this process measures.

    device    of this rank
    backend   gloo | nccl
    suite     quick | full
    fixed     columns that all rows share
    max_size  bytes of the largest message, copy, model or checkpoint
    """

    device: torch.device
    backend: str
    rank: int
    world: int
    suite: str
    fixed: Mapping[str, Any]
    max_size: float = float("inf")

    @property
    def quick(self) -> bool:
        return self.suite == "quick"

    @property
    def repetitions(self) -> int:
        return 3 if self.quick else 10

    @property
    def dtype(self) -> torch.dtype:
        """What the models compute in: bf16 on GPUs; CPUs without bf16 units would emulate it."""
        return torch.bfloat16 if self.device.type == "cuda" else torch.float32

    @property
    def memory(self) -> int:
        """Bytes of the device's memory, or of the host's."""
        if self.device.type == "cuda":
            return int(torch.cuda.get_device_properties(self.device).total_memory)
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")

    def choose(self, quick: Any, cpu: Any, gpu: Any) -> Any:
        """Sizes that suit the suite and the device."""
        if self.quick:
            return quick
        return gpu if self.device.type == "cuda" else cpu

    def sizes(self, quick: Sequence[float], cpu: Sequence[float], gpu: Sequence[float]) -> list[int]:
        """Bytes that suit the suite and the device and are allowed."""
        return [int(size) for size in self.choose(quick, cpu, gpu) if size <= self.max_size]

    def wait(self) -> None:
        """Until the device has done what was asked of it."""
        if self.device.type == "cuda":
            torch.cuda.synchronize()

    def timed(
        self,
        work: Callable[[], object],
        together: bool = False,
        prepare: Callable[[], object] = lambda: None,
    ) -> list[float]:
        """Seconds of each repetition; what takes less than `BRIEF` is done several times in one.

        together  all ranks do it: they start at a barrier, and the slowest rank's seconds count
        prepare   done before each repetition, outside the clock
        """
        once = min(self._pass(work, 1, together, prepare) for _ in range(2))
        inner = max(1, round(BRIEF / max(once, 1e-7)))
        fewer = [n for seconds, n in LONG if once >= seconds]
        repetitions = min([self.repetitions, *fewer])
        return [self._pass(work, inner, together, prepare) for _ in range(repetitions)]

    def _pass(self, work: Callable[[], object], inner: int, together: bool, prepare: Callable[[], object]) -> float:
        prepare()
        self.wait()
        if together:
            dist.barrier()
        start = time.perf_counter()
        for _ in range(inner):
            work()
        self.wait()
        seconds = (time.perf_counter() - start) / inner
        return self._slowest(seconds) if together else seconds

    def _slowest(self, value: float) -> float:
        found = torch.tensor([value], dtype=torch.float64, device=self.device)
        dist.all_reduce(found, dist.ReduceOp.MAX)
        return float(found.item())

    def rows(self, benchmark: str, case: str, seconds: list[float], **parameters: Any) -> Iterator[dict[str, Any]]:
        """One row per repetition."""
        for repetition, value in enumerate(seconds):
            named = {"benchmark": benchmark, "case": case, "repetition": repetition, "seconds": value}
            yield {**named, "backend": self.backend, "world": self.world, **self.fixed, **parameters}


def die_with_parent() -> None:
    """Have the kernel end this process when the one that started it ends (Linux): nothing that hangs is left."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PARENT_DIES, signal.SIGKILL)


def start(suite: str, device: str = "auto", max_size: float = float("inf")) -> Setting:
    """Joins the processes that torchrun started (RANK, WORLD_SIZE, LOCAL_RANK); alone without it.

    device  cpu | cuda | auto: GPUs where every local rank has one of its own
    """
    rank, world = int(os.environ.get("RANK", 0)), int(os.environ.get("WORLD_SIZE", 1))
    local, here = int(os.environ.get("LOCAL_RANK", 0)), int(os.environ.get("LOCAL_WORLD_SIZE", 1))
    gpu = device == "cuda" or (device == "auto" and torch.cuda.is_available() and torch.cuda.device_count() >= here)
    torch.set_num_threads(max(1, (os.cpu_count() or 1) // here))
    torch.manual_seed(0)
    if gpu:
        torch.cuda.set_device(local)
        chosen, name = torch.device("cuda", local), torch.cuda.get_device_name(local)
    else:
        chosen, name = torch.device("cpu"), None
    torch.set_default_device(chosen)
    backend = "none"
    if world > 1 or "RANK" in os.environ:
        backend = "nccl" if gpu else "gloo"
        dist.init_process_group(backend, device_id=chosen if gpu else None)
    return Setting(chosen, backend, rank, world, suite, tables.identity(name), max_size)
