"""Delta sync: only what a step changed is sent, and every engine writes it over what it has.

Few of the bf16 weights move in a step: an update smaller than half a unit in the last place leaves the stored value as
it is. Public runs see 1-3% of the values change (dense models, GSM8K), 0.02-0.05% at 235B.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import ceil, log2

from rlsim.costs.pipeline import pipeline
from rlsim.costs.transfer_case import SyncCase
from rlsim.costs.transfer_links import behind
from rlsim.costs.transfer_methods import PIPELINED
from rlsim.costs.transfer_strategies import (
    STRATEGIES,
    Timed,
    broadcast_wire,
    control,
    engine_load,
    host_rate,
)

INDEX_BYTES = 4.0
"""int32 position of a changed value."""


@dataclass(frozen=True)
class DeltaCost:
    """What a delta sync would take, and where it pays.

    changed       share of the values that a step changes
    bytes         on the wire for one copy
    seconds       of one delta sync
    full          strategy that it is compared with: the one in use, or the framework's own
    full_seconds  of one full sync by that
    break_even    bytes/s of the links between trainer and engines, all together, below which the delta sync is
                  faster; None: the same of the two is faster at any rate
    """

    changed: float
    bytes: float
    seconds: float
    full: str
    full_seconds: float
    break_even: float | None

    def scaled(self, factor: float) -> DeltaCost:
        """The same with all durations multiplied."""
        rate = None if self.break_even is None else self.break_even / factor
        return replace(self, seconds=self.seconds * factor, full_seconds=self.full_seconds * factor, break_even=rate)


def delta_bytes(case: SyncCase) -> float:
    """Bytes on the wire for N values of w bytes, a share rho changed.

    index: rho·N·(4 + w), an int32 position beside each value: below 2·N·rho·3 for bf16, so a third changed is as much
    as everything. zstd: N·(H(rho)/8 + rho·w)/efficiency with H the entropy of a changed bit, values incompressible.
    rho 0.02 of 7.6 B in bf16: 0.91 GB by index (full: 15.2 GB), 0.55 GB by zstd.
    """
    count, rho = case.model_bytes / case.width, changed(case)
    if case.encoding == "index":
        return count * rho * (INDEX_BYTES + case.width)
    entropy = -(rho * log2(rho) + (1 - rho) * log2(1 - rho)) if rho < 1 else 0.0
    return count * (entropy / 8.0 + rho * case.width) / case.profile.value("delta_zstd_efficiency")


def changed(case: SyncCase) -> float:
    """Share of the values that a step changes."""
    return 1.0 if case.changed is None else case.changed


def delta(case: SyncCase) -> Timed:
    """Each trainer rank compares its shard with a snapshot in pinned memory; changes are gathered, broadcast, applied.

    gather = shard / host rate (the snapshot comes in) + tensors · cost per tensor (no gather of its own, whatever the
    back end) + delta bytes / delta rate (pick out, pack, unpack) (+ zstd: model / (nodes · zstd rate), on either side);
    wire as a broadcast of the delta bytes; load likewise.

    Source: verl 1dda039 delta_sharded (index), slime 624b824 (xor, overwrite with zstd).
    """
    value = case.profile.value
    size = delta_bytes(case)
    small = replace(case, model_bytes=size)
    compress, expand = _zstd(case)
    stages = {
        "gather": case.source.held_gpu / host_rate(case, case.source.side)
        + case.tensors * value("refit_per_tensor_s")
        + size / value("delta_rate")
        + compress,
        "wire": broadcast_wire(small),
        "load": engine_load(small, size) + control(small) + expand,
    }
    rounds = max(1, ceil(size / case.bucket))
    return Timed({**pipeline(stages, PIPELINED, rounds), "fixed": value("refit_fixed_s")}, stages["wire"])


def _zstd(case: SyncCase) -> tuple[float, float]:
    """Seconds to compress at the trainer, and to expand at the engines: every node its part of what it holds."""
    if case.encoding == "index":
        return 0.0, 0.0
    rate = case.profile.value("delta_zstd_node_rate")
    expand = max(r.recv_node / rate for r in case.receivers)
    return case.model_bytes / (case.source.side.nodes * rate), expand


def delta_cost(case: SyncCase, full: str) -> DeltaCost:
    """A delta sync against a full one by strategy `full`, and the link rate at which they are level.

    The engines are put behind one link of a rate that a bisection looks for; NICs stay as they are.
    """
    seconds, full_seconds = delta(case).seconds, STRATEGIES[full](case).seconds
    return DeltaCost(
        changed=changed(case),
        bytes=delta_bytes(case),
        seconds=seconds,
        full=full,
        full_seconds=full_seconds,
        break_even=break_even(case, full),
    )


def break_even(case: SyncCase, full: str) -> float | None:
    """bytes/s of one link before all engines at which delta and full sync are level; None where they never are."""

    def gain(bandwidth: float) -> float:
        held = behind(case, bandwidth)
        return STRATEGIES[full](held).seconds - delta(held).seconds

    low, high = 1e6, 1e14
    if (gain(low) > 0) == (gain(high) > 0):
        return None
    rising = gain(high) > 0
    for _ in range(100):
        middle = (low * high) ** 0.5
        if (gain(middle) > 0) == rising:
            high = middle
        else:
            low = middle
    return float((low * high) ** 0.5)
