"""Seconds that a simulated step cannot go below, and why.

The trainer is one process, so a step lasts at least what it spends in its own stages. In a plain run (no remedies, no
turns, no faults, no dynamic sampling) batch k holds the samples drawn from the seed's stream k whatever the regime, and
sync and one-step-off train on it whole. So the price of its passes is known exactly before anything is simulated, and
the rollout of a batch depends on the engines and their samples alone. What reward, critic, reference, evaluation,
checkpoints and waiting add is not negative. `SLACK` covers rounding: a rollout that starts later is the same up to
the last digits of its times.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from rlsim.costs.measured_training import Passes
from rlsim.costs.training import TrainingCosts
from rlsim.costs.training_packing import MicroBatches
from rlsim.costs.training_times import KNOTS
from rlsim.sim.surface import Surface

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]
SLACK = 1e-6


@dataclass(frozen=True)
class Drawn:
    """Samples of one batch: int64[prompts] and int64[prompts, group_size]."""

    prompt: Ints
    response: Ints

    @property
    def lengths(self) -> Ints:
        """Prompt and response together, int64[prompts, group_size]."""
        return np.asarray(self.prompt[:, None] + self.response)


def trainer_seconds(training: Passes, batch: Drawn, mini_batches: int, epochs: int, recompute: bool) -> float:
    """Log-prob pass and updates on a whole batch, as the simulated trainer runs them one after the other."""
    parts = np.array_split(batch.lengths, mini_batches)
    seconds = epochs * sum(training.update(part.ravel()).seconds for part in parts)
    return seconds + (training.logprob(batch.lengths.ravel()).seconds if recompute else 0.0)


def trainer_floor(training: TrainingCosts, tokens: float, passes: tuple[int, bool]) -> float:
    """A pass of the trainer over `tokens` tokens, whichever samples they belong to; `passes`: (epochs, log-prob too).

    Of one micro-batch of t tokens, a stage's layers take at least s(t), their seconds without attention over any
    context; s grows with t. So between knots K_i and K_(i+1) s(t)/t is at least s(K_i)/K_(i+1); r is the least of
    these. The busiest stage of some rank takes at least the mean rank's r · tokens / ranks, and the schedule is not
    shorter than a stage's own work.
    """
    layout, epochs, both = training.case.layout, *passes
    knots = KNOTS[None, :]
    zero = {window: np.zeros(knots.shape) for window, _ in training.case.model.windows}
    batch = MicroBatches(knots, zero)

    def rate(train: bool) -> float:
        stages = sum(
            np.outer(training.counts[:, i], (f.sum(axis=0) + b.sum(axis=0))[0])
            for i, (f, b) in enumerate(training.kind_passes(batch, train))
        )
        return float((np.asarray(stages)[:, :-1] / KNOTS[1:]).min(axis=1).max())

    return (epochs * rate(True) + (rate(False) if both else 0.0)) * tokens / layout.dp


def least_tokens(batches: Sequence[Drawn], groups: int) -> float:
    """Tokens of the shortest `groups` groups among all that can have been submitted."""
    sums = np.concatenate([batch.lengths.sum(axis=1) for batch in batches])
    return float(np.sort(sums)[:groups].sum())


def rollout_floor(surface: Surface, engines: int, batch: Drawn) -> float:
    """A rollout of a batch of samples on fresh engines: its longest response alone, or all tokens at the best rate."""
    return max(longest_floor(surface, batch), rate_floor(surface, engines, batch))


def longest_floor(surface: Surface, batch: Drawn) -> float:
    """Iteration times grow with batch and context, so none is quicker than one sequence's at its context.

    Hence the longest response takes at least the sum over its tokens (the first comes with its prefill) of
    row(1, context) + joint(1).
    """
    if not grows(surface):
        return 0.0
    prompt, at = np.broadcast_to(batch.prompt[:, None], batch.response.shape), int(batch.response.argmax())
    contexts = prompt.ravel()[at] + np.arange(1, int(batch.response.ravel()[at]))
    inside = np.interp(contexts, surface.knots, surface.rank_rows[1])
    return float(inside.sum() + surface.joint[1] * len(contexts))


def rate_floor(surface: Surface, engines: int, batch: Drawn) -> float:
    """All tokens at the rate of full engines with contexts no longer than the shortest prompt.

    With n sequences an engine makes n tokens in an iteration of at least row(⌈n/ranks⌉, prompt) + joint(n).
    """
    if not grows(surface):
        return 0.0
    n = np.arange(1, len(surface.joint))
    least = float(batch.prompt.min())
    rows = np.array([np.interp(least, surface.knots, values) for values in surface.rank_rows])
    per_token = float(((rows[-(-n // surface.ranks)] + surface.joint[n]) / n).min())
    return float((batch.response - 1).clip(min=0).sum()) * per_token / engines


def grows(surface: Surface) -> bool:
    """Whether iteration times grow with batch and context; speculative decoding may bend them."""
    rows, joint = surface.rank_rows, surface.joint
    return bool(
        (np.diff(rows, axis=0) >= 0).all() and (np.diff(rows, axis=1) >= 0).all() and (np.diff(joint) >= 0).all()
    )


@dataclass(frozen=True)
class Parts:
    """What a candidate's step is made of, each no more than in the simulation. Seconds; one entry a batch drawn.

    train    controller, log-probs, updates on batch k
    rollout  rollout of batch k
    once     weight sync, offload and onload: once a step
    reward   seconds that the first batch's rewards take at most after its last token
    """

    train: Floats
    rollout: Floats
    once: float
    reward: float = np.inf


def step_bound(schedule: str, steps: int, parts: Parts) -> float:
    """Mean step time of `steps` measured steps.

    sync            rollout k, then training k, and what is paid once: the sum.
    async           the trainer's own work (`train` holds it), and what is paid once.
    one-step-off    X_k: start of sync k, E_k: end of training k. E_k ≥ X_k + s + train_k, and since rollout k+1 begins
                    after sync k, X_(k+1) ≥ X_k + s + max(train_k, rollout_(k+1)). One step is warm-up: the others take
                    E_n - E_0 ≥ [X_1 - E_0] + Σ_(k=1..n-1) (s + max(train_k, rollout_(k+1))) + s + train_n. Neither
                    rollout 1 nor training 0 waits for a sync, so X_1 - E_0 ≥ rollout_1 - train_0 - w, with w the wait
                    for batch 0's last reward.
    """
    t, r, s = parts.train, parts.rollout, parts.once
    if schedule == "sync":
        total = float((t[:steps] + r[:steps]).sum()) + steps * s
    elif schedule == "async":
        total = float(t[:steps].sum()) + steps * s
    else:
        lead = max(0.0, float(r[1] - t[0]) - parts.reward) if np.isfinite(parts.reward) else 0.0
        total = lead + float(np.maximum(t[1:steps], r[2 : steps + 1]).sum()) + steps * s + float(t[steps])
    return total / steps * (1 - SLACK)
