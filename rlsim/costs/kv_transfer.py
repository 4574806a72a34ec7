"""KV on its way from prefill engines to decode engines."""

from __future__ import annotations

from math import inf
from typing import TYPE_CHECKING

from rlsim.costs.transfer_build import crossing_between
from rlsim.dtypes import BYTES
from rlsim.model import kv_bytes
from rlsim.sim.journeys import KvTransfer

if TYPE_CHECKING:
    from rlsim.system import RolloutPart, System

LONG = 8192
"""Context, in tokens, at which the KV of a token is taken: sliding windows keep less of a longer one."""


def kv_transfer(system: System) -> KvTransfer | None:
    """The way from prefill to decode engines; None where engines do both.

    bytes per token = KV of one whole copy (all layers, no replicas) / tokens. An attention rank sends through the NICs
    of its GPUs (attn_tp·pp), as fast as the narrower of both sides takes it: nic · efficiency · min(GPUs of the ranks).
    Where a link joins their pools, a prefill rank has an even share of it, and its latency comes on top.
    """
    by_role: dict[str, RolloutPart] = {part.entry.role: part for part in system.rollout}
    if "prefill" not in by_role:
        return None
    prefill, decode = by_role["prefill"], by_role["decode"]
    width = BYTES[prefill.entry.kv_dtype]
    per_token = kv_bytes(system.model, [LONG], None, width) / LONG
    value = system.profile.value
    line = crossing_between(system, prefill.pool, decode.pool)
    ranks = prefill.layout.engines * prefill.layout.attn_dp
    share = line.bandwidth / ranks if line is not None else inf
    rate = value("sync_nic_efficiency") * min(_nics(prefill), _nics(decode), share)
    latency = value("kv_transfer_latency_s") + (line.latency if line is not None else 0.0)
    return KvTransfer(per_token, rate, latency)


def _nics(part: RolloutPart) -> float:
    """bytes/s of the NICs of one attention rank."""
    return part.pool.nic * part.layout.attn_tp * part.layout.pp
