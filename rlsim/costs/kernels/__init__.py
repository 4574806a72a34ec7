"""Seconds of single kernels: GEMM, attention, experts, collectives."""

from rlsim.costs.kernels.kernels import EXPERT_POPULARITY, Kernels, Priced, kernels_for, worst
from rlsim.costs.kernels.work import AttentionShape, MoeShape

__all__ = ["EXPERT_POPULARITY", "AttentionShape", "Kernels", "MoeShape", "Priced", "kernels_for", "worst"]
