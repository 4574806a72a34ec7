"""What a removal takes away, on batches and passes small enough to check by hand."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from rlsim import api
from rlsim.counterfactual import alter
from rlsim.counterfactual.removals import BY_NAME, present, together
from rlsim.inputs import inputs_of
from rlsim.scenario.load import loads_scenario
from rlsim.scenario.schema import Scenario
from rlsim.turns import TurnPlans
from rlsim.workload import Batch

PRESSED = Path(__file__).parents[2] / "scenarios" / "kv_pressure.yaml"
DENSE = """
model: Qwen/Qwen2.5-Math-1.5B
cluster: {gpu: h100-sxm, gpus: 8}
workload: {prompts: 32, group_size: 4, prompt_tokens: {mean: 100, max: 200}, response_tokens: {mean: 300, max: 2000}}
trainer: {backend: fsdp2, micro_batch_tokens: 8192}
rollout: {engine: vllm, tp: 1, max_num_seqs: 64}
run: {steps: 3}
"""
MOE = """
model: Qwen/Qwen3-30B-A3B
cluster: {gpu: h100-sxm, gpus: 32}
workload: {prompts: 32, group_size: 4, prompt_tokens: {mean: 100, max: 200}, response_tokens: {mean: 300, max: 2000},
  reward: {kind: sandbox, seconds: 3 s, workers: 16}}
placement: disaggregated
schedule: async
trainer: {gpus: 16, tp: 2, pp: 2, ep: 4, etp: 1, micro_batch_tokens: 8192}
rollout: {gpus: 16, engine: sglang, tp: 4, ep: 4, max_num_seqs: 64}
run: {steps: 2}
"""


def scenario(text: str = DENSE, *overrides: str) -> Scenario:
    return loads_scenario(text, overrides=overrides).variants[0]


def test_even_lengths_keep_the_tokens() -> None:
    # 10 + 20 + 31 + 40 = 101 tokens over four samples: 26, 25, 25, 25.
    batch = Batch(np.array([5, 7]), np.array([[10, 20], [31, 40]]))
    assert alter.levelled(batch).response_tokens.tolist() == [[26, 25], [25, 25]]


def test_even_turns_keep_tokens_waits_and_losses() -> None:
    # Two samples of one and three turns: two turns each. 4 + 2 + 6 + 8 = 20 generated, 10 observed, 3 s waited.
    plan = TurnPlans(
        first=np.array([0, 1, 4]),
        generated=np.array([4, 2, 6, 8]),
        observed=np.array([0, 4, 6, 0]),
        waits=np.array([0.0, 1.0, 2.0, 0.0]),
        lost=np.array([False, True]),
    )
    even = alter.levelled(Batch(np.array([5]), np.array([[4, 26]]), plan=plan))
    assert even.plan.generated.tolist() == [5, 5, 5, 5]
    assert even.plan.observed.tolist() == [5, 0, 5, 0]
    assert even.plan.waits.tolist() == [1.5, 0.0, 1.5, 0.0]
    assert even.response_tokens.tolist() == [[15, 15]]
    assert even.plan.lost is plan.lost


@dataclass(frozen=True)
class Step:
    seconds: float
    parts: dict[str, float]
    sources: dict[str, float]
    flops: float = 1.0


def test_parts_of_a_pass_are_subtracted() -> None:
    step = Step(10.0, {"compute": 6.0, "bubble": 3.0, "imbalance": 1.0}, {"measured": 5.0, "roofline": 5.0})
    passes: Any = SimpleNamespace(update=lambda lengths: step, logprob=lambda lengths, role: step)
    less: Any = alter.Without(passes, frozenset({"bubble", "imbalance"})).update(np.array([1]))
    assert (less.seconds, less.parts, less.flops) == (6.0, {"compute": 6.0}, 1.0)
    assert less.sources == {"measured": 3.0, "roofline": 3.0}


def test_a_pass_without_its_bubble_is_that_much_shorter() -> None:
    report = api.check(scenario(MOE))
    lengths = np.full(128, 400)
    whole = inputs_of(report.system, report.memory).costs.training.update(lengths)
    less = inputs_of(report.system, report.memory, BY_NAME["bubble"].change).costs.training.update(lengths)
    bubble = whole.parts["bubble"]  # type: ignore[attr-defined]
    assert bubble > 0
    assert less.seconds == pytest.approx(whole.seconds - bubble)


def test_no_kv_limit_means_no_preemption() -> None:
    tight = api.load_scenario(PRESSED, variant="recompute").variants[0]
    assert api.simulate(tight, steps=1).summary()["preemptions"] > 0
    free = api.simulate(tight, steps=1, change=BY_NAME["kv"].change).summary()
    assert free["preemptions"] == 0


@pytest.mark.parametrize("text", [DENSE, MOE])
def test_without_its_cost_a_phase_is_gone(text: str) -> None:
    one = scenario(text)
    names = tuple(removal.name for removal in present(one))
    for name, phase in (("weight-sync", "weight_sync"), ("logprob", "logprob"), ("controller", "other")):
        assert api.simulate(one, steps=2).summary()["phases_s"][phase] > 0
        left = api.simulate(one, steps=2, change=BY_NAME[name].change).summary()["phases_s"][phase]
        assert left == pytest.approx(0.0, abs=1e-9)
    floor = api.simulate(one, steps=2, change=together(names)).summary()
    assert {name for name, seconds in floor["phases_s"].items() if seconds > 1e-6} <= {
        "rollout",
        "train",
        "wait_rollout",
    }


def test_nothing_changed_is_the_same_run_to_the_bit() -> None:
    one = scenario()
    assert api.simulate(one, change=together(())).summary() == api.simulate(one).summary()


def test_even_experts_reach_the_trainer_and_the_engines() -> None:
    report = api.check(scenario(MOE))
    as_is = inputs_of(report.system, report.memory).costs
    even = inputs_of(report.system, report.memory, BY_NAME["experts"].change).costs
    lengths = np.full(128, 400)
    assert even.training.update(lengths).seconds < as_is.training.update(lengths).seconds
    assert not np.array_equal(even.engines[0][0].rank_rows, as_is.engines[0][0].rank_rows)


def test_the_network_is_the_scenarios_own_again_where_it_does_not_matter() -> None:
    """One node: no NIC is in any path, so its rate changes nothing."""
    one = scenario()
    fast = replace(BY_NAME["network"].change)
    assert api.simulate(one, change=fast).summary()["step_time_s"] == api.simulate(one).summary()["step_time_s"]
