"""Over-sampling and dynamic sampling in batch regimes against times and tokens added up on paper."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import count
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from prices_by_hand import Hand, Reward, Sync, Training, regime

from rlsim.result import Labels, Result, simulate
from rlsim.sim.remedies import Remedies

LABELS = Labels("by-hand", "v", 0)
HAND = Hand(engines=1, training=Training(update_seconds=3.0), sync=Sync(seconds=0.5))


def groups(*batches: Sequence[int]) -> Any:
    """Batch k has groups of these response lengths; the last batch comes again and again. For one run."""
    number = count()

    def draw(rng: np.random.Generator, step: int) -> Any:
        rows = np.array(batches[min(next(number), len(batches) - 1)], np.int64)
        return SimpleNamespace(prompt_tokens=np.full(len(rows), 16, np.int64), response_tokens=rows[:, None])

    return draw


class FirstTeachesNothing:
    """A pass rate by hand: all groups but the first of every batch carry a gradient, or all but the very first."""

    def __init__(self, always: bool = False) -> None:
        self.always = always
        self.drawn = 0

    def informative(self, rng: np.random.Generator, groups: int, size: int) -> Any:
        first = self.always or not self.drawn
        self.drawn += groups
        return np.arange(groups) >= (1 if first else 0)


def run(
    remedies: Remedies, draw: Any, schedule: str = "sync", steps: int = 1, hand: Hand = HAND, pass_rate: Any = None
) -> Result:
    rules = regime(schedule, prompts=2, group_size=1, remedies=remedies, logprob="rollout", pass_rate=pass_rate)
    return simulate(rules, hand.costs(), draw, LABELS, steps)


def phases(result: Result) -> list[float]:
    return result.steps["rollout"].tolist()


def test_over_sampling_ends_with_the_last_group_needed() -> None:
    # 3 of 2 start; 100, 300, 200 tokens at 10 ms: the second is there after 200 iterations, the rest is stopped.
    result = run(Remedies(ratio=1.5), groups([100, 300], [200, 100]), steps=1)
    summary = result.summary()
    assert phases(result) == pytest.approx([2.0])
    assert summary["samples"] == {"trained": 2, "dropped": {"aborted": 1}, "aborted": 1, "in_flight": 1}
    assert summary["tokens"]["wasted"] == 200
    assert summary["tokens"]["generated"] == 100 + 200 + 200
    assert result.samples["fate"].tolist() == ["trained", "aborted", "trained", "in_flight"]


def test_kept_groups_go_on_in_the_next_step() -> None:
    # Step 1: as above; the group of 300 keeps its 200 tokens. Step 2: it needs 100 more and starts with 100 and 400:
    # after the re-prefill (which gives a token, like every prefill) both short ones are there after 100 iterations.
    rules = Remedies(ratio=1.5, unfinished="keep")
    (one,) = run(rules, groups([100, 300], [200, 100], [400, 50])).runs  # two steps of warm-up more
    ledger, first, second = one.ledger, *one.history[:2]
    assert [first.phases["rollout"], second.phases["rollout"]] == pytest.approx([2.0, 1.0])
    assert (first.aborted, first.wasted, first.dropped) == (0, 0, {})
    assert second.counts.reprefilled == 16 + 200
    assert ledger["step"][[1, 3]].tolist() == [1, 1]
    assert ledger["begin_version"][[1, 3]].tolist() == [1, 2]
    assert ledger["train_version"][[1, 3]].tolist() == [2, 2]
    assert ledger["spans"][[1, 3]].tolist() == [2, 1]


def test_tail_batches_begin_again_once_they_fill_a_step() -> None:
    # Steps 1 and 2 give up 300 and 500; step 3 runs only them, from the beginning, to the end of the longer.
    rules = Remedies(ratio=1.5, unfinished="tail-batch")
    result = run(rules, groups([100, 300], [200, 100], [150, 500], [10, 10]), steps=4)
    assert phases(result) == pytest.approx([2.0, 1.5, 5.0, 0.1])
    samples, summary = result.samples, result.summary()
    assert samples.loc[samples["step"] == 2, "response_tokens"].tolist() == [300, 500]
    assert summary["staleness"]["max"] == 0
    assert summary["tokens"]["wasted"] == 200 + 150 + 10  # and one of the three of ten tokens is dropped at the end
    assert summary["samples"]["dropped"] == {}


@pytest.mark.parametrize("schedule", ["sync", "one-step-off"])
def test_lengths_drift_with_the_step_not_with_the_batch(schedule: str) -> None:
    steps: list[int] = []
    batch = groups([100, 300])

    def draw(rng: np.random.Generator, step: int) -> Any:
        steps.append(step)
        return batch(rng, step)

    run(Remedies(ratio=2.0), draw, schedule, steps=2)
    assert steps == [0, 0, 1, 1, 2, 2, 3, 3][: 4 if schedule == "sync" else 8]


def test_what_is_done_at_the_end_but_not_scored_is_stopped_too() -> None:
    # Rewards of 0.5 s: the needed groups of 100 and 100 are scored at 1.5 s, that of 120 (done at 1.2 s) is not.
    result = run(Remedies(ratio=1.5), groups([100, 100], [120, 100]), hand=Hand(engines=1, reward=Reward(0.5)))
    assert result.summary()["phases_s"]["rollout"] == pytest.approx(1.0)
    assert result.summary()["phases_s"]["reward"] == pytest.approx(0.5)
    assert result.summary()["tokens"]["wasted"] == 120


@pytest.mark.parametrize(
    ("refill", "seconds", "trained", "lost"),
    [
        # 100 (rejected at 1 s) and 400: one for one, 200 more tokens until 3 s; 400 ends at 4 s.
        ("replace", 4.0, [1, 2], {"zero_variance": 1}),
        # As many as fit beside what runs, here one: the same.
        ("double", 4.0, [1, 2], {"zero_variance": 1}),
        # The batch ends at 4 s; the next batch (200, 50) at 6 s; of three good groups the last prompt is cut.
        ("batch", 6.0, [1, 2], {"zero_variance": 1, "surplus": 1}),
        # One fetch of two at 1 s: 50 is there at 1.5 s, 200 at 3 s, which is enough: 400 is stopped.
        ("fetch", 3.0, [2, 3], {"zero_variance": 1, "aborted": 1}),
    ],
)
def test_refill_rules(refill: str, seconds: float, trained: list[int], lost: dict[str, int]) -> None:
    result = run(Remedies(refill=refill), groups([100, 400], [200, 50]), pass_rate=FirstTeachesNothing())
    samples, summary = result.samples, result.summary()
    assert phases(result) == pytest.approx([seconds])
    assert samples.index[samples["fate"] == "trained"].tolist() == trained
    assert summary["samples"]["dropped"] == lost
    wasted = 100 + (50 if refill == "batch" else 300 if refill == "fetch" else 0)
    assert summary["tokens"]["wasted"] == wasted
