"""The offload ledger of a co-located system: what leaves the GPU, what that costs whom, and whether it has to leave.

Every row is exposed: on the way out the weight sync and the rollout wait, on the way in the trainer's passes do.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import combinations
from typing import TYPE_CHECKING, Any

from rlsim.costs.offload import host_link, switch_cost
from rlsim.costs.roles import CriticCosts
from rlsim.costs.switch_ledger import SwitchCost, SwitchRow
from rlsim.costs.training import reference_seconds
from rlsim.lora import reference_is_base
from rlsim.memory import measure
from rlsim.memory_fixes import changed_system
from rlsim.memory_report import GIB
from rlsim.memory_trainer import master_share, offloadable, reference_bytes
from rlsim.roles import shares_trainer

if TYPE_CHECKING:
    from rlsim.system import System

KEYS = {"optimizer": "optimizer states", "params": "weights", "grads": "gradients"}
"""Keys of the offload block, and the trainer states that each lets go."""
KEPT_CAPACITY = 0.999
"""Share of the KV capacity at which a set of offloads counts as keeping it whole."""


@dataclass(frozen=True)
class Row:
    """One role: bytes of one GPU that move each way, or are only mapped and unmapped.

    memory: pinned or pageable at the host, `none` where nothing is copied. waits_out, waits_in: who stands still.
    """

    role: str
    moved: float
    mapped: float
    memory: str
    offload_seconds: float
    onload_seconds: float
    waits_out: str = "weight sync and rollout"
    waits_in: str = "trainer"


@dataclass(frozen=True)
class Option:
    """One set of offloads: which keys are true, whether everything fits, the KV cache that is left, the switch."""

    keys: tuple[str, ...]
    fits: bool
    kv_tokens: int
    seconds: float


@dataclass(frozen=True)
class OffloadReport:
    """rows and fixed seconds of both ways; options: every set of offloads, fewest first; now: the set in use."""

    rows: tuple[Row, ...]
    fixed_seconds: float
    seconds: float
    options: tuple[Option, ...]
    now: Option

    @property
    def without(self) -> Option:
        """Nothing leaves."""
        return self.options[0]

    @property
    def needed(self) -> bool:
        """Without offload something does not fit."""
        return not self.without.fits

    @property
    def cheapest(self) -> Option | None:
        """The set that fits at the least switch time; None: none does."""
        return min((o for o in self.options if o.fits), key=lambda o: (o.seconds, len(o.keys)), default=None)

    @property
    def cheapest_whole(self) -> Option | None:
        """The same among those that cost no KV cache against letting everything go."""
        most = KEPT_CAPACITY * max(o.kv_tokens for o in self.options)
        whole = (o for o in self.options if o.fits and o.kv_tokens >= most)
        return min(whole, key=lambda o: (o.seconds, len(o.keys)), default=None)

    def as_dict(self) -> dict[str, Any]:
        """Plain data of the JSON contract."""
        return {
            "rows": [_row_dict(row) for row in self.rows],
            "fixed_seconds": self.fixed_seconds,
            "seconds": self.seconds,
            "exposed_seconds": self.seconds,
            "needed": self.needed,
            "without_offload": _option_dict(self.without),
            "in_use": _option_dict(self.now),
            "cheapest": _option_dict(self.cheapest),
            "cheapest_with_whole_kv": _option_dict(self.cheapest_whole),
            "options": [_option_dict(option) for option in self.options],
        }


def offload_report(system: System, switch: SwitchCost, critic: CriticCosts | None) -> OffloadReport | None:
    """The ledger with its alternatives, each measured and priced like the system itself; None on two pools."""
    if not system.colocated:
        return None
    rows = [row for one in switch.ledger for row in _rows(system, one, "")]
    fixed = sum(seconds for name, seconds in switch.parts.items() if name.endswith(":fixed"))
    seconds = switch.offload_seconds + switch.onload_seconds
    if critic is not None and critic.rows:
        for one in critic.rows:
            rows += _rows(system, one, "critic ", "policy's passes")
        fixed += 2 * host_link(system).fixed
        seconds += critic.offload_seconds + critic.onload_seconds
    if shares_trainer(system.scenario, "reference") and not reference_is_base(system.scenario):
        size = max(reference_bytes(system, stage) for stage in range(system.trainer.pp))
        brought = reference_seconds(system)
        pinned = _memory(system.scenario.offload.pinned, size)
        rows.append(Row("reference weights", size, 0.0, pinned, 0.0, brought, "nobody", "reference pass"))
        seconds += brought
    options = tuple(_options(system))
    leaves = offloadable(system)
    used = tuple(key for key, role in KEYS.items() if leaves[role])
    now = next((option for option in options if option.keys == used), options[-1])
    return OffloadReport(tuple(rows), fixed, seconds, options, now)


def _rows(system: System, one: SwitchRow, prefix: str, waits_out: str = "weight sync and rollout") -> Iterator[Row]:
    """A row of the switch; Adam's states in two: 4 bytes of masters, 8 of moments (fp32 storage has no masters)."""
    names = {one.role: 1.0}
    if one.role == "optimizer states":
        master = master_share(system)
        names = {"master weights": master, "moments": 1 - master} if master else {"moments": 1.0}
    elif one.role == "parameters":
        names = {"trainer weights" if not prefix else "weights": 1.0}
    for name, share in names.items():
        yield Row(
            role=prefix + name,
            moved=one.moved * share,
            mapped=one.mapped * share,
            memory=_memory(one.pinned, one.moved),
            offload_seconds=one.offload_seconds * share,
            onload_seconds=one.onload_seconds * share,
            waits_out=waits_out,
            waits_in="critic's passes" if prefix else "trainer",
        )


def _memory(pinned: bool, moved: float) -> str:
    return "none" if not moved else "pinned" if pinned else "pageable"


def _options(system: System) -> Iterator[Option]:
    """Every set of the keys that the framework and the optimizer's place leave open, smallest first."""
    every = changed_system(system, dict.fromkeys((f"offload.{key}" for key in KEYS), True))
    possible = offloadable(every if every is not None else system)
    keys = [key for key, role in KEYS.items() if possible[role]]
    for count in range(len(keys) + 1):
        for chosen in combinations(keys, count):
            changed = changed_system(system, {f"offload.{key}": key in chosen for key in KEYS})
            if changed is None:
                continue
            report, switch = measure(changed), switch_cost(changed)
            seconds = switch.offload_seconds + switch.onload_seconds
            yield Option(chosen, not report.problems, report.kv_tokens_per_engine, seconds)


def _row_dict(row: Row) -> dict[str, Any]:
    return {
        "role": row.role,
        "moved_gib": row.moved / GIB,
        "mapped_gib": row.mapped / GIB,
        "host_memory": row.memory,
        "offload_seconds": row.offload_seconds,
        "onload_seconds": row.onload_seconds,
        "waits_for_offload": row.waits_out,
        "waits_for_onload": row.waits_in,
        "exposed_seconds": row.offload_seconds + row.onload_seconds,
    }


def _option_dict(option: Option | None) -> dict[str, Any] | None:
    if option is None:
        return None
    return {
        "offload": list(option.keys),
        "fits": option.fits,
        "kv_tokens_per_engine": option.kv_tokens,
        "seconds": option.seconds,
    }
