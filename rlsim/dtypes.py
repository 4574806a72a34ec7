"""Bytes per element of the number formats that scenarios name."""

from __future__ import annotations

from types import MappingProxyType

BYTES = MappingProxyType(
    {"fp32": 4.0, "bf16": 2.0, "fp16": 2.0, "fp8": 1.0, "fp8_tensor": 1.0, "int8": 1.0, "fp4": 0.5, "int4": 0.5}
)
