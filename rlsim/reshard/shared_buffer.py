"""A buffer of bytes that another process of the host maps: shared memory on CPUs, a CUDA IPC handle on GPUs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch


def share(message: torch.Tensor) -> tuple[Any, Callable[[], object]]:
    """(handle for another process, what frees it)."""
    if message.is_cuda:
        from torch.multiprocessing.reductions import reduce_tensor

        torch.cuda.synchronize()
        # the lambda keeps the buffer alive until the receivers have taken it
        return reduce_tensor(message), lambda: message.untyped_storage().resize_(0)  # type: ignore[no-untyped-call]
    from multiprocessing.shared_memory import SharedMemory

    memory = SharedMemory(create=True, size=max(1, message.numel()))
    assert memory.buf is not None
    memory.buf[: message.numel()] = message.numpy().tobytes()

    def free() -> None:
        memory.close()
        memory.unlink()

    return (memory.name, message.numel()), free


class Mapped:
    """A buffer of another process, mapped."""

    def __init__(self, handle: Any) -> None:
        self._handle = handle
        self._memory: Any = None

    def __enter__(self) -> torch.Tensor:
        if callable(self._handle[0]):
            rebuild, arguments = self._handle
            mapped: torch.Tensor = rebuild(*arguments)
            return mapped
        from multiprocessing.shared_memory import SharedMemory

        name, size = self._handle
        self._memory = SharedMemory(name)
        return torch.frombuffer(bytearray(self._memory.buf[:size]), dtype=torch.uint8)

    def __exit__(self, *_: object) -> None:
        if self._memory is not None:
            self._memory.close()
