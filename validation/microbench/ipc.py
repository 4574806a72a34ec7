"""Hand-over of a tensor from one process to another: CUDA IPC on a GPU, shared memory on CPUs.

The sender puts the handle into a queue of torch.multiprocessing; the receiver maps it, copies it into a tensor of its
own (an engine loads its weights so) and answers. Measured at the sender, from the queue to the answer.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import torch
import torch.multiprocessing as mp

from validation.microbench.setting import Setting, die_with_parent

LIMIT = 20.0
"""Seconds without an answer after which the receiver is taken to have failed."""


def run(setting: Setting) -> Iterator[dict[str, Any]]:
    """Seconds of one hand-over of `bytes`, the copy at the receiver included."""
    sizes = setting.sizes(
        (1 << 20,), (1 << 12, 1 << 16, 1 << 20, 1 << 24, 1 << 26), (1 << 16, 1 << 20, 1 << 26, 1 << 30)
    )
    context = mp.get_context("spawn")
    there, back = context.Queue(), context.Queue()
    receiver = context.Process(target=_receive, args=(there, back, str(setting.device)), daemon=True)
    receiver.start()
    try:
        for size in sizes:
            tensor = torch.ones(size, dtype=torch.uint8)
            if setting.device.type == "cpu":
                tensor.share_memory_()
            seconds = [_once(setting, tensor, there, back) for _ in range(setting.repetitions + 2)][2:]
            yield from setting.rows("ipc", f"ipc-{size}", seconds, bytes=size)
    finally:
        there.put(None)
        receiver.join(1.0)


def _once(setting: Setting, tensor: torch.Tensor, there: Any, back: Any) -> float:
    setting.wait()
    start = time.perf_counter()
    there.put(tensor)
    if back.get(timeout=LIMIT) != tensor.numel():
        raise RuntimeError("the receiver did not get all bytes")
    return time.perf_counter() - start


def _receive(there: Any, back: Any, device: str) -> None:
    die_with_parent()
    torch.set_num_threads(1)
    kept = torch.empty(0, dtype=torch.uint8, device=device)
    while (tensor := there.get()) is not None:
        if kept.shape != tensor.shape:
            kept = torch.empty_like(tensor)
        kept.copy_(tensor)
        if tensor.is_cuda:
            torch.cuda.synchronize()
        back.put(int(kept.numel()) if bool(kept[-1] == 1) else -1)
        del tensor
