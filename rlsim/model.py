"""Exact accounting of an architecture: parameters, FLOPs, KV-cache bytes."""

from __future__ import annotations

from rlsim.architecture import Attention, Experts, Layer, ModelSpec

__all__ = ["Attention", "Experts", "Layer", "ModelSpec"]
