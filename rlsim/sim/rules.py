"""How the rollout pool treats samples, whatever the regime."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rlsim.scenario.schema import Scenario


@dataclass(frozen=True)
class RolloutRules:
    """Rules of the rollout pool.

    routing              which engine a sample goes to
    environment_workers  turns that environments answer at a time; None: all
    keep_contexts        contexts stay in the prefix caches while an environment works
    flush_cache          a weight sync empties the prefix caches
    turns                samples have several turns
    """

    routing: str = "least-loaded"
    environment_workers: int | None = None
    keep_contexts: bool = False
    flush_cache: bool = True
    turns: bool = False


PLAIN = RolloutRules()


def rollout_rules(scenario: Scenario) -> RolloutRules:
    """Read off a scenario."""
    turns = scenario.workload.turns
    return RolloutRules(
        routing=scenario.routing,
        environment_workers=None if turns is None else turns.workers,
        keep_contexts=turns is not None and turns.kv == "keep",
        flush_cache=scenario.weight_sync.flush_cache,
        turns=turns is not None,
    )
