"""Weight syncs by frameworks' names."""

from __future__ import annotations

from dataclasses import replace
from math import sqrt
from pathlib import Path

import pytest

from rlsim.costs.transfer import best_bucket, named_seconds, weight_sync_cost
from rlsim.costs.transfer_build import sync_case
from rlsim.costs.transfer_named import NAMED
from rlsim.costs.transfer_strategies import chain
from rlsim.errors import UserError
from rlsim.model import parameters
from rlsim.scenario import load_scenario
from rlsim.system import System, resolve

from .systems import system
from .test_transfer import LLAMA_70B, QWEN_7B

SCENARIOS = Path(__file__).parents[2] / "scenarios"


def deepseek() -> System:
    return resolve(load_scenario(SCENARIOS / "600b_moe.yaml", variant="async").variants[0])


def test_a_framework_by_name_is_that_frameworks_auto() -> None:
    for framework, name in (("verl", "verl-nccl"), ("slime", "slime-distributed"), ("trl", "trl-server")):
        own = weight_sync_cost(system(LLAMA_70B, f"framework={framework}"))
        by_name = weight_sync_cost(system(LLAMA_70B, f"framework={framework}", f"weight_sync.strategy={name}"))
        assert by_name.strategy == name
        assert by_name.seconds == own.seconds


def test_every_name_is_above_the_floor() -> None:
    s = system(LLAMA_70B)
    floor = weight_sync_cost(s).floor_seconds
    seconds = named_seconds(s)
    assert set(seconds) == {name for name, named in NAMED.items() if named.placement == "disaggregated"}
    assert all(value > floor for value in seconds.values())
    assert set(named_seconds(system(QWEN_7B))) == {"verl-naive-ipc"}


def test_tensor_by_tensor_costs_minutes_for_unfused_experts() -> None:
    """DeepSeek-V3 has 45,000 tensors: at 3 ms a call over two minutes of calls alone."""
    seconds = named_seconds(deepseek())
    assert seconds["openrlhf-broadcast"] - seconds["verl-nccl"] > 44_000 * 0.003


def test_nemo_reshard_lies_between_plan_and_broadcast() -> None:
    """DeepSeek-V3 is nearly all experts: 97% of its bytes go from shard to shard."""
    case, m = sync_case(deepseek()), deepseek().model
    assert case.mlp_share * parameters(m) == pytest.approx(58 * 256 * 3 * 7168 * 2048 + 3 * 3 * 7168 * 18432)
    seconds = named_seconds(deepseek())
    assert seconds["p2p-plan"] < seconds["nemo-reshard"] < seconds["verl-nccl"]


def test_names_for_the_other_placement_are_refused() -> None:
    with pytest.raises(UserError, match="does not work with placement"):
        weight_sync_cost(system(QWEN_7B, "weight_sync.strategy=verl-nccl"))


def test_best_bucket_of_a_chain() -> None:
    """Near sqrt(P·c·b/(R−1)), with fewer seconds than at 1 MiB, 1 GiB or all at once."""
    case = sync_case(system(LLAMA_70B))
    size, seconds = best_bucket(case, chain)
    rate = 50e9 * case.profile.value("chain_nic_efficiency")
    expected = sqrt(case.model_bytes * case.profile.value("refit_per_bucket_s") * rate / (case.receiving_gpus - 1))
    assert expected / 4 < size < expected * 4
    for other in (2.0**20, 2.0**30, case.model_bytes):
        assert seconds <= chain(replace(case, bucket=other)).seconds + 1e-9


def test_the_plan_sets_the_bytes_on_the_links() -> None:
    """What the plan delivers is what the layouts say: in to the byte, out no less than an even share."""
    case = sync_case(system(LLAMA_70B))
    assert case.plan is not None
    assert case.plan.in_nic + case.plan.in_nvlink == pytest.approx(case.recv_gpu)
    assert case.plan.out_nic >= case.delivered / case.source.side.gpus
