"""Prices from a profile's measured curves, in place of the kernel tables: machines without tables, a CPU cluster.

    decode iteration   fixed_s + sequence_s·b + context_token_s·(sum of contexts)      or knots over b, + contexts
    with prompts       + token_s·n + pair_s·pairs; fixed_s of prefill where nothing decodes beside them
    weight sync        fixed_s + byte_s·(bytes of the model on the wire) + engine_s·engines
    offload, onload    fixed_s + byte_s·(bytes of a GPU that move)
    controller         step_s once a step, call_s a call, sample_s and token_s of each pass of the batch

Each function is asked first by the room that prices the role, and answers None where the profile has no such curve.
The trainer's passes are in `measured_training`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from rlsim.catalog.measured_curves import full_name
from rlsim.catalog.profiles import Profile

if TYPE_CHECKING:
    from rlsim.costs.controller import ControllerCosts
    from rlsim.costs.kernels.tables import Floats
    from rlsim.costs.switch_ledger import SwitchCost
    from rlsim.costs.transfer import SyncCost
    from rlsim.sim.surface import Surface
    from rlsim.system import RolloutPart, System

FARTHEST = 1e6  # tokens of context: rows are straight lines, so any second knot will do


def parts_of(profile: Profile, role: str, amounts: Mapping[str, float]) -> dict[str, float]:
    """Seconds by term's full name: each coefficient times how much of it there is."""
    return {full_name(role, term): profile.term(role, term) * amount for term, amount in amounts.items()}


def only_measured(seconds: float) -> dict[str, float]:
    """Provenance of a price that rests on measurements alone."""
    return {"measured": seconds, "scaled": 0.0, "roofline": 0.0}


def rollout_surface(system: System, part: RolloutPart, kv_capacity_tokens: int) -> Surface | None:
    """The engine's surface by `measured.decode` and `measured.prefill`; attention-DP ranks are alike."""
    from rlsim.sim.surface import Surface

    profile, entry = system.profile, part.entry
    if "decode" not in profile.measured:
        return None
    b = np.arange(int(entry.max_num_seqs) + 1, dtype=np.float64)
    base = decode_base(profile, b)
    rows = np.stack([base, base + profile.term("decode", "context_token_s") * b * FARTHEST], axis=1)
    rows[0] = 0.0
    tokens, seconds = _prefill_line(profile)
    return Surface(
        knots=np.array([0.0, FARTHEST]),
        rank_rows=rows,
        joint=np.zeros(part.layout.attn_dp * int(entry.max_num_seqs) + 1),
        prefill_knots=tokens,
        prefill_seconds=seconds,
        prefill_pair_seconds=profile.term("prefill", "pair_s"),
        prefill_base=profile.term("prefill", "fixed_s"),
        provenance={"measured": 1.0},
        kv_capacity_tokens=kv_capacity_tokens,
        block_size=int(entry.block_size),
        max_num_seqs=int(entry.max_num_seqs),
        max_num_batched_tokens=int(entry.max_num_batched_tokens),
        chunked_prefill=entry.chunked_prefill,
        prefix_caching=entry.prefix_caching,
    )


def decode_base(profile: Profile, b: Floats) -> Floats:
    """Seconds of iterations of b sequences, contexts left out."""
    if "decode" in profile.knots:
        return profile.knots["decode"](b) * profile.term("decode", "scale")
    return profile.term("decode", "fixed_s") + profile.term("decode", "sequence_s") * b


def iteration_parts(profile: Profile, b: int, context: float) -> dict[str, float]:
    """Seconds of a decode iteration by term."""
    curve = "decode" in profile.knots
    own = {"scale": float(profile.knots["decode"](np.array([float(b)]))[0])} if curve else {"fixed_s": 1.0}
    return parts_of(profile, "decode", {**own, "sequence_s": b, "context_token_s": b * context})


def _prefill_line(profile: Profile) -> tuple[Floats, Floats]:
    """(prompt tokens of an iteration, seconds), attention and the fixed part left out; first knot 0."""
    if "prefill" not in profile.knots:
        return np.array([0.0, 1.0]), np.array([0.0, profile.term("prefill", "token_s")])
    curve, scale = profile.knots["prefill"], profile.term("prefill", "scale")
    at, seconds = np.array(curve.at), np.array(curve.seconds) * scale
    if at[0] > 0:
        at, seconds = np.concatenate([[0.0], at]), np.concatenate([[0.0], seconds])
    return at, seconds


def sync(profile: Profile, cost: SyncCost, engines: int) -> SyncCost | None:
    """The sync of `cost`, its seconds by `measured.weight_sync`: bytes are the plan's, other strategies unpriced."""
    if "weight_sync" not in profile.measured:
        return None
    amounts = {"fixed_s": 1.0, "byte_s": cost.bytes_total, "engine_s": float(engines)}
    parts = parts_of(profile, "weight_sync", amounts)
    seconds = sum(parts.values())
    return replace(
        cost,
        seconds=seconds,
        transfer_seconds=seconds - profile.term("weight_sync", "fixed_s"),
        parts=parts,
        sources=only_measured(seconds),
        alternatives={cost.strategy: seconds},
        delta=None,
    )


def switch(profile: Profile, cost: SwitchCost) -> SwitchCost | None:
    """The switch of `cost`, its seconds by `measured.offload` and `measured.onload`; bytes are the ledger's."""
    if "offload" not in profile.measured:
        return None
    amounts = {"fixed_s": 1.0, "byte_s": cost.bytes_per_gpu}
    out, back = (parts_of(profile, way, amounts) for way in ("offload", "onload"))
    seconds = sum(out.values()), sum(back.values())
    whole = cost.offload_seconds, cost.onload_seconds
    stretch = [s / w if w else 0.0 for s, w in zip(seconds, whole, strict=True)]
    rows = tuple(
        replace(r, offload_seconds=r.offload_seconds * stretch[0], onload_seconds=r.onload_seconds * stretch[1])
        for r in cost.ledger
    )
    return replace(cost, offload_seconds=seconds[0], onload_seconds=seconds[1], ledger=rows, parts={**out, **back})


def controller(profile: Profile) -> ControllerCosts | None:
    """The driver by `measured.controller`."""
    from rlsim.costs.controller import ControllerCosts

    if "controller" not in profile.measured:
        return None
    token = profile.term("controller", "token_s")
    return ControllerCosts(
        dispatch_seconds=profile.term("controller", "call_s"),
        step_fixed_seconds=profile.term("controller", "step_s"),
        bytes_per_token=1.0,
        bytes_rate=1.0 / token if token else float("inf"),
        sample_seconds=profile.term("controller", "sample_s"),
    )
