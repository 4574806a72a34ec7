"""Staleness policies against their frameworks' rules, counted group by group at every admission."""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import settings as examples
from hypothesis import strategies as st
from prices_by_hand import Hand, Reward, Sync, Training, fixed, regime, surface, uniform

from rlsim.sim import asynchronous
from rlsim.sim.policies import POLICIES, Policy, Stand
from rlsim.sim.run import Run, play
from rlsim.sim.settings import Settings

HAND = Hand(training=Training(update_seconds=3.0), sync=Sync(seconds=0.5), reward=Reward(0.3, workers=3))
STEPS = 8


class Witness(Policy):
    """Passes everything on to the policy and keeps its own books, by group."""

    def __init__(self, policy: Policy, rules: Settings) -> None:
        self.policy, self.rules = policy, rules
        self.reacts, self.drops = policy.reacts, policy.drops
        self.running: set[int] = set()
        self.ready: set[int] = set()
        self.gone: set[int] = set()  # given up
        self.begun: dict[int, int] = {}  # group -> version of its submission
        self.version = 0
        self.waiting = 0  # groups that the trainer waits for
        self.counter = 0  # submitted since the last sync and carried over it
        self.batches: list[list[int]] = []  # what the trainer took, and under which version
        self.versions: list[int] = []

    @property
    def kept(self) -> int:
        """Accepted + running."""
        return len(self.begun) - len(self.gone)

    def room(self, stand: Stand) -> int:
        return self.policy.room(stand)

    def admitted(self, groups: range, stand: Stand) -> None:
        assert not self.begun.keys() & set(groups)
        self.waiting = stand.wanted
        CHECKS[self.rules.policy](self, groups)
        self.policy.admitted(groups, stand)
        self.running |= set(groups)
        self.begun |= dict.fromkeys(groups, self.version)
        self.counter += len(groups)
        AFTER[self.rules.policy](self)

    def accepted(self, group: int, stand: Stand) -> tuple[int, ...]:
        self.running.remove(group)
        self.ready.add(group)
        return self.policy.accepted(group, stand)

    def lost(self, group: int, ready: bool) -> None:
        (self.ready if ready else self.running).remove(group)
        self.gone.add(group)
        self.counter -= 1
        self.policy.lost(group, ready)

    def enough(self, wanted: int, stand: Stand) -> bool:
        assert (stand.running, stand.ready, stand.version) == (len(self.running), len(self.ready), self.version)
        return self.policy.enough(wanted, stand)

    def taken(self, groups: list[int]) -> None:
        self.ready -= set(groups)
        self.batches.append(groups)
        self.versions.append(self.version)
        self.policy.taken(groups)

    def published(self, stand: Stand) -> None:
        self.version += 1
        self.counter = len(self.running) + len(self.ready)
        self.policy.published(stand)

    def too_old(self, groups, begun, version):  # type: ignore[no-untyped-def]
        return self.policy.too_old(groups, begun, version)


# --- the rules, before and after an admission ----------------------------------------------------------------


def nothing(w: Witness, *_: object) -> None:
    pass


def areal(w: Witness) -> None:
    per_version = w.rules.prompts * w.rules.sync_every
    assert w.kept <= (w.rules.max_staleness + w.version + 1) * per_version + 1e-9
    assert len(w.running) <= (w.rules.max_concurrent or math.inf)


def verl_most(w: Witness) -> int:
    return math.floor(w.rules.round_prompts * (1 + w.rules.theta) * w.rules.sync_every + 1e-9)


def verl(w: Witness) -> None:
    assert w.counter <= verl_most(w)
    assert len(w.running) <= min(w.rules.max_concurrent or math.inf, verl_most(w))
    # The counter was reset to what was left over: AReaL's bound for η = θ.
    assert w.kept <= (w.rules.theta + w.version + 1) * w.rules.round_prompts * w.rules.sync_every + 1e-9


