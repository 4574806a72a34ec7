"""Staleness policies: how far rollout may run ahead of the trainer, as frameworks rule it. One file for each."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from rlsim.sim.policies.areal import Areal
from rlsim.sim.policies.base import Policy, Stand
from rlsim.sim.policies.nemo_rl import NemoRl
from rlsim.sim.policies.openrlhf import OpenRlhf
from rlsim.sim.policies.roll import Roll
from rlsim.sim.policies.slime import Slime
from rlsim.sim.policies.trl import Trl
from rlsim.sim.policies.verl import Verl
from rlsim.sim.settings import Settings

__all__ = ["POLICIES", "Policy", "Stand", "policy_of"]

POLICIES: Mapping[str, Callable[[Settings], Policy]] = {
    "areal": Areal,
    "verl": Verl,
    "nemo-rl": NemoRl,
    "slime": Slime,
    "openrlhf": OpenRlhf,
    "trl": Trl,
    "roll": Roll,
}


def policy_of(settings: Settings) -> Policy:
    """The policy of a run, in its state before the first step."""
    return POLICIES[settings.policy](settings)
