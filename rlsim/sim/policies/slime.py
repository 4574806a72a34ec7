"""slime's fully asynchronous rollout: a fixed number of groups in flight, no bound on age."""

from __future__ import annotations

from rlsim.sim.policies.base import Policy, Rank, Stand
from rlsim.sim.settings import Settings


class Slime(Policy):
    """C groups in flight; topping up stops while C finished groups wait. First in, first out.

    C = max_concurrent (512 an engine). In flight + finished ≤ 2C groups, hence at most about ⌈2C/B⌉ versions.
    Source: slime/rollout/fully_async_rollout.py.
    """

    reacts = True

    def __init__(self, settings: Settings) -> None:
        self.limit = settings.max_concurrent or settings.prompts
        self._order = 0

    def room(self, stand: Stand) -> int:
        return self.limit - stand.running if stand.queued < self.limit else 0

    def accepted(self, group: int, stand: Stand) -> Rank:
        self._order += 1
        return (self._order,)
