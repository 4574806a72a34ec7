"""Rollout costs: the surface of iteration times of one engine, from kernel tables plus the engine's host time."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from rlsim import catalog
from rlsim.costs import speculative, surface_table
from rlsim.costs.engine_step import EngineShape
from rlsim.costs.kernels import EXPERT_POPULARITY
from rlsim.costs.kernels.tables import Floats
from rlsim.costs.measured import rollout_surface
from rlsim.costs.surface_table import SurfaceTable
from rlsim.costs.vision import with_images
from rlsim.dtypes import BYTES
from rlsim.errors import UserError
from rlsim.lora import engine_keeps_base
from rlsim.model import kv_bytes

if TYPE_CHECKING:
    from rlsim.catalog.profiles import Profile
    from rlsim.scenario.schema_roles import Speculative
    from rlsim.sim.surface import Surface
    from rlsim.system import RolloutPart, System

TYPICAL_CONTEXT = 2048.0
"""Mean context, in tokens, of the iteration whose provenance stands for all."""
SWAP_SPACE = 4 * 2**30
"""Host memory for swapped KV, bytes per GPU: vLLM's default `swap_space`."""


def engine_shape(system: System, part: RolloutPart) -> EngineShape:
    """Geometry of the engines of one rollout entry."""
    entry, layout = part.entry, part.layout
    return EngineShape(
        model=system.model,
        attn_tp=layout.attn_tp,
        attn_dp=layout.attn_dp,
        pp=layout.pp,
        moe_tp=layout.moe_tp,
        moe_ep=layout.moe_ep,
        dtype=entry.dtype,
        kv_dtype=entry.kv_dtype,
        domain=min(part.pool.nvlink_domain, part.layout.gpus_per_engine),
        return_logprobs=bool(entry.return_logprobs),
        head_tp=layout.head_tp,
        popularity="balanced" if system.balanced_experts else EXPERT_POPULARITY,
    )


@dataclass(frozen=True)
class Priced:
    """One kernel table that an engine needs: of which geometry, and how far it reaches."""

    shape: EngineShape
    max_num_seqs: int
    max_tokens: int


def priced_shapes(system: System, part: RolloutPart) -> tuple[Priced, ...]:
    """The engine's own table, and the draft's where it speculates with one."""
    entry, shape, spec = part.entry, engine_shape(system, part), part.entry.speculative
    seqs, tokens = int(entry.max_num_seqs), int(entry.max_num_batched_tokens)
    if spec is None:
        return (Priced(shape, seqs, tokens),)
    most = speculative.limit(spec, seqs)
    target = Priced(shape, max(seqs, most * (spec.tokens + 1)), tokens)
    if spec.method == "ngram":
        return (target,)
    return (target, Priced(_draft_shape(system, spec, shape), most, tokens))


def _draft_shape(system: System, spec: Speculative, shape: EngineShape) -> EngineShape:
    """The draft runs on the target's ranks: a model of its own with their TP, or one layer of the target's kind."""
    if spec.method != "draft":
        return replace(shape, model=speculative.head_model(shape.model), pp=1)
    try:
        model = catalog.model(spec.draft_model or "")
    except UserError as error:
        raise system.scenario.error("rollout.speculative.draft_model", error.message, error.fix) from error
    moe = model.experts is not None
    return replace(
        shape, model=model, pp=1, moe_tp=shape.moe_tp if moe else shape.attn_tp, moe_ep=shape.moe_ep if moe else 1
    )


def surface_tables(system: System, part: RolloutPart) -> list[SurfaceTable]:
    """`priced_shapes` as tables: stored where this engine has been priced before; else built and stored."""
    entry, found = part.entry, []
    kernels = system.scenario.costs.kernels
    for one in priced_shapes(system, part):
        limits = (one.max_num_seqs, one.max_tokens)
        name = surface_table.key(part.pool.gpu, entry.engine, one.shape, *limits, kernels)
        table = surface_table.find(name)
        if table is None:
            from rlsim.costs.kernels import kernels_for

            k = kernels_for(part.pool.gpu, entry.engine, roofline_only=kernels == "roofline")
            table = surface_table.build(k, one.shape, *limits)
            surface_table.save(table, name, surface_table.cache_folder() / f"{name}.npz")
        found.append(table)
    return found


def engine_surface(system: System, part: RolloutPart, kv_capacity_tokens: int) -> Surface:
    """Seconds of an iteration of one engine of `part`; `kv_capacity_tokens` per attention rank comes from the
    memory model.
    """
    measured = rollout_surface(system, part, kv_capacity_tokens)
    if measured is not None:
        return measured
    tables, entry = surface_tables(system, part), part.entry
    adapters = engine_keeps_base(system.scenario)
    surface = surface_from(tables[0], system.profile, part, kv_capacity_tokens, system.model.num_layers, adapters)
    if entry.speculative is not None:
        surface = _speculating(surface, tables, entry.speculative, system, part)
    surface = with_images(surface, system, part)
    return _with_swap(surface, system, part) if entry.preemption == "swap" else surface


