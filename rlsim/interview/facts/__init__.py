"""What the results say to each question: named figures, and which wording they call for."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from rlsim.interview.facts import placement, step, sync
from rlsim.interview.figure import Facts
from rlsim.interview.lab import Lab

FACTS: Mapping[str, Callable[[Lab], Facts]] = {**step.FACTS, **placement.FACTS, **sync.FACTS}
