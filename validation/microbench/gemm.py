"""Matrix products y[m, n] = x[m, k] · w[n, k]ᵀ, as in the linear layers: few rows (decode) to many (training)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from torch.nn import functional

from validation.microbench.setting import Setting

SHAPES_CPU = tuple((m, n, k) for m in (1, 4, 16, 64, 256, 1024) for n, k in ((256, 256), (1024, 256), (1024, 1024)))
SHAPES_GPU = tuple((m, n, k) for m in (1, 16, 128, 1024, 8192) for n, k in ((4096, 4096), (14336, 4096), (4096, 14336)))


def run(setting: Setting) -> Iterator[dict[str, Any]]:
    """Seconds of one product."""
    shapes = setting.choose(((1, 256, 256), (64, 256, 256)), SHAPES_CPU, SHAPES_GPU)
    for dtype in setting.choose((torch.float32,), (torch.float32, torch.bfloat16), (torch.bfloat16,)):
        for m, n, k in shapes:
            x, w = torch.randn(m, k, dtype=dtype), torch.randn(n, k, dtype=dtype)
            name = str(dtype).removeprefix("torch.")
            seconds = setting.timed(lambda x=x, w=w: functional.linear(x, w))
            yield from setting.rows("gemm", f"gemm-{m}x{n}x{k}-{name}", seconds, m=m, n=n, k=k, dtype=name)
