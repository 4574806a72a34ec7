"""Copies between host and device, pinned and pageable; on CPUs from memory to memory (`direction` h2h)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch

from validation.microbench.setting import Setting


def run(setting: Setting) -> Iterator[dict[str, Any]]:
    """Seconds of one copy of `bytes`."""
    sizes = setting.sizes(
        (1 << 20,), (1 << 14, 1 << 18, 1 << 22, 1 << 26, 1 << 28), (1 << 16, 1 << 22, 1 << 28, 1 << 31)
    )
    for size in sizes:
        if setting.device.type == "cpu":
            a, b = torch.ones(size, dtype=torch.uint8), torch.empty(size, dtype=torch.uint8)
            yield from _rows(setting, "h2h", size, False, a, b)
            continue
        device = torch.ones(size, dtype=torch.uint8)
        for pinned in (True, False):
            host = torch.ones(size, dtype=torch.uint8, device="cpu", pin_memory=pinned)
            yield from _rows(setting, "h2d", size, pinned, host, device)
            yield from _rows(setting, "d2h", size, pinned, device, host)
        yield from _rows(setting, "d2d", size, False, device, torch.empty_like(device))


def _rows(
    setting: Setting, direction: str, size: int, pinned: bool, source: torch.Tensor, target: torch.Tensor
) -> Iterator[dict[str, Any]]:
    case = f"copy-{direction}-{'pinned' if pinned else 'pageable'}-{size}"
    seconds = setting.timed(lambda: target.copy_(source, non_blocking=pinned))
    yield from setting.rows("copy", case, seconds, direction=direction, pinned=pinned, bytes=size)