def _speculating(
    surface: Surface, tables: list[SurfaceTable], spec: Speculative, system: System, part: RolloutPart
) -> Surface:
    """Rows per token instead of per pass, see `speculative`."""
    value = system.profile.value
    shapes = [one.shape for one in priced_shapes(system, part)]
    adapters = engine_keeps_base(system.scenario)
    launch = value("engine_eager_layer_s") + adapters * value("lora_eager_layer_s") if part.entry.enforce_eager else 0.0
    by = speculative.Pricing(
        factor=kernel_factor(system.profile, part, adapters),
        base=value("engine_step_base_s"),
        per_sequence=value("engine_step_per_seq_s"),
        launch=launch * shapes[0].model.num_layers,
        draft_launch=launch * shapes[-1].model.num_layers,
    )
    growth = speculative.attention_growth(shapes[0], spec.tokens, part.pool.gpu)
    return speculative.speculate(surface, tables[0], tables[1] if len(tables) > 1 else None, spec, growth, by)


def _with_swap(surface: Surface, system: System, part: RolloutPart) -> Surface:
    """What is preempted goes to the host: each GPU moves its share of a block, over its own link, at once.

    seconds of a block = block_size · KV bytes of a token on the busiest stage's GPU / host_link_rate. The engine waits
    for it (vLLM moves blocks before the forward of the same step).
    """
    per_token = max(
        kv_bytes(system.model, [TYPICAL_CONTEXT], layers, BYTES[part.entry.kv_dtype], part.layout.attn_tp)
        for layers in part.layout.stages
    )
    per_token /= TYPICAL_CONTEXT
    return replace(
        surface,
        swap_block_seconds=surface.block_size * per_token / system.profile.value("host_link_rate"),
        swap_capacity_tokens=int(SWAP_SPACE / per_token),
    )


def surface_from(
    table: SurfaceTable,
    profile: Profile,
    part: RolloutPart,
    kv_capacity_tokens: int,
    layers: int,
    adapters: bool = False,
) -> Surface:
    """Rows for every batch 0..max_num_seqs by interpolation, host time `h0 + h1·b` added.

    All kernel time takes `rollout_kernel_factor`, what engines lose over composed tables; batch-invariant kernels and
    LoRA adapters beside the weights take a factor of their own. Eager engines launch every kernel from the host: an
    iteration takes at least `layers` times the launch time of a layer. With pipeline stages the host's `h0` recurs for
    each micro-batch, but the host of one stage works while the others compute: it is counted once.
    """
    from rlsim.sim.surface import Surface

    entry, ranks = part.entry, part.layout.attn_dp
    factor = kernel_factor(profile, part, adapters)
    b = np.arange(int(entry.max_num_seqs) + 1, dtype=np.float64)
    rows = np.stack([np.interp(b, table.batches, column) for column in table.rank.T], axis=1) * factor
    kernels = rows
    if entry.enforce_eager:
        launch = profile.value("engine_eager_layer_s") + adapters * profile.value("lora_eager_layer_s")
        rows = np.maximum(rows, layers * launch)
    rows = rows + profile.value("engine_step_base_s") + profile.value("engine_step_per_seq_s") * b[:, None]
    rows[0] = 0.0
    totals = np.arange(ranks * int(entry.max_num_seqs) + 1, dtype=np.float64)
    joint = np.interp(totals, table.totals, table.joint) * factor
    joint[0] = 0.0
    return Surface(
        knots=table.knots,
        rank_rows=rows,
        joint=joint,
        prefill_knots=np.concatenate([[0.0], table.chunks]),
        prefill_seconds=np.concatenate([[0.0], table.prefill]) * factor,
        prefill_pair_seconds=table.pair * factor,
        prefill_base=table.base * factor + profile.value("engine_step_base_s"),
        provenance=_provenance(table, kernels, rows, joint, ranks),
        kv_capacity_tokens=kv_capacity_tokens,
        block_size=int(entry.block_size),
        max_num_seqs=int(entry.max_num_seqs),
        max_num_batched_tokens=int(entry.max_num_batched_tokens),
        notes=table.notes,
        joint_knots=np.concatenate([[0.0], table.prefill_totals]),
        joint_seconds=np.concatenate([[0.0], table.prefill_joint]) * factor,
        chunked_prefill=entry.chunked_prefill,
        prefix_caching=entry.prefix_caching,
    )


def kernel_factor(profile: Profile, part: RolloutPart, adapters: bool = False) -> float:
    """On all kernel time of an engine."""
    factor = profile.value("rollout_kernel_factor")
    factor *= profile.value("engine_deterministic_factor") if part.entry.deterministic else 1.0
    return factor * (profile.value("lora_kernel_factor") if adapters else 1.0)


def _provenance(table: SurfaceTable, kernels: Floats, rows: Floats, joint: Floats, ranks: int) -> dict[str, float]:
    """Shares of a typical iteration: a quarter of the slots decoding at TYPICAL_CONTEXT.

    Kernel time by the table's shares; what the host adds to a row (h0 + h1·b, eager launches) is roofline, a rate
    from the profile: share = kernel share · kernels / whole (+ host / whole).
    """
    b = max(1, (len(rows) - 1) // 4)
    at = [float(np.interp(TYPICAL_CONTEXT, table.knots, values[b])) for values in (kernels, rows)]
    together = float(joint[b * ranks])
    whole = at[1] + together
    shares = {name: share * (at[0] + together) / whole for name, share in table.provenance.items()}
    shares["roofline"] = shares.get("roofline", 0.0) + (at[1] - at[0]) / whole
    return shares
