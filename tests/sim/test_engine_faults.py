"""Faults of rollout engines on paper: two engines, an iteration takes 0.01 s whatever runs."""

from __future__ import annotations

from dataclasses import replace

import pytest
from prices_by_hand import Hand, Sync, Training, fixed, regime

from rlsim.result import Labels, Result, simulate
from rlsim.sim.faults import ENGINE_CRASH, ROLLOUT, SLOW_NODE, TRAINER_CRASH, Fault

HAND = Hand(training=Training(update_seconds=2.0), sync=Sync(seconds=1.0))
EACH = ((0,), (1,))


def run(hand: Hand, schedule: str = "sync", steps: int = 3, tokens: int = 400, **more: object) -> Result:
    rules = regime(schedule, logprob="rollout", **more)  # type: ignore[arg-type]
    return simulate(rules, hand.costs(), fixed(tokens, rules.prompts, rules.group_size), Labels("f", "v", 0), steps)


def crash(at: float, duration: float, engine: int = 0) -> Fault:
    return Fault(ENGINE_CRASH, ROLLOUT, at=at, places=2, where=engine, duration=duration, engines=EACH)


def test_the_samples_of_a_crashed_engine_start_again_elsewhere() -> None:
    # Sync to 1 s, rollout of 400 iterations to 5 s. Engine 0 dies at 3 s with 4 samples of 200 tokens: they run on
    # engine 1 from 3 to 7 s. Later steps have both engines and take 1 + 4 + 2 s.
    summary = (result := run(replace(HAND, faults=(crash(3.0, 2.0),)))).summary()
    assert result.steps["step_time"].tolist() == pytest.approx([9.0, 7.0, 7.0], abs=0.03)
    assert summary["samples"]["aborted"] == 4
    assert summary["tokens"]["wasted"] == pytest.approx(800, abs=8)
    assert summary["tokens"]["generated"] == 3 * 3200 + summary["tokens"]["wasted"]
    assert summary["samples"]["trained"] == 24
    down = result.spans[result.spans["name"] == "down"]
    assert down[["start", "end"]].to_numpy().tolist() == [[3.0, 5.0]]


def test_the_router_avoids_an_engine_that_is_down() -> None:
    # Down from 0.5 to 100: everything runs on engine 1, at the same pace here; nothing is lost.
    summary = run(replace(HAND, faults=(crash(0.5, 100.0),))).summary()
    assert summary["tokens"]["wasted"] == 0
    assert summary["utilization"]["rollout"] == pytest.approx(0.5 * 4 / 7, abs=0.01)


def test_samples_wait_while_every_engine_is_down() -> None:
    # Both die at 2 s; engine 1 is back at 10: the rollout begins again there and ends at 14.
    faults = (crash(2.0, 30.0), crash(2.0, 8.0, 1))
    result = run(replace(HAND, faults=faults))
    assert result.steps["step_time"].iloc[0] == pytest.approx(14 + 2, abs=0.03)
    assert result.summary()["samples"]["aborted"] == 8
    assert result.steps["pool_idle"].iloc[0] == pytest.approx(8.0, abs=0.03)


@pytest.mark.parametrize("schedule", ["sync", "one-step-off", "async"])
def test_a_slow_engine_holds_up_the_rollout(schedule: str) -> None:
    # From 0 to 1000 s engine 0 takes twice as long: its 400 iterations take 8 s instead of 4.
    slow = Fault(SLOW_NODE, ROLLOUT, at=0.0, places=2, duration=1000.0, factor=2.0, engines=EACH)
    before = run(HAND, schedule, on_sync="in-flight").summary()["step_time_s"]["mean"]
    after = run(replace(HAND, faults=(slow,)), schedule, on_sync="in-flight").summary()["step_time_s"]["mean"]
    assert after - before == pytest.approx(4.0, abs=0.5) if schedule == "sync" else after > before


def test_a_slow_engine_recovers() -> None:
    # Slow from 2 to 4 s of a rollout from 1 to 5: 100 iterations in these 2 s instead of 200; engine 0 ends at 6.
    slow = Fault(SLOW_NODE, ROLLOUT, at=2.0, places=2, duration=2.0, factor=2.0, engines=EACH)
    assert run(replace(HAND, faults=(slow,))).steps["step_time"].tolist() == pytest.approx([8.0, 7.0, 7.0], abs=0.06)


def test_a_shared_job_loses_its_rollout_with_the_trainer() -> None:
    # Co-located, crash at 3 s of a rollout from 1 to 5; 10 s later the rollout begins again: 13 to 17, the update to
    # 19.
    fault = Fault(TRAINER_CRASH, "trainer", at=3.0, places=1, duration=10.0, engines=((0, 1),))
    result = run(replace(HAND, faults=(fault,)), colocated=True)
    summary = result.summary()
    assert result.steps["step_time"].tolist() == pytest.approx([19.0, 7.0, 7.0], abs=0.03)
    assert summary["other_s"]["lost"] * 3 == pytest.approx(2.0)
    assert summary["other_s"]["restart"] * 3 == pytest.approx(10.0)
    assert summary["samples"]["aborted"] == 8
    assert summary["goodput"] == pytest.approx(21 / 33, abs=0.002)


@pytest.mark.parametrize("mode", ["drain", "abort", "interrupt", "in-flight"])
def test_every_way_of_syncing_survives_crashes(mode: str) -> None:
    faults = tuple(crash(9.1 * i, 1.5 + i % 3, i % 2) for i in range(1, 9))
    summary = run(replace(HAND, faults=faults), "async", steps=6, max_staleness=2, on_sync=mode).summary()
    assert summary["samples"]["trained"] == 48
    assert summary["samples"]["aborted"] > 0
