"""Collectives over the default group: as the backend itself has them, none put together from others here.

`bytes` is the message of one rank: what it contributes (all-gather, all-to-all, broadcast, send) or keeps
(reduce-scatter). What the backend lacks is told and left out. torch's gloo backend makes reduce-scatter from an
all-reduce of its own; the rows are what its users get.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from typing import Any

import torch
import torch.distributed as dist

from validation.microbench.setting import Setting

SIZES = tuple(1 << e for e in range(10, 31, 2))
SHARE = 1 / 3
"""Of the memory, that the tensors of one operation may take."""


def run(setting: Setting) -> Iterator[dict[str, Any]]:
    """Seconds until the slowest rank has its result, by operation and size."""
    if setting.world < 2:
        return
    for op, build in OPERATIONS.items():
        for size in setting.sizes((1 << 10, 1 << 20), SIZES, SIZES):
            if _needed(setting, op, size) > SHARE * setting.memory:
                logging.warning("%s of %d bytes: not enough memory", op, size)
                break
            work = build(setting, size)
            try:
                work()
            except (RuntimeError, NotImplementedError) as error:
                logging.warning("%s has no %s: %s", setting.backend, op, str(error).splitlines()[0])
                break
            seconds = setting.timed(work, together=True)
            case = f"{op}-{size}-w{setting.world}"
            yield from setting.rows("collective", case, seconds, op=op, bytes=size, dtype="float32")


def _needed(setting: Setting, op: str, size: int) -> int:
    """Bytes of its tensors on one device; ranks on CPUs share one memory."""
    ranks = setting.world if setting.device.type == "cpu" else 1
    return ranks * size * (setting.world + 1 if op in ("all_gather", "reduce_scatter") else 2)


def _all_gather(setting: Setting, size: int) -> Callable[[], object]:
    one, whole = torch.ones(size // 4), torch.empty(setting.world * (size // 4))
    return lambda: dist.all_gather_into_tensor(whole, one)


def _reduce_scatter(setting: Setting, size: int) -> Callable[[], object]:
    one, whole = torch.empty(size // 4), torch.ones(setting.world * (size // 4))
    return lambda: dist.reduce_scatter_tensor(one, whole)


def _all_reduce(setting: Setting, size: int) -> Callable[[], object]:
    one = torch.zeros(size // 4)
    return lambda: dist.all_reduce(one)


def _broadcast(setting: Setting, size: int) -> Callable[[], object]:
    one = torch.ones(size // 4)
    return lambda: dist.broadcast(one, 0)


def _all_to_all(setting: Setting, size: int) -> Callable[[], object]:
    n = max(1, size // 4 // setting.world) * setting.world
    one, other = torch.ones(n), torch.empty(n)
    return lambda: dist.all_to_all_single(other, one)


def _send(setting: Setting, size: int) -> Callable[[], object]:
    """Rank 0 to the last rank."""
    one = torch.ones(size // 4)

    def work() -> None:
        if setting.rank == 0:
            dist.send(one, setting.world - 1)
        elif setting.rank == setting.world - 1:
            dist.recv(one, 0)

    return work


OPERATIONS: dict[str, Callable[[Setting, int], Callable[[], object]]] = {
    "all_gather": _all_gather,
    "reduce_scatter": _reduce_scatter,
    "all_reduce": _all_reduce,
    "broadcast": _broadcast,
    "all_to_all": _all_to_all,
    "send": _send,
}
