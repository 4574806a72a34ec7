"""Several turns of a sample with an environment between them: what each batch is to do, drawn beforehand.

A turn generates tokens, then the environment works on them and answers with tokens. Failures and time-outs are drawn
with the plan, so that every regime meets the same ones: only when a worker is free depends on the run.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from rlsim.scenario.schema_workload import Turns, Workload
from rlsim.workload import Batch, Ints, LengthModel, length_model, seconds_model

Floats = NDArray[np.float64]
Bools = NDArray[np.bool_]


@dataclass(frozen=True, eq=False)
class TurnPlans:
    """Turns of n samples one after another: sample i has those from first[i] to first[i + 1].

    generated, observed  int64[turns], tokens of the turn and of the answer to it (0 after the last)
    waits                float64[turns], seconds at the environment with all tries (0 after a last turn that succeeds)
    lost                 bool[n], the environment failed for good and the sample is given up
    """

    first: Ints
    generated: Ints
    observed: Ints
    waits: Floats
    lost: Bools

    def of(self, sample: int) -> list[tuple[int, int, float]]:
        """The turns of one sample: tokens generated, tokens of the answer, seconds of the environment."""
        part = slice(int(self.first[sample]), int(self.first[sample + 1]))
        columns = (column[part].tolist() for column in (self.generated, self.observed, self.waits))
        return list(zip(*columns, strict=True))

    @property
    def generated_tokens(self) -> Ints:
        """int64[n]."""
        return np.add.reduceat(self.generated, self.first[:-1])

    @property
    def response_tokens(self) -> Ints:
        """What the trainer trains on beside the prompt, answers included: int64[n]."""
        return self.generated_tokens + np.add.reduceat(self.observed, self.first[:-1])


@dataclass(frozen=True, eq=False)
class TurnModel:
    """Distributions of a block `turns`; `cap`: most tokens of all turns and answers together."""

    turns: Turns
    count: LengthModel
    tokens: LengthModel
    observation: LengthModel | None
    cap: int

    def with_turns(self, batch: Batch, rng: np.random.Generator, limit: int | None, factor: float) -> Batch:
        """The batch with a plan for each of its samples, its responses being what that comes to."""
        groups, size = batch.response_tokens.shape
        room = np.full(groups * size, self.cap)
        if limit is not None:
            room = np.minimum(room, np.repeat(np.maximum(limit - batch.prompt_tokens, 1), size))
        counts = None if batch.turns is None else batch.turns.ravel()
        waits = None if batch.environment_seconds is None else batch.environment_seconds.ravel()
        plan = self.draw(rng, room, factor, counts, waits)
        return replace(batch, response_tokens=plan.response_tokens.reshape(groups, size), plan=plan)

    def draw(
        self,
        rng: np.random.Generator,
        room: Ints,
        factor: float = 1.0,
        counts: Ints | None = None,
        seconds: Floats | None = None,
    ) -> TurnPlans:
        """Plans of len(room) samples; `room` int64[n]: tokens that prompt and limits leave to each.

        `factor` lengthens the turns (drift); `counts` are the samples' turns where a trace has them; `seconds`
        float64[n] their time at the environment in all, spread evenly where the block gives no `wait`. A turn that
        meets the limit ends the sample there; an answer that leaves no room for one more token does too.
        """
        n = len(room)
        if counts is None:
            counts = self.count.sample(rng, n, 1, 0.0)[:, 0]
        first = np.concatenate([[0], np.cumsum(counts)])
        total = int(first[-1])
        generated = np.maximum(1, np.rint(self.tokens.sample(rng, total, 1, 0.0)[:, 0] * factor)).astype(np.int64)
        observed = np.zeros(total, np.int64)
        if self.observation is not None:
            observed = self.observation.sample(rng, total, 1, 0.0)[:, 0]
        waits, failed = self._waits(rng, total)
        if seconds is not None and self.turns.wait is None:
            waits = np.repeat(seconds / np.maximum(counts - 1, 1), counts)
        return _cut(first, generated, observed, waits, failed, np.minimum(room, self.cap), self.turns.on_failure)

    def _waits(self, rng: np.random.Generator, n: int) -> tuple[Floats, Bools]:
        """float64[n] seconds with all tries, bool[n] whether the last of them failed too.

        A try takes min(drawn, time-out) and fails by time-out or with `failure_rate`.
        """
        turns = self.turns
        waits, pending = np.zeros(n), np.arange(n)
        model = seconds_model(turns.wait) if turns.wait is not None else None
        for _ in range(turns.retries + 1):
            drawn = model.sample(rng, len(pending)) if model is not None else np.zeros(len(pending))
            limit = turns.timeout if turns.timeout is not None else np.inf
            waits[pending] += np.minimum(drawn, limit)
            fails = drawn > limit
            if turns.failure_rate:
                fails |= rng.random(len(pending)) < turns.failure_rate
            pending = pending[fails]
            if not len(pending):
                break
        failed = np.zeros(n, np.bool_)
        failed[pending] = True
        return waits, failed


def turn_model(workload: Workload) -> TurnModel | None:
    """The distributions of a workload with turns; None without. The cap is that of `response_tokens`."""
    turns = workload.turns
    if turns is None:
        return None
    answer = turns.observation_tokens
    return TurnModel(
        turns,
        length_model(turns.count, None, "turns.count"),
        length_model(turns.tokens, None, "turns.tokens"),
        None if answer is None else length_model(answer, None, "turns.observation_tokens"),
        length_model(workload.response_tokens).max,
    )


SAMPLES = 8192
"""Samples that stand for the distribution of a sample's tokens over all its turns."""


def total_tokens(model: TurnModel) -> LengthModel:
    """Tokens of all turns and answers of a sample, as a distribution of observed values."""
    plan = model.draw(np.random.default_rng(0), np.full(SAMPLES, model.cap))
    values = np.sort(plan.response_tokens).astype(np.float64)
    return LengthModel(np.empty(0), values, 1.0, float(model.cap))


def _cut(
    first: Ints, generated: Ints, observed: Ints, waits: Floats, failed: Bools, room: Ints, on_failure: str
) -> TurnPlans:
    """Every sample up to the turn at which its room, its turns or its environment's tries end."""
    n = len(room)
    sample = np.repeat(np.arange(n), np.diff(first))
    nth = np.arange(len(sample)) - first[sample]
    last = nth == np.diff(first)[sample] - 1
    before = np.cumsum(generated + observed) - (generated + observed)
    before = before - before[first[sample]]  # tokens of the sample before this turn
    generated = np.minimum(generated, np.maximum(room[sample] - before, 0))
    full = before + generated + observed >= room[sample]  # no token would fit after the answer
    ends = last | full | failed
    # a turn is kept if none before it in the sample ends it
    ended = np.cumsum(ends) - ends
    kept = (ended - ended[first[sample]] == 0) & (generated > 0)
    final = kept & ends
    observed = np.where(ends, 0, observed)
    waits = np.where(ends & ~(failed & ~last & ~full), 0.0, waits)
    lost = np.zeros(n, np.bool_)
    if on_failure == "drop":
        lost[sample[final & failed & ~last & ~full]] = True
    lengths = np.bincount(sample[kept], minlength=n)
    return TurnPlans(np.concatenate([[0], np.cumsum(lengths)]), generated[kept], observed[kept], waits[kept], lost)
