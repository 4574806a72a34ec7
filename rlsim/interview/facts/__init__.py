"""What the results say to each question: named figures, and which wording they call for."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from rlsim.interview.facts import asynchrony, engine, placement, rollout, scale, step, sync
from rlsim.interview.figure import Facts
from rlsim.interview.lab import Lab

FACTS: Mapping[str, Callable[[Lab], Facts]] = {
    **step.FACTS,
    **placement.FACTS,
    **rollout.FACTS,
    **engine.FACTS,
    **sync.FACTS,
    **asynchrony.FACTS,
    **scale.FACTS,
}
