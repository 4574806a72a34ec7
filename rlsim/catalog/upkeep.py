"""Who stands still while a framework saves a checkpoint or evaluates."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True)
class UpkeepHabit:
    """A framework's habits in an asynchronous run; elsewhere save and evaluation are in sequence anyway.

    save_pauses_rollout   generation stands still while a checkpoint is written
    evaluation_beside     the trainer goes on while the rollout engines evaluate
    source                where this was read
    """

    save_pauses_rollout: bool
    evaluation_beside: bool
    source: str


HABITS: Mapping[str, UpkeepHabit] = {
    "generic": UpkeepHabit(False, False, "one controller calls save and evaluation in its training loop"),
    "verl": UpkeepHabit(False, True, "verl fully_async_policy: the rollouter validates after a parameter sync"),
    "areal": UpkeepHabit(True, False, "AReaL 4aef98d: rollout resumes only after the update, save and evaluation"),
}


def habit_of(framework: str) -> UpkeepHabit:
    """A framework's habits; `generic` for one that has none of its own."""
    return HABITS.get(framework, HABITS["generic"])
