"""Causal scaled-dot-product attention over one batch of equal sequences, forward and backward."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch.nn import functional

from validation.microbench.setting import Setting


def run(setting: Setting) -> Iterator[dict[str, Any]]:
    """Seconds of the forward pass, and of forward and backward together."""
    heads, kv_heads, size = setting.choose((4, 2, 32), (8, 4, 64), (32, 8, 128))
    for batch, sequence in setting.choose(
        ((2, 64),), ((1, 128), (4, 128), (1, 512), (4, 512), (1, 2048)), ((1, 2048), (8, 2048), (1, 8192), (1, 32768))
    ):
        shapes = [(batch, n, sequence, size) for n in (heads, kv_heads, kv_heads)]
        q, k, v = (torch.randn(s, dtype=setting.dtype, requires_grad=True) for s in shapes)
        for part, work in (("forward", _forward(q, k, v)), ("forward+backward", _both(q, k, v))):
            name = f"attention-{part}-b{batch}-s{sequence}"
            found = {"batch": batch, "sequence": sequence, "heads": heads, "kv_heads": kv_heads, "op": part}
            yield from setting.rows(
                "attention", name, setting.timed(work), hidden=heads * size, dtype=str(setting.dtype)[6:], **found
            )


def _forward(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> Callable[[], object]:
    def work() -> None:
        with torch.no_grad():
            functional.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=True)

    return work


def _both(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> Callable[[], object]:
    def work() -> None:
        functional.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=True).sum().backward()

    return work
