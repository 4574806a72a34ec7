from __future__ import annotations

import pytest

from rlsim.errors import NotModelled
from rlsim.scenario import loads_scenario
from rlsim.scenario.not_modelled import NOT_MODELLED

from .text import BASE, changed

REFUSED = [
    ("trainer: {gpus: 8, ", "trainer: {gpus: 8, precision: fp8, ", "trainer.precision = fp8", 12),
]  # fmt: skip


@pytest.mark.parametrize(("old", "new", "key", "line"), REFUSED, ids=[f"{row[2]}" for row in REFUSED])
def test_refused_by_name(old: str, new: str, key: str, line: int) -> None:
    text = changed((old, new)).split("variants:")[0]
    with pytest.raises(NotModelled) as caught:
        loads_scenario(text, "case.yaml")
    assert str(caught.value) == f"case.yaml:{line}: not modelled yet: {key}"


def _rows() -> set[str]:
    return {row[0] for row in NOT_MODELLED}


def test_mistakes_come_before_refusals() -> None:
    with pytest.raises(Exception, match="has no unit") as caught:
        loads_scenario(changed(("nic: 50 GB/s", "nic: 50, oversubscription: 2.0")))
    assert not isinstance(caught.value, NotModelled)


def test_inert_blocks_are_not_refused() -> None:
    text = changed(("schedule: async", "schedule: sync"), ("max_staleness: 2", "policy: verl, theta: 0.5"))
    assert loads_scenario(text).variants[0].async_.theta == 0.5


@pytest.mark.parametrize(
    "reward",
    [
        "{kind: rule}",
        "{kind: sandbox, seconds: {mean: 3 s, p99: 20 s}, workers: 256, timeout: 30 s, retries: 1}",
        "{kind: model, seconds: 0.2 s, workers: 64}",
        "{kind: environment, streaming: false}",
    ],
)
def test_accepted_rewards(reward: str) -> None:
    base = loads_scenario(changed(("  prompts: 32", f"  reward: {reward}\n  prompts: 32"))).variants[0]
    assert reward.startswith("{kind: " + base.workload.reward.kind)


def test_the_base_has_nothing_unmodelled() -> None:
    assert loads_scenario(BASE).variants
