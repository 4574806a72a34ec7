"""What a plan is asked for: GPUs, a deadline, or a price; and what counts as best then."""

from __future__ import annotations

import re
from dataclasses import dataclass

from rlsim.errors import UserError

SECONDS = {"s": 1.0, "min": 60.0, "h": 3600.0, "d": 86400.0}


@dataclass(frozen=True)
class Goal:
    """`gpus`: budgets to try; empty: a ladder up to the file's cluster.

    steps, within   that many steps in so many seconds
    usd_per_step    dollars of a step at most
    budget          dollars of all steps at most
    """

    gpus: tuple[int, ...] = ()
    steps: int | None = None
    within: float | None = None
    usd_per_step: float | None = None
    budget: float | None = None

    def check(self) -> None:
        """Refuse a question that is not complete."""
        if (self.within is not None or self.budget is not None) and self.steps is None:
            key = "--within" if self.within is not None else "--budget"
            raise UserError("of how many steps?", key=key, fix="--steps 1000 beside it")
        for key, value in (("--within", self.within), ("--usd-per-step", self.usd_per_step), ("--budget", self.budget)):
            if value is not None and value <= 0:
                raise UserError("not positive", key=key)

    @property
    def most_seconds(self) -> float | None:
        """Longest step that meets the deadline."""
        return self.within / self.steps if self.within is not None and self.steps else None

    @property
    def most_usd(self) -> float | None:
        """Dearest step that the price allows."""
        limits = [self.usd_per_step] if self.usd_per_step is not None else []
        limits += [self.budget / self.steps] if self.budget is not None and self.steps else []
        return min(limits, default=None)

    def met(self, seconds: float, usd: float) -> bool:
        """Whether a step of these seconds and dollars is good enough."""
        late = self.most_seconds is not None and seconds > self.most_seconds
        dear = self.most_usd is not None and usd > self.most_usd
        return not (late or dear)

    def rank(self, seconds: float, usd: float) -> tuple[bool, float, float]:
        """Smaller is better: what meets the goal first; with a deadline the cheapest, else the fastest."""
        first, second = (usd, seconds) if self.within is not None else (seconds, usd)
        return (not self.met(seconds, usd), first, second)


def duration(text: str, key: str = "--within") -> float:
    """Seconds of "3d", "36 h", "90min" or "600 s"."""
    found = re.fullmatch(r"\s*([0-9.]+)\s*(s|min|h|d)\s*", text)
    if found is None:
        raise UserError(f"{text!r} is no duration", key=key, fix="for example 3d, 36h or 90min")
    try:
        return float(found.group(1)) * SECONDS[found.group(2)]
    except ValueError:
        raise UserError(f"{text!r} is no duration", key=key, fix="for example 3d, 36h or 90min") from None


def counts(text: str) -> tuple[int, ...]:
    """GPUs of "64" or "64,128,256"."""
    try:
        return tuple(sorted({int(part) for part in text.split(",")}))
    except ValueError:
        raise UserError(f"{text!r} are no numbers of GPUs", key="--gpus", fix="for example 64 or 64,128,256") from None
