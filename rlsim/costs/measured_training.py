"""A trainer's passes by a profile's measured curves.

    seconds = fixed_s + max over data-parallel ranks of the sum over micro-batches of
              micro_batch_s + token_s·tokens + pair_s·pairs            (or knots over tokens in place of the first two)

Samples go to ranks and micro-batches by the framework's rules; ranks that meet in every layer wait for the slowest.
The curve is that of the layout it was measured on: pipeline stages, links and sharding are inside.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

import numpy as np

from rlsim.costs.measured import only_measured, parts_of
from rlsim.costs.training import StepTime, TrainingCosts
from rlsim.costs.training_floor import model_flops
from rlsim.costs.training_packing import Floats, Ints, MicroBatches, micro_batches


@dataclass(frozen=True)
class MeasuredTraining:
    """Passes by `measured.train` and `measured.logprob`; the one that the profile lacks is `modelled`'s."""

    modelled: TrainingCosts

    def update(self, lengths: Ints) -> StepTime:
        """One optimizer update on one mini-batch; `lengths`: prompt + response tokens of each sample."""
        return self._step("train", lengths) if self._has("train") else self.modelled.update(lengths)

    def logprob(self, lengths: Ints, role: str = "actor") -> StepTime:
        """One forward over the whole batch; a reference costs what the actor does."""
        return self._step("logprob", lengths) if self._has("logprob") else self.modelled.logprob(lengths, role)

    def _has(self, role: str) -> bool:
        return role in self.modelled.case.profile.measured

    def _step(self, role: str, lengths: Ints) -> StepTime:
        modelled, lengths = self.modelled, np.asarray(lengths, dtype=np.int64)
        if not len(lengths):
            return StepTime(0.0, {}, only_measured(0.0), 0.0, 0.0, 0)
        batch = micro_batches(lengths, modelled.rules(role == "train"), [None])
        parts = self._parts(role, batch)
        seconds = sum(parts.values())
        return StepTime(
            seconds=seconds,
            parts=parts,
            sources=only_measured(seconds),
            flops=model_flops(modelled.case, lengths, role == "train"),
            floor_seconds=0.0,
            micro_batches=batch.count,
        )

    def _parts(self, role: str, batch: MicroBatches) -> dict[str, float]:
        """Seconds by term along the slowest rank; with coupled ranks, along the slowest of each micro-batch."""
        profile, live = self.modelled.case.profile, batch.tokens > 0
        if role in profile.knots:
            own = {"scale": np.where(live, profile.knots[role](batch.tokens), 0.0)}
        else:
            own = {"micro_batch_s": live.astype(np.float64), "token_s": batch.tokens}
        amounts: dict[str, Floats] = {**own, "pair_s": batch.pairs[None]}
        each = sum(profile.term(role, term) * amount for term, amount in amounts.items())
        coupled = self.modelled.coupled(np.asarray(each)[None])[0]
        slowest = int(np.argmax(coupled.sum(axis=1)))
        whole, alone = float(coupled[slowest].sum()), float(np.asarray(each).sum(axis=1).mean())
        mean = {term: float(amount.sum(axis=1).mean()) for term, amount in amounts.items()}
        stretch = whole / alone if alone > 0 else 1.0
        return parts_of(profile, role, {"fixed_s": 1.0, **{term: n * stretch for term, n in mean.items()}})


Passes: TypeAlias = MeasuredTraining | TrainingCosts


def measured_training(modelled: TrainingCosts) -> Passes:
    """The passes by measured curves, where the profile has any."""
    measured = modelled.case.profile.measured
    return MeasuredTraining(modelled) if measured & {"train", "logprob"} else modelled
