"""Clusters of several pools, and several rollout entries: what is filled in, what is refused."""

from __future__ import annotations

import pytest

from rlsim.errors import UserError
from rlsim.scenario import loads_scenario
from rlsim.scenario.dump import dump_yaml
from rlsim.scenario.load import scenario_from_dict
from rlsim.scenario.schema import Scenario

POOLS = "{pools: {train: {gpu: h100-sxm, gpus: 16}, roll: {gpu: h20, gpus: 32}}}"
TEXT = """\
model: Qwen/Qwen2.5-7B
cluster: CLUSTER
workload: {prompts: 64, group_size: 8, prompt_tokens: {mean: 200, max: 1024}, response_tokens: {mean: 500, max: 2048}}
placement: disaggregated
trainer: TRAINER
rollout: ROLLOUT
"""


def load(
    cluster: str = POOLS, trainer: str = "{pool: train}", rollout: str = "{pool: roll}", more: str = ""
) -> Scenario:
    text = TEXT.replace("CLUSTER", cluster).replace(
        "{prompts", "{algorithm: ppo, prompts" if "critic" in more else "{prompts"
    )
    text = text.replace("TRAINER", trainer).replace("ROLLOUT", rollout)
    return loads_scenario(text + more, "case.yaml").variants[0]


def roles(s: Scenario) -> list[tuple[str | None, int]]:
    return [(s.trainer.pool, s.trainer.gpus), *((e.pool, e.gpus) for e in s.rollout)]


def test_each_role_takes_its_pool() -> None:
    assert roles(load()) == [("train", 16), ("roll", 32)]


def test_of_two_pools_the_other_role_has_the_other() -> None:
    assert roles(load(rollout="{tp: 2}")) == [("train", 16), ("roll", 32)]
    assert roles(load(trainer="{}")) == [("train", 16), ("roll", 32)]


def test_an_entry_takes_what_the_others_leave_of_its_pool() -> None:
    found = roles(load(rollout="[{pool: roll, gpus: 8}, {pool: roll, tp: 2}, {pool: train, gpus: 8}]"))
    assert found == [("train", 8), ("roll", 8), ("roll", 24), ("train", 8)]


def test_several_entries_on_a_cluster_of_one_kind() -> None:
    found = roles(load("{gpu: h100-sxm, gpus: 32}", "{gpus: 16}", "[{gpus: 8, tp: 1}, {tp: 4}]"))
    assert found == [(None, 16), (None, 8), (None, 8)]


def test_colocated_roles_share_a_pool() -> None:
    scenario = loads_scenario(
        TEXT.replace("CLUSTER", POOLS).replace("TRAINER", "{pool: train}").replace("ROLLOUT", "{tp: 2}"),
        overrides=["placement=colocated"],
    ).variants[0]
    assert roles(scenario) == [("train", 16), ("train", 16)]


def test_pools_and_entries_survive_being_written() -> None:
    links = POOLS[:-1] + ", links: [{between: [train, roll], bandwidth: 1.25 GB/s, latency: 10 ms}]}"
    for scenario in (load(), load(links, rollout="[{pool: roll, gpus: 8}, {pool: roll, tp: 2}]")):
        assert scenario_from_dict(scenario.to_dict()) == scenario
        assert loads_scenario(dump_yaml(scenario)).variants[0] == scenario


def test_total_gpus() -> None:
    assert load().cluster.total_gpus == 48


MISTAKES = [
    ({"rollout": "{pool: rol}"}, "rollout.pool: there is no pool 'rol'. Fix: roll"),
    ({"rollout": "[{pool: roll, gpus: 8}, {pool: rool, gpus: 8}]"}, "rollout[1].pool: there is no pool 'rool'"),
    ({"trainer": "{pool: train, gpus: 24}"}, "trainer.gpus: trainer 24 GPUs, but pool train has 16"),
    (
        {"rollout": "[{pool: roll, gpus: 16}, {pool: roll, gpus: 24}]"},
        "rollout[1].gpus: rollout[0] 16 + rollout[1] 24 = 40 GPUs, but pool roll has 32. Fix: rollout[1].gpus: 16",
    ),
    (
        {"cluster": "{gpu: h100-sxm, gpus: 48}", "trainer": "{pool: train, gpus: 8}"},
        "trainer.pool: there is no pool 'train': the cluster is of one kind",
    ),
    ({"cluster": POOLS.replace("{pools", "{gpu: h20, gpus: 8, pools")}, "both pools and gpu, gpus are given"),
    ({"cluster": POOLS.replace("{pools", "{nic: 50 GB/s, pools")}, "cluster.nic: of which pool?"),
    ({"cluster": POOLS.replace("gpus: 32", "gpus: 33")}, "cluster.pools.roll.gpus: 33 GPUs are not whole nodes of 8"),
    ({"cluster": POOLS[:-1] + ", links: [{between: [train, train], bandwidth: 1 GB/s}]}"}, "both ends are train"),
    ({"cluster": POOLS[:-1] + ", links: [{between: [train, rol], bandwidth: 1 GB/s}]}"}, "there is no pool 'rol'"),
    ({"more": "roles: {critic: {gpus: 8, pool: x}}\n", "trainer": "{pool: train, gpus: 8}"}, "there is no pool 'x'"),
    (
        {
            "cluster": "{pools: {a: {gpu: h20, gpus: 8}, b: {gpu: h20, gpus: 8}, c: {gpu: h20, gpus: 8}}}",
            "trainer": "{gpus: 8}",
            "rollout": "{pool: b}",
        },
        "trainer: pool is missing: which of cluster.pools?",
    ),
]


@pytest.mark.parametrize(("changes", "says"), MISTAKES, ids=[says for _, says in MISTAKES])
def test_mistakes_name_the_pool(changes: dict[str, str], says: str) -> None:
    with pytest.raises(UserError) as caught:
        load(**changes)
    assert says in str(caught.value)
    assert str(caught.value).startswith("case.yaml:")