def nemo(w: Witness) -> None:
    """Batch k is reserved under version max(0, k - A), whole."""
    for group, version in w.begun.items():
        assert version == max(0, group // w.rules.prompts - int(w.rules.max_staleness))
    assert len(w.begun) % w.rules.prompts == 0


def slime_before(w: Witness, groups: range) -> None:
    assert len(w.ready) - w.waiting < (w.rules.max_concurrent or 0)


def slime(w: Witness) -> None:
    assert len(w.running) <= (w.rules.max_concurrent or 0)


def openrlhf_before(w: Witness, groups: range) -> None:
    """A batch begins when the one before is complete; a replacement of a rejected group is not a batch."""
    assert not w.running or len(groups) < w.rules.prompts or w.rules.prompts == 1


def openrlhf(w: Witness) -> None:
    assert len(w.running) + len(w.ready) <= (w.rules.queue or 1) * w.rules.prompts


def trl(w: Witness) -> None:
    assert len(w.running) <= (w.rules.max_concurrent or math.floor(w.rules.max_staleness * w.rules.prompts + 1e-9))


def roll(w: Witness) -> None:
    extra = math.ceil(w.rules.max_staleness * w.rules.prompts - 1e-9)
    assert w.kept <= (w.version + 1) * w.rules.prompts + extra


CHECKS = dict.fromkeys(POLICIES, nothing) | {"slime": slime_before, "openrlhf": openrlhf_before}
AFTER = {"areal": areal, "verl": verl, "nemo-rl": nemo, "slime": slime, "openrlhf": openrlhf, "trl": trl, "roll": roll}


def watch(rules: Settings, hand: Hand = HAND, draw: object = None, steps: int = STEPS) -> tuple[Run, Witness]:
    """One run and what its witness saw."""
    seen: list[Witness] = []

    def policy_of(rules: Settings) -> Witness:
        seen.append(Witness(POLICIES[rules.policy](rules), rules))
        return seen[-1]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(asynchronous, "policy_of", policy_of)
        run = play(rules, hand.costs(), draw or uniform(20, 900, rules.prompts, rules.group_size), steps, 0)
    return run, seen[0]


def stale(run: Run) -> list[int]:
    """Staleness of every trained sample of the whole run."""
    rows = run.ledger["train_version"] >= 0
    return (run.ledger["train_version"] - run.ledger["begin_version"])[rows].tolist()


@st.composite
def rules(draw: st.DrawFn, policy: str) -> Settings:
    prompts = draw(st.integers(1, 6))
    parts = draw(st.sampled_from([1, 2])) if policy == "verl" and prompts % 2 == 0 else 1
    staleness = draw(st.sampled_from([0.0, 0.5, 1.0, 1.75, 3.0]))
    return regime(
        "async",
        prompts=prompts,
        group_size=draw(st.integers(1, 3)),
        policy=policy,
        max_staleness={"trl": max(1.0, staleness), "nemo-rl": float(int(staleness))}.get(policy, staleness),
        max_concurrent=draw(st.integers(1, 12)) if policy == "slime" else draw(st.sampled_from([None, 1, 5])),
        theta=draw(st.sampled_from([0.0, 0.3, 1.0])),
        sync_every=draw(st.integers(1, 3)) if policy in ("areal", "verl", "slime", "trl") else 1,
        mini_batches=parts,
        queue=draw(st.integers(1, 3)) if policy == "openrlhf" else None,
        on_sync=draw(st.sampled_from(["drain", "abort", "interrupt", "in-flight"])),
        overlap=draw(st.booleans()),
    )


@st.composite
def hands(draw: st.DrawFn) -> Hand:
    training = Training(update_seconds=draw(st.sampled_from([0.1, 1.0, 5.0])))
    return replace(HAND, training=training, engine=surface(0.01, slots=draw(st.sampled_from([2, 16]))))


@pytest.mark.parametrize("policy", POLICIES)
@examples(max_examples=12, deadline=None)
@given(st.data())
def test_every_admission_keeps_the_rule(policy: str, data: st.DataObject) -> None:
    chosen = data.draw(rules(policy))
    run, witness = watch(chosen, data.draw(hands()))
    assert len(witness.batches) == (chosen.warmup + STEPS) * chosen.rounds
    assert {len(batch) for batch in witness.batches} == {chosen.round_prompts}
    taken = [group for batch in witness.batches for group in batch]
    assert len(set(taken)) == len(taken)
    promised = {
        "nemo-rl": chosen.max_staleness,
        "openrlhf": chosen.queue,
        "trl": math.floor(chosen.max_staleness),
        "roll": math.ceil(chosen.max_staleness),
    }
    assert max(stale(run)) <= (promised.get(policy) if policy in promised else math.inf)


@pytest.mark.parametrize("on_sync", ["drain", "abort", "interrupt", "in-flight"])
def test_nemo_rl_trains_each_step_on_the_groups_reserved_for_it(on_sync: str) -> None:
    _, witness = watch(regime("async", policy="nemo-rl", max_staleness=2, on_sync=on_sync))
    for step, batch in enumerate(witness.batches):
        assert sorted(batch) == list(range(4 * step, 4 * step + 4))


def test_roll_takes_what_the_oldest_step_began_first() -> None:
    chosen = regime("async", prompts=5, policy="roll", max_staleness=1.5, on_sync="in-flight")
    run, witness = watch(chosen, steps=12)
    for batch, version in zip(witness.batches, witness.versions, strict=True):
        steps = [witness.begun[group] for group in batch]
        assert steps == sorted(steps)
        assert Counter(steps)[version - 2] <= 2  # ⌊0.5 · 5⌋ of the oldest step
    assert max(stale(run)) == 2


def test_first_in_first_out_by_the_end_of_groups() -> None:
    for policy in ("verl", "slime", "trl"):
        run, witness = watch(regime("async", policy=policy, max_staleness=4, max_concurrent=6, theta=0.5))
        last = run.ledger["scored"].reshape(-1, 2).max(axis=1)
        ends = [last[group] for batch in witness.batches for group in sorted(batch, key=lambda g: last[g])]
        assert ends == sorted(ends)


@pytest.mark.parametrize("theta", [0.0, 0.5, 1.0])
def test_verl_is_areal_with_the_threshold_for_the_staleness(theta: float) -> None:
    # Groups of equal length end in the order of their submission, and nothing limits concurrency.
    common = {"prompts": 8, "on_sync": "interrupt"}
    ours = regime("async", policy="verl", theta=theta, **common)
    theirs = regime("async", policy="areal", max_staleness=theta, **common)
    first, second = (play(r, HAND.costs(), fixed(300, 8, 2), 6, 0) for r in (ours, theirs))
    ends = [[step.end for step in run.history][:6] for run in (first, second)]
    assert ends[0] == pytest.approx(ends[1])


def test_verl_carries_over_a_share_theta_of_an_interval_at_most() -> None:
    # R = 4 prompts of two mini-batches, K = 2 rounds: M = ⌊4·1.5·2⌋ = 12; a sync leaves at most 12 - 8 = 4.
    chosen = regime("async", prompts=8, policy="verl", mini_batches=4, require_batches=2, theta=0.5, sync_every=2)
    assert (chosen.rounds, chosen.round_prompts) == (2, 4)
    run, witness = watch(chosen, replace(HAND, training=Training(update_seconds=20.0)), fixed(50, 8, 2))
    assert witness.counter <= 12
    assert max(stale(run)) == 1
    assert [step.samples for step in run.history] == [16] * len(run.history)


def test_slime_knows_no_age() -> None:
    # 8 groups in flight and 8 finished ones are four batches of 4: the next one is about four versions late.
    chosen = regime("async", policy="slime", max_concurrent=8, on_sync="in-flight")
    run, _ = watch(chosen, replace(HAND, reward=Reward(), training=Training(update_seconds=20.0)), fixed(50, 4, 2))
    assert max(stale(run)) in (2, 3, 4)


def test_openrlhf_with_one_slot_is_one_step_off() -> None:
    hand = replace(HAND, reward=Reward(), training=Training(update_seconds=3.0))
    chosen = regime("async", policy="openrlhf", queue=1, on_sync="drain")
    ours = play(chosen, hand.costs(), fixed(500, 4, 2), 6, 0)
    theirs = play(regime("one-step-off"), hand.costs(), fixed(500, 4, 2), 6, 0)
    # max(500 · 10 ms, 3 s) + 0.5 s of sync
    assert [step.seconds for step in ours.steps] == pytest.approx([5.5] * 6)
    assert [step.seconds for step in theirs.steps] == pytest.approx([5.5] * 6)
    assert set(stale(ours)[16:]) == {1}


def test_trl_drops_what_got_too_old() -> None:
    # A fast rollout fills the queue of 1,024 samples: what waits there grows old.
    chosen = regime("async", policy="trl", max_staleness=1, on_sync="in-flight", queue=4)
    run, _ = watch(chosen, replace(HAND, training=Training(update_seconds=30.0)))
    assert sum(step.dropped.get("stale", 0) for step in run.history) > 0
    assert max(stale(run)) <= 1


def test_a_bound_out_of_reach_keeps_the_engines_busy_and_the_queue_finite() -> None:
    chosen = regime("async", max_staleness=1e6, on_sync="in-flight")
    run, witness = watch(chosen, replace(HAND, engine=surface(0.01, slots=4)), fixed(50, 4, 2), steps=2)
    # Two engines of 4 slots hold 4 groups: at most twice that, and a batch, are under way.
    assert len(witness.running) <= 12
    assert len(witness.ready) > 12
    assert run.warmup == 32
