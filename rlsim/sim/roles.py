"""Models on GPUs of their own: they work beside the trainer, which waits only for what is not there yet."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from rlsim.sim.ledger import Ints, Ledger
from rlsim.sim.prices import Critic, Replicas, StepTime
from rlsim.sim.recorder import Recorder
from rlsim.sim.reward import RewardPool


class OwnCritic:
    """A critic with GPUs of its own: values from the beginning of the trainer's step, then its updates.

    State: when its GPUs are free again.
    """

    def __init__(self, critic: Critic, recorder: Recorder) -> None:
        self.gpus = critic.gpus
        self.recorder = recorder
        self.free = 0.0

    def run(self, now: float, values: StepTime, updates: Sequence[StepTime]) -> tuple[float, float]:
        """(when the values are there, when the last update is done)."""
        begun = max(now, self.free)
        there = begun + values.seconds
        self.free = there + sum(update.seconds for update in updates)
        self.recorder.span("logprob", "critic", begun, there)
        self.recorder.span("train", "critic", there, self.free)
        self.recorder.beside("critic", (self.free - begun) * self.gpus)
        return there, self.free


class OwnReference:
    """A reference model with GPUs of its own: its replicas take samples as they finish.

    A step's samples are served in the order of their ends. State: when each replica is free again.
    """

    def __init__(self, replicas: Replicas, recorder: Recorder) -> None:
        self.replicas = replicas
        self.recorder = recorder
        self.pool = RewardPool(replicas.workers)
        self._drawn = 0.0

    def there(self, ledger: Ledger, ids: Ints) -> float:
        """When the log-probs of all these samples are there."""
        rows = ids.ravel()[np.argsort(ledger["end"][ids].ravel(), kind="stable")]
        seconds = self.replicas.seconds(ledger["prompt"][rows] + ledger["response"][rows])
        done = self.pool.score(ledger["end"][rows], seconds)
        last = float(done.max())
        self.recorder.span("reference", "reference", max(self._drawn, float((done - seconds).min())), last)
        self._drawn = max(self._drawn, last)
        self.recorder.beside("reference", float(seconds.sum()) * self.replicas.gpus / self.replicas.workers)
        return last
