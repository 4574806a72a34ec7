"""Checkpoints and evaluation passes on paper: steps of 4 s (1 s of rollout, 2 s of update, 1 s of sync)."""

from __future__ import annotations

from dataclasses import replace

import pytest
from prices_by_hand import Checkpoint, Hand, Sync, Training, fixed, regime

from rlsim.result import Labels, Result, simulate
from rlsim.sim.evaluation import Evaluation
from rlsim.sim.faults import TRAINER_CRASH, Fault
from rlsim.sim.settings import Settings

HAND = Hand(training=Training(update_seconds=2.0), sync=Sync(seconds=1.0))
SYNC = regime(logprob="rollout")


def run(rules: Settings, hand: Hand = HAND, steps: int = 6) -> Result:
    return simulate(rules, hand.costs(), fixed(100, rules.prompts, rules.group_size), Labels("c", "v", 0), steps)


def test_a_synchronous_save_holds_the_trainer_up() -> None:
    # Every second step saves for 3 s: (4 + 7) / 2 = 5.5 s a step, 1.5 s of it the save; goodput 4 / 5.5.
    summary = run(replace(SYNC, checkpoint_every=2), replace(HAND, checkpoint=Checkpoint(3.0))).summary()
    assert summary["step_time_s"]["mean"] == pytest.approx(5.5)
    assert summary["other_s"]["checkpoint"] == pytest.approx(1.5)
    assert summary["goodput"] == pytest.approx(4 / 5.5)


def test_an_asynchronous_save_waits_for_the_one_before() -> None:
    # 0.5 s of copy; the write takes 10 s: saves after steps 2, 4, 6 at 8, 16.5, 27: the second begins 8 s after the
    # first went on and waits 2 s, and so does the third.
    hand = replace(HAND, checkpoint=Checkpoint(0.5, 10.0, "async"))
    spans = run(replace(SYNC, checkpoint_every=2), hand).spans
    saves = spans[spans["name"] == "checkpoint"]
    assert (saves["end"] - saves["start"]).tolist() == pytest.approx([0.5, 2.5, 2.5])


def test_rollout_goes_on_during_a_save_unless_the_framework_pauses_it() -> None:
    rules = regime("async", max_staleness=2, on_sync="in-flight", logprob="rollout", checkpoint_every=1)
    hand = replace(HAND, checkpoint=Checkpoint(2.0))
    free = run(rules, hand).summary()["rollout_pool_s"]
    paused = run(replace(rules, save_pauses_rollout=True), hand).summary()["rollout_pool_s"]
    assert paused["wait_trainer"] >= free["wait_trainer"]
    assert paused["generate"] <= free["generate"]


@pytest.mark.parametrize("schedule", ["sync", "one-step-off", "async"])
def test_evaluation_has_tokens_of_its_own(schedule: str) -> None:
    plain = regime(schedule, max_staleness=1, logprob="rollout")
    summary = run(replace(plain, evaluation=Evaluation(2, 16, 2))).summary()
    # 32 samples of 100 tokens; 2 engines of 64 slots take 1 s for them. It comes with the weights of steps 2, 4 (and
    # of 6, 8 where two or one warm-up steps come first).
    assert summary["tokens"]["evaluated"] % 3200 == 0
    passes = summary["tokens"]["evaluated"] / 3200
    assert passes in (2, 3)
    assert summary["other_s"]["evaluation"] == pytest.approx(passes / 6)
    assert summary["tokens"]["wasted"] == 0
    assert summary["tokens"]["generated"] == pytest.approx(run(plain).summary()["tokens"]["generated"], rel=0.35)
    assert summary["goodput"] == 1.0


def test_a_trainer_may_go_on_beside_an_evaluation() -> None:
    rules = regime("async", max_staleness=2, logprob="rollout", evaluation=Evaluation(1, 64, 4))
    waits = run(rules).summary()
    beside = run(replace(rules, evaluation=Evaluation(1, 64, 4, beside=True))).summary()
    assert beside["step_time_s"]["mean"] < waits["step_time_s"]["mean"]


def crash(at: float, duration: float = 5.0) -> tuple[Fault, ...]:
    return (Fault(TRAINER_CRASH, "trainer", at=at, duration=duration),)


def test_a_crash_during_the_update_goes_back_to_the_checkpoint() -> None:
    # A save of 1 s after steps 2 and 4: steps end at 4, 9, 13, 18, 22, 26 ... The crash at 21.5 is in the update of
    # step 5: 3.5 s are lost, 5 s restart; the step is done again from 26.5 to 30.5.
    hand = replace(HAND, checkpoint=Checkpoint(1.0), faults=crash(21.5))
    result = run(replace(SYNC, checkpoint_every=2), hand)
    assert result.steps["end"].tolist() == pytest.approx([4, 9, 13, 18, 30.5, 35.5])
    summary = result.summary()
    assert summary["other_s"]["lost"] * 6 == pytest.approx(3.5)
    assert summary["other_s"]["restart"] * 6 == pytest.approx(5.0)
    assert summary["goodput"] == pytest.approx(1 - (3.5 + 5 + 3) / 35.5)
    assert summary["samples"]["dropped"] == {"crash": 8}
    assert summary["tokens"]["wasted"] == 800
    assert summary["samples"]["trained"] == 48


def test_without_a_checkpoint_a_crash_begins_again() -> None:
    # 3 steps (12 s) and 3.5 s of the fourth are lost, 5 s restart: the first step ends at 24.5.
    result = run(SYNC, replace(HAND, faults=crash(15.5)))
    assert result.steps["end"].tolist() == pytest.approx([24.5 + 4 * i for i in range(6)])
    assert result.summary()["samples"]["dropped"] == {"crash": 32}


def test_a_crash_while_the_trainer_waits_keeps_the_batch() -> None:
    # Crash at 13.5, in the rollout (13 to 14) of step 4; the restart lasts to 18.5, 4.5 s longer than the wait. Steps
    # 1-3 are lost; the batch is trained from 18.5 to 20.5.
    result = run(SYNC, replace(HAND, faults=crash(13.5)))
    assert result.steps["end"].tolist() == pytest.approx([20.5 + 4 * i for i in range(6)])
    assert result.summary()["other_s"]["restart"] * 6 == pytest.approx(4.5)
    assert result.summary()["samples"]["dropped"] == {"crash": 24}


def test_an_asynchronous_checkpoint_counts_when_it_is_written() -> None:
    # Saved after step 4 (at 16.5), written at 26.5: a crash at 23 goes back to the start, one at 27 to step 4.
    hand = replace(HAND, checkpoint=Checkpoint(0.5, 10.0, "async"))
    rules = replace(SYNC, checkpoint_every=4)
    # Steps 5 to 7 begin at 16.5, 20.5, 24.5: the first loses steps 1-5 and the update of 6, the second 5, 6 and that
    # of 7.
    early = run(rules, replace(hand, faults=crash(23.0)), 8).summary()
    late = run(rules, replace(hand, faults=crash(27.0)), 8).summary()
    assert early["samples"]["dropped"] == {"crash": 6 * 8}
    assert late["samples"]["dropped"] == {"crash": 3 * 8}
    assert late["other_s"]["lost"] * 8 == pytest.approx(27 - 16.5)
