"""OpenRLHF: batch after batch through a queue with slot tokens."""

from __future__ import annotations

from rlsim.sim.policies.base import Policy, Stand
from rlsim.sim.settings import Settings


class OpenRlhf(Policy):
    """A batch needs a slot of the queue before it begins; the trainer gives it back when it takes the batch.

    One batch is generated at a time. At most `queue` batches are begun and not taken, so a sample is at most `queue`
    versions late. A rejected group is replaced by one new prompt.
    Source: openrlhf/trainer/ppo_trainer_async.py.
    """

    reacts = True

    def __init__(self, settings: Settings) -> None:
        self.prompts = settings.prompts
        self.slots = settings.queue or 1
        self.begun = 0

    def room(self, stand: Stand) -> int:
        """Places of the batch under way; or a new batch, if none is and a slot is free."""
        missing = self.begun * self.prompts - stand.accepted - stand.running
        if missing or stand.running:
            return missing
        return self.prompts if self.begun - stand.taken // self.prompts < self.slots else 0

    def admitted(self, groups: range, stand: Stand) -> None:
        self.begun = -(-(stand.accepted + stand.running) // self.prompts)
