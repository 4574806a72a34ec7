"""What a batch regime does about its long tail, and about groups that teach nothing."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rlsim.scenario.schema import Scenario

DISCARD, KEEP, TAIL_BATCH = "discard", "keep", "tail-batch"
BATCH, REPLACE, DOUBLE, FETCH = "batch", "replace", "double", "fetch"
REFILL_OF = {"nemo-rl": BATCH, "openrlhf": REPLACE, "verl": DOUBLE, "slime": FETCH}  # frameworks' own; others: replace


@dataclass(frozen=True)
class Remedies:
    """Each is off by default.

    ratio          over-sampling: groups started / groups needed; when enough are done the rest is aborted
    unfinished     what becomes of aborted groups: discard | keep | tail-batch
    refill         dynamic sampling: batch | replace | double | fetch; None: every group is kept
    fetch          groups fetched at a time (refill fetch); None: as many as a step needs
    max_batches    times the groups that a step starts with, beyond which dynamic sampling gives up
    consolidate    share of the rollout's peak of running samples, below which the last ones move together; None: never
    early_logprob  engines freed by that begin the log-prob pass of finished samples (co-located)
    """

    ratio: float = 1.0
    unfinished: str = DISCARD
    refill: str | None = None
    fetch: int | None = None
    max_batches: int = 10
    consolidate: float | None = None
    early_logprob: bool = False

    @property
    def any(self) -> bool:
        """Whether somebody has to watch the engines from completion to completion."""
        return self.ratio > 1 or self.refill is not None or self.consolidate is not None

    @property
    def keeps(self) -> bool:
        """Whether a rollout leaves unfinished groups to the next, with what they have."""
        return self.unfinished == KEEP and (self.ratio > 1 or self.refill == FETCH)

    def started(self, prompts: int) -> int:
        """Groups that a step starts with: ceil(ratio · prompts); fetches are whole."""
        if self.ratio == 1 and self.refill == FETCH:
            fetch = self.fetch or prompts
            return -(-prompts // fetch) * fetch
        return math.ceil(self.ratio * prompts - 1e-9)


NO_REMEDIES = Remedies()


def remedies(scenario: Scenario) -> Remedies:
    """Read them from a scenario; refill `auto` is the framework's own."""
    over, dynamic = scenario.remedies.over_sampling, scenario.workload.dynamic_sampling
    together = scenario.remedies.consolidate
    own = REFILL_OF.get(scenario.framework.name, REPLACE)
    return Remedies(
        ratio=over.ratio if over else 1.0,
        unfinished=over.unfinished if over else DISCARD,
        refill=(own if dynamic.refill == "auto" else dynamic.refill) if dynamic else None,
        fetch=dynamic.fetch if dynamic else None,
        max_batches=dynamic.max_batches if dynamic else 10,
        consolidate=together.below if together else None,
        early_logprob=together is not None and together.early_logprob,
    )
