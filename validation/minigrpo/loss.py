"""GRPO's arithmetic: group advantage, clipped loss, truncated importance weights for the engine's own numerics."""

from __future__ import annotations

import torch
from torch import Tensor


def group_advantages(rewards: Tensor, eps: float = 1e-6) -> Tensor:
    """(r - mean) / (std + eps) within each group; rewards [groups, group_size], std of the sample (n - 1).

    Source: DeepSeekMath (arXiv 2402.03300), eq. 3 and outcome supervision.
    """
    return (rewards - rewards.mean(1, keepdim=True)) / (rewards.std(1, keepdim=True) + eps)


def truncated_weights(trainer: Tensor, engine: Tensor, cap: float = 2.0) -> Tensor:
    """min(exp(log p of the trainer - log p of the engine), cap) of each token: both of the policy that sampled it."""
    return (trainer - engine).exp().clamp(max=cap)


def clipped_loss(new: Tensor, old: Tensor, advantage: Tensor, weight: Tensor, clip: float = 0.2) -> Tensor:
    """Sum over tokens of -weight · min(ratio · A, clip(ratio, 1 ± clip) · A), ratio = exp(new - old); all [tokens]."""
    ratio = (new - old).exp()
    return -(weight * torch.minimum(ratio * advantage, ratio.clamp(1 - clip, 1 + clip) * advantage)).sum()
