"""Staleness policies of `schedule: async`: which keys each has, and its framework's own values for those left out.

Sources: AReaL 4aef98d, verl 1dda039 (`fully_async_policy`), NeMo-RL 7ea279a, slime 624b824 (fully asynchronous
rollout), OpenRLHF 0.11.0, TRL f2cd577 (`async_grpo`), ROLL (`async_generation_ratio`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rlsim.scenario.schema import Async


@dataclass(frozen=True)
class PolicyKeys:
    """What a policy reads from the `async` block.

    uses            keys that mean something to it, besides `policy`, `partial_rollout` and `on_sync`
    max_staleness   its own default
    on_sync         what a weight sync does to running samples when the file says nothing,
    partial         and with `partial_rollout: true`
    per_engine      groups in flight per engine, where `max_concurrent` is left out
    """

    uses: frozenset[str]
    max_staleness: float = 1.0
    on_sync: str = "interrupt"
    partial: str = "interrupt"
    theta: float = 0.0
    sync_every: int = 1
    require_batches: int = 1
    queue: int | None = None
    per_engine: int | None = None
    dynamic_sampling: bool = True


def _uses(*keys: str) -> frozenset[str]:
    return frozenset(keys)


POLICIES: Mapping[str, PolicyKeys] = {
    "areal": PolicyKeys(_uses("max_staleness", "max_concurrent", "sync_every", "overtaken")),
    "verl": PolicyKeys(
        _uses("theta", "require_batches", "sync_every", "max_concurrent"), theta=0.1, sync_every=4, per_engine=16
    ),
    "nemo-rl": PolicyKeys(_uses("max_staleness"), on_sync="drain", partial="in-flight", dynamic_sampling=False),
    "slime": PolicyKeys(_uses("max_concurrent", "sync_every"), per_engine=512),
    "openrlhf": PolicyKeys(_uses("queue"), on_sync="drain", partial="in-flight", queue=1),
    "trl": PolicyKeys(
        _uses("max_staleness", "max_concurrent", "sync_every", "queue"),
        max_staleness=4.0,
        on_sync="in-flight",
        partial="in-flight",
        dynamic_sampling=False,
    ),
    "roll": PolicyKeys(_uses("max_staleness", "max_concurrent")),
}
TUNABLE = ("max_staleness", "theta", "sync_every", "require_batches", "max_concurrent", "queue")


def with_defaults(data: dict[str, object]) -> dict[str, object]:
    """The `async` block as written, with its policy's own `on_sync` and `max_staleness` where the file is silent.

    An unknown policy is left for the schema to refuse.
    """
    keys = POLICIES.get(str(data.get("policy", "areal")))
    if keys is None:
        return data
    partial = data.get("partial_rollout")
    on_sync = "drain" if partial is False else keys.partial if partial is True else keys.on_sync
    return {"on_sync": on_sync, "max_staleness": keys.max_staleness, **data}


def unused_keys(rules: Async) -> list[str]:
    """Keys that the file gives and its policy does not have."""
    keys = POLICIES[rules.policy]
    own = () if rules.max_staleness != keys.max_staleness else ("max_staleness",)  # filled in, not given
    given = [name for name in (*TUNABLE, "overtaken") if name in rules.model_fields_set and name not in own]
    return [name for name in given if name not in keys.uses]
