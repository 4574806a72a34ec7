"""AReaL: a bound on what has been accepted and what runs, in batches ahead of the version."""

from __future__ import annotations

import math

import numpy as np

from rlsim.sim.policies.base import Bools, Ints, Policy, Stand
from rlsim.sim.settings import Settings


class Areal(Policy):
    """accepted + running ≤ (η + v + 1)·B, and running ≤ max_concurrent.

    B is what one version trains on (prompts · sync_every). Groups are taken in the order of their submission. Beyond
    what v versions consumed at most (η + 1)·B are under way, so a group that nobody overtakes is at most η late; one
    that many overtook is trained all the same, unless `overtaken` drops it.
    Source: areal/infra/staleness_manager.py.
    """

    def __init__(self, settings: Settings) -> None:
        self.per_version = settings.prompts * settings.sync_every
        self.ahead = math.floor(settings.max_staleness * self.per_version + 1e-9)
        self.limit = settings.max_concurrent
        self.oldest = math.ceil(settings.max_staleness)
        self.reacts = self.limit is not None
        self.drops = settings.overtaken == "drop"

    def room(self, stand: Stand) -> int:
        room = (stand.version + 1) * self.per_version + self.ahead - stand.accepted - stand.running
        return room if self.limit is None else min(room, self.limit - stand.running)

    def too_old(self, groups: list[int], begun: Ints, version: int) -> Bools:
        return np.asarray(version - begun > self.oldest)
