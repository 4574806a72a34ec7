"""Speculative decoding as a transform of an engine's surface: seconds per token instead of seconds per pass.

In one pass the engine verifies k drafted tokens of every sequence beside the one it computes anyway: b·(k+1) tokens
against the same contexts. With each draft kept with chance α, independently, a pass yields (accepted ones and one more)

    E = (1 − α^(k+1)) / (1 − α)    tokens (Leviathan, Kalman, Matias 2023, equation 1)

and row(b, c) = (verify(b·(k+1), c) + k·draft(b, c) + h0 + h1·b) / E. Above `max_batch` sequences a rank decodes as
without.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from rlsim.architecture import ModelSpec
from rlsim.costs.kernels.tables import Floats
from rlsim.costs.surface_table import SurfaceTable

if TYPE_CHECKING:
    from rlsim.catalog.hardware import GpuSpec
    from rlsim.costs.engine_step import EngineShape
    from rlsim.scenario.schema_roles import Speculative
    from rlsim.sim.surface import Surface


@dataclass(frozen=True)
class Pricing:
    """What turns kernel tables into iterations: a factor on kernels, host seconds a pass and a sequence, and the least
    that a pass of the target and of the draft takes (launches of an eager engine).
    """

    factor: float
    base: float
    per_sequence: float
    launch: float = 0.0
    draft_launch: float = 0.0


def tokens_per_pass(acceptance: float | Floats, drafted: int) -> Floats:
    """E = Σ over i = 0..k of α^i: the tokens that a pass yields on average, 1 to k + 1."""
    alpha = np.asarray(acceptance, dtype=np.float64)
    return np.asarray((alpha[..., None] ** np.arange(drafted + 1)).sum(axis=-1))


def acceptance_at(spec: Speculative, batch: Floats) -> Floats:
    """α by running sequences of an attention rank: linear between the given ones, flat beyond."""
    if not isinstance(spec.acceptance, dict):
        return np.full(batch.shape, spec.acceptance)
    at = sorted(spec.acceptance)
    return np.asarray(np.interp(batch, at, [spec.acceptance[b] for b in at]))


def attention_growth(shape: EngineShape, drafted: int, gpu: GpuSpec) -> float:
    """How much longer attention takes for k + 1 queries that read the same KV: from 1 (memory) to k + 1 (arithmetic).

    I = FLOPs per KV byte of one query: GQA 4·d·g / (2·d·bytes), g query heads to a KV head; MLA, absorbed,
    2·heads·(2·r_kv + d_rope) / ((r_kv + d_rope)·bytes). The time grows as max(1, (k+1)·I/ridge), ridge = peak / HBM.
    """
    from rlsim.dtypes import BYTES

    a, size = shape.model.attention, BYTES[shape.kv_dtype]
    if a.kind == "mla":
        intensity = 2.0 * shape.heads * (2 * a.kv_lora_rank + a.qk_rope_dim)
        intensity /= (a.kv_lora_rank + a.qk_rope_dim) * size
    else:
        intensity = 2.0 * shape.heads / shape.kv_heads / size
    at = intensity / (gpu.peak_flops["bf16"] / gpu.hbm_bandwidth)
    return max(1.0, (drafted + 1) * at) / max(1.0, at)


def head_model(model: ModelSpec) -> ModelSpec:
    """MTP module or EAGLE head: one layer like the last one, and the LM head."""
    return replace(model, layers=model.layers[-1:])


def speculate(
    plain: Surface, target: SurfaceTable, draft: SurfaceTable | None, spec: Speculative, growth: float, by: Pricing
) -> Surface:
    """`plain` with rows per token. `target` reaches b·(k+1) sequences; `draft` None: drafts cost nothing (n-gram)."""
    k, most = spec.tokens, limit(spec, plain.max_num_seqs)
    b = np.arange(1, most + 1, dtype=np.float64)
    gain = tokens_per_pass(acceptance_at(spec, b), k)
    # (k+1)·b sequences with contexts c·growth/(k+1): as many tokens, and attention `growth` times that of b
    verify = _rows(target, b * (k + 1), plain.knots * growth / (k + 1))
    verify = np.maximum(verify, _rows(target, b, plain.knots)) * by.factor
    drafting = np.zeros_like(verify)
    if draft is not None:
        drafting = k * np.maximum(_rows(draft, b, plain.knots) * by.factor, by.draft_launch)
    host = by.base + by.per_sequence * b[:, None]
    rows = plain.rank_rows.copy()
    rows[1 : most + 1] = (np.maximum(verify, by.launch) + drafting + host) / gain[:, None]

    together = np.arange(1, most * plain.ranks + 1, dtype=np.float64)
    joint = plain.joint.copy()
    shared = _along(together * (k + 1), target.totals, target.joint)
    if draft is not None:
        shared = shared + k * _along(together, draft.totals, draft.joint)
    gain = tokens_per_pass(acceptance_at(spec, together / plain.ranks), k)
    joint[1 : len(together) + 1] = shared * by.factor / gain
    surface = replace(plain, rank_rows=rows, joint=joint)
    return surface if draft is None else _with_draft_prefill(surface, draft, by)


def limit(spec: Speculative, max_num_seqs: int) -> int:
    """Sequences of a rank up to which it speculates."""
    return max_num_seqs if spec.max_batch is None else min(spec.max_batch, max_num_seqs)


def _with_draft_prefill(surface: Surface, draft: SurfaceTable, by: Pricing) -> Surface:
    """The draft has a KV cache of its own: prompts pass through it too."""
    knots = np.concatenate([[0.0], draft.chunks])
    more = np.interp(surface.prefill_knots, knots, np.concatenate([[0.0], draft.prefill]))
    return replace(
        surface,
        prefill_seconds=surface.prefill_seconds + more * by.factor,
        prefill_pair_seconds=surface.prefill_pair_seconds + draft.pair * by.factor,
        prefill_base=surface.prefill_base + draft.base * by.factor,
    )


def _rows(table: SurfaceTable, batches: Floats, contexts: Floats) -> Floats:
    """float64[len(batches), len(contexts)], kernel seconds of a rank."""
    at = np.stack([np.interp(contexts, table.knots, row) for row in table.rank])
    return np.stack([np.interp(batches, table.batches, column) for column in at.T], axis=1)


def _along(x: Floats, knots: Floats, values: Floats) -> Floats:
    return np.asarray(np.interp(x, knots, values))
