"""Where prompts come from: the batches of the workload, drawn one after another, the same in every regime."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from rlsim.sim.ledger import Batch, Ledger
from rlsim.sim.prices import Reward

Draw = Callable[[np.random.Generator, int], Batch]
LENGTHS, REWARDS = 0, 1


class Work:
    """Draws batches into the ledger. Batch k has its own random streams, so variants see the same samples."""

    def __init__(self, draw: Draw, reward: Reward, seed: int, ledger: Ledger) -> None:
        self._draw = draw
        self._reward = reward
        self._seed = seed
        self._ledger = ledger
        self.batches = 0
        self.groups = 0

    def batch(self) -> range:
        """Sample numbers of the next batch."""
        lengths = np.random.default_rng([self._seed, self.batches, LENGTHS])
        rewards = np.random.default_rng([self._seed, self.batches, REWARDS])
        batch = self._draw(lengths, self.batches)
        seconds = self._reward.seconds(rewards, batch.response_tokens.size)
        ids = self._ledger.admit(batch, seconds, self.groups)
        self.batches += 1
        self.groups += len(batch.prompt_tokens)
        return ids
