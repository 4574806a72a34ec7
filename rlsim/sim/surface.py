"""Seconds of one iteration of one rollout engine, as a function of what runs on it. Pure data and pure functions.

An engine has `ranks` attention-DP ranks (1: a plain engine) that step together. In a pure-decode iteration rank r has
b_r running sequences with a mean context of c_r tokens (the sum of its contexts over b_r):

    t = max_r rank_rows[b_r](c_r) + joint[sum of b_r]

An iteration in which rank r also processes n_r prompt tokens with `pairs_r` token-context pairs of attention costs the
rank `mixed(b_r, c_r, n_r, pairs_r)` instead of its row, and the engine `joint_prefill(sum of n_r, sum of b_r)` on top.
Blocks that a rank swaps with the host lengthen its part by `swap_block_seconds` each.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]
Line = tuple[list[float], list[float]]  # knots, values


@dataclass(frozen=True)
class Surface:
    """Iteration times and limits of one engine.

    knots                float64[K], mean context in tokens, ascending, knots[0] = 0; shared by all rows
    rank_rows            float64[B+1, K], seconds for a rank's batch 0..B at the knots; linear between them, the last
                         slope goes on beyond; row 0 is zero; host time is inside
    joint                float64[ranks·B+1], seconds on top for the engine's whole batch (expert GEMMs, all-to-all)
    prefill_knots        float64[P], prompt tokens of one rank in one iteration, ascending, first 0
    prefill_seconds      float64[P], compute of that many prompt tokens, attention left out; beyond: the last slope
    prefill_pair_seconds seconds per pair of a prompt token and a token that it attends to
    prefill_base         seconds of an iteration without decodes beside its prompt tokens (weights read, host time)
    kv_capacity_tokens   per rank
    provenance           shares of the time: measured, scaled, roofline
    joint_knots          float64[Q], prompt tokens of the whole engine in one iteration, ascending, first 0
    joint_seconds        float64[Q], seconds of the experts for so many, their weights read included; beyond: the last
                         slope
    swap_block_seconds   seconds to move one KV block of a rank to the host, or back
    swap_capacity_tokens tokens whose KV a rank can have at the host; 0: what is preempted is recomputed
    chunked_prefill      whether prompts are cut to what decodes leave of the token budget. Without, an iteration is
                         either whole prompts up to the budget, or decodes
    prefix_caching       whether groups share their prompts, and contexts can be kept
    """

    knots: Floats
    rank_rows: Floats
    joint: Floats
    prefill_knots: Floats
    prefill_seconds: Floats
    prefill_pair_seconds: float
    prefill_base: float
    provenance: Mapping[str, float]
    kv_capacity_tokens: int
    block_size: int
    max_num_seqs: int
    max_num_batched_tokens: int
    notes: tuple[str, ...] = field(default=())
    joint_knots: Floats = field(default_factory=lambda: np.array([0.0, 1.0]))
    joint_seconds: Floats = field(default_factory=lambda: np.zeros(2))
    swap_block_seconds: float = 0.0
    swap_capacity_tokens: int = 0
    chunked_prefill: bool = True
    prefix_caching: bool = True

    @property
    def ranks(self) -> int:
        """Attention-DP ranks of the engine."""
        return (len(self.joint) - 1) // self.max_num_seqs

    def row(self, b: int, c: float) -> float:
        """Seconds of a rank's part of a decode iteration: b sequences, mean context c tokens."""
        knots, row = self.knots, self.rank_rows[b]
        j = min(max(bisect_right(knots, c) - 1, 0), len(knots) - 2)
        slope = (row[j + 1] - row[j]) / (knots[j + 1] - knots[j])
        return float(row[j] + slope * (c - knots[j]))

    def mixed(self, b: int, c: float, tokens: int, pairs: float) -> float:
        """Seconds of a rank's part of an iteration with b decodes and `tokens` prompt tokens (both may be 0)."""
        return (self.row(b, c) if b else 0.0) + self.chunk(b, tokens, pairs)

    def chunk(self, b: int, tokens: int, pairs: float) -> float:
        """Seconds that `tokens` prompt tokens with `pairs` token-context pairs add to an iteration with b decodes."""
        if not tokens:
            return 0.0
        return (0.0 if b else self.prefill_base) + self.prefill(tokens) + self.prefill_pair_seconds * pairs

    def prefill(self, tokens: int) -> float:
        """Compute of a rank's prompt tokens, attention left out."""
        return _along(self._prefill, tokens)

    def joint_prefill(self, tokens: int, b: int) -> float:
        """Seconds that the engine's prompt tokens, of all ranks, add on top; b sequences decode beside them.

        What the experts take for all of these less what they take for the decodes alone: weights are read once.
        """
        if not tokens:
            return 0.0
        return _along(self._joint_prefill, tokens + b) - _along(self._joint_prefill, b)

    @cached_property
    def _prefill(self) -> Line:
        return self.prefill_knots.tolist(), self.prefill_seconds.tolist()

    @cached_property
    def _joint_prefill(self) -> Line:
        return self.joint_knots.tolist(), self.joint_seconds.tolist()

    def scaled(self, c: float) -> Surface:
        """The same engine with all its durations multiplied by c."""
        return replace(
            self,
            rank_rows=self.rank_rows * c,
            joint=self.joint * c,
            prefill_seconds=self.prefill_seconds * c,
            prefill_pair_seconds=self.prefill_pair_seconds * c,
            prefill_base=self.prefill_base * c,
            joint_seconds=self.joint_seconds * c,
            swap_block_seconds=self.swap_block_seconds * c,
        )


def _along(line: Line, x: float) -> float:
    """Piecewise linear, the last slope goes on."""
    knots, values = line
    j = min(max(bisect_right(knots, x) - 1, 0), len(knots) - 2)
    return values[j] + (x - knots[j]) / (knots[j + 1] - knots[j]) * (values[j + 1] - values[j])
