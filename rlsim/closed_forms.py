"""Closed forms of a step in steady state, to hold against the simulation: what is known on paper about its limits.

Seconds and tokens; `train` is all that the trainer does in a step but wait and sync (controller, log-probs, updates).
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
from scipy.special import betaincinv

Quantile = Callable[[float], float]
NODES = 200  # Gauss-Legendre nodes of the integrals over a probability


def synchronous(rollout: float, train: float, sync: float) -> float:
    """Every stage waits for the one before: the sum."""
    return rollout + train + sync


def one_step_off(rollout: float, train: float, sync: float) -> float:
    """Rollout of the next batch, its tail included, beside the training of this one; both meet at the sync."""
    return max(rollout, train) + sync


def asynchronous(train: float, sync: float, tokens: float, rate: float, standstill: float = 0.0) -> float:
    """Trainer-bound or generation-bound: max(train + exposed sync, tokens / rate + standstill of the engines).

    `rate`: response tokens per second of full engines. The tail is gone: it overlaps with the batches after it.
    """
    return max(train + sync, tokens / rate + standstill)


def bounded_staleness(eta: float, step: float, latency: float) -> float:
    """Mean versions between a sample's first token and its training when admission keeps (η + v + 1)·B.

    A full queue (trainer-bound) makes every sample η versions late. An empty one (generation-bound) leaves a sample no
    wait: it is late by the syncs that fall into its own `latency`, from first token to training (Little's law: groups
    under way ÷ groups a step).
    """
    return min(eta, latency / step)


def threshold_staleness(theta: float) -> float:
    """Mean versions that verl's samples are late when the trainer is the bound, 0 ≤ θ ≤ 1.

    A sync leaves θ·R·K of the (1+θ)·R·K groups submitted; they are one version late, the rest of the R·K is not.
    θ = 0: on-policy pipeline; θ = 1: every sample one version late, as one-step-off.
    """
    return theta


def order_statistic(quantile: Quantile, k: int, n: int) -> float:
    """Mean of the k-th smallest of n independent draws: ∫ Q(u) dBeta(u; k, n-k+1).

    k = n is the tail of a batch (the rollout ends with its longest sample); over-sampling n > N groups and stopping at
    the N-th is k = N. Exponential: mean · (1/n + 1/(n-1) + … + 1/(n-k+1)); uniform on (0, 1): k/(n+1).
    """
    nodes, weights = np.polynomial.legendre.leggauss(NODES)
    shares = betaincinv(k, n - k + 1, (nodes + 1) / 2)
    return float(sum(w / 2 * quantile(float(u)) for u, w in zip(shares, weights, strict=True)))


def groups_per_kept(zero_variance: float) -> float:
    """Groups generated for each that dynamic sampling keeps: 1 / (1 - z)."""
    return 1 / (1 - zero_variance)


def slime_staleness(concurrent: int, prompts: int) -> int:
    """Versions that a sample can be late with C groups in flight and C finished, first in first out: ⌈2C/B⌉."""
    return math.ceil(2 * concurrent / prompts)
