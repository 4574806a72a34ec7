"""Every strategy against its formula, with perfect software so that the links are on paper."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rlsim.catalog.profiles import profile
from rlsim.costs.transfer_floor import floor_seconds
from rlsim.costs.transfer_methods import METHODS, method_of
from rlsim.costs.transfer_strategies import (
    COLOCATED,
    DISAGGREGATED,
    STRATEGIES,
    broadcast,
    chain,
    gather_links,
    host,
    ipc,
    p2p,
    p2p_replicate,
    p2p_tree,
    root_fanout,
)
from tests.costs.transfer_cases import MODEL_70B, case_70b, colocated_7b


def test_root_fanout_to_four_instances_of_70b() -> None:
    """One 8-NIC node: 4 * 141.1 / (8*50) = 1.411 s on the wire."""
    assert root_fanout(case_70b(4)).link_seconds == pytest.approx(1.411)


def test_broadcast_does_not_grow_with_the_instances() -> None:
    """Eight rails: 141.1 / 400 = 0.35275 s, for 1 or 16 instances."""
    assert broadcast(case_70b(1)).link_seconds == pytest.approx(0.35275)
    assert broadcast(case_70b(16)).link_seconds == pytest.approx(0.35275)


def test_one_sending_rank_is_one_rail() -> None:
    """AReaL and slime send from one rank: 141.1 / 50 = 2.822 s."""
    assert broadcast(case_70b(framework="areal")).link_seconds == pytest.approx(2.822)


def test_chain_pays_a_bucket_per_hop() -> None:
    """K = ceil(141.1e9 / 2^30) = 132 buckets of 1.0689 GB, R = 32 GPUs: 163 hops * 1.0689/50 = 3.4848 s."""
    assert chain(case_70b(4)).link_seconds == pytest.approx(163 * MODEL_70B / 132 / 50e9)


def test_chain_like_the_published_nixl_row() -> None:
    """61 GB, 2 GiB buckets, 30 receivers: (29 + 29) hops; at 18 GB/s a hop about 7 s."""
    case = case_70b(engines=30)
    receiver = replace(case.receivers[0], engines=30, gpus_per_engine=1)
    slow = case.profile.with_values(chain_nic_efficiency=18 / 50)
    timed = chain(replace(case, model_bytes=61.06e9, bucket=2 * 2**30, receivers=(receiver,), profile=slow))
    assert timed.link_seconds == pytest.approx(58 * 61.06e9 / 29 / 18e9)
    assert 6.0 < timed.link_seconds < 8.0


def test_p2p_is_bound_by_the_busiest_nic() -> None:
    """In: 17.6375/50 = 0.353 s. Out: 16 copies * 141.1/64 = 35.3 GB per trainer GPU / 50 = 0.7055 s."""
    assert p2p(case_70b(4)).link_seconds == pytest.approx(0.35275)
    assert p2p(case_70b(16)).link_seconds == pytest.approx(0.7055)


def test_tree_doubles_in_every_round() -> None:
    """16 instances: four rounds of one GPU's 17.6 GB over its NIC; two instances: one round, as the chain."""
    one, four = p2p_tree(case_70b(2)).parts["replicate"], p2p_tree(case_70b(16)).parts["replicate"]
    assert four == pytest.approx(4 * one)
    assert one == pytest.approx(p2p_replicate(case_70b(2)).parts["replicate"])
    assert p2p_tree(case_70b(17)).parts["replicate"] == pytest.approx(5 * one)


def test_p2p_replicate_takes_the_trainer_out_of_the_copies() -> None:
    """16 instances: one p2p copy 0.35275 + replicate 0.35275 + 14 bucket hops of 2^30/50e9."""
    timed = p2p_replicate(case_70b(16))
    assert timed.link_seconds == pytest.approx(2 * 0.35275 + 14 * 2**30 / 50e9, rel=1e-3)


def test_ipc_ping_pong_hides_the_shorter_stage() -> None:
    """Gather 15.232/20 = 0.7616 s, load 15.232/10 = 1.5232 s, K = 15: 1.5232 + 0.7616/15 s."""
    case = colocated_7b(8)
    slow = case.profile.with_values(refit_gather_rate=20e9, refit_load_rate=10e9)
    ping_pong = ipc(replace(case, profile=slow)).seconds
    turns = ipc(replace(case, profile=slow, method=method_of("verl"))).seconds
    assert ping_pong == pytest.approx(1.5232 + 0.7616 / 15, rel=1e-3)
    assert turns == pytest.approx(1.5232 + 0.7616, rel=1e-3)


def test_gather_crosses_nodes_when_the_shards_do() -> None:
    """FSDP over 8 nodes: 7/8 of 15.232 GB into each node over 8 NICs = 0.03332 s; NVLink 15.0/450 = 0.0333
    s.
    """
    assert gather_links(colocated_7b(64)) == pytest.approx(15.232e9 * 63 / 64 / 450e9)
    slow = colocated_7b(64)
    slow = replace(slow, profile=slow.profile.with_values(sync_nic_efficiency=0.5))
    assert gather_links(slow) == pytest.approx(13.328e9 / 200e9)


def test_slime_lifts_the_shards_from_host_memory() -> None:
    case = colocated_7b(8)
    slime = ipc(replace(case, method=method_of("slime"))).seconds
    assert slime - ipc(replace(case, method=method_of("verl"))).seconds == pytest.approx(15.232e9 / 8 / 12e9)


def test_host_reproduces_checkpoint_engine_on_one_node() -> None:
    """Qwen3-235B bf16, 470 GB, 8 GPUs: reload-bound at 75 GB/s, 6.3 s; published 6.2 s from host memory."""
    case = replace(
        case_70b(1, trainer_gpus=8),
        model_bytes=470.2e9,
        bucket=2.67 * 2**30,
        colocated=True,
        profile=profile("generic"),
    )
    assert 6.0 < host(case).seconds - host(case).parts["device_to_host"] < 9.0


@pytest.mark.parametrize("framework", sorted(METHODS))
@pytest.mark.parametrize("strategy", DISAGGREGATED)
def test_every_disaggregated_strategy_is_above_the_floor(framework: str, strategy: str) -> None:
    for engines in (1, 4, 16):
        case = case_70b(engines, framework=framework)
        assert STRATEGIES[strategy](case).seconds >= floor_seconds(case) * (1 - 1e-9)


@pytest.mark.parametrize("strategy", COLOCATED)
def test_every_colocated_strategy_is_above_the_floor(strategy: str) -> None:
    for gpus in (1, 8, 64):
        case = colocated_7b(gpus)
        assert STRATEGIES[strategy](case).seconds >= floor_seconds(case) * (1 - 1e-9)


@given(
    strategy=st.sampled_from(DISAGGREGATED),
    engines=st.integers(1, 64),
    trainer=st.sampled_from([8, 16, 64, 512]),
    name=st.sampled_from(["refit_gather_rate", "refit_load_rate", "sync_nic_efficiency", "host_link_rate"]),
    factor=st.floats(1.0, 1.15),
)
def test_a_faster_resource_never_slows_a_sync(
    strategy: str, engines: int, trainer: int, name: str, factor: float
) -> None:
    case = replace(case_70b(engines, trainer_gpus=trainer), profile=profile("generic"))
    faster = case.profile.with_values(**{name: case.profile.value(name) * factor})
    timed = STRATEGIES[strategy]
    assert timed(replace(case, profile=faster)).seconds <= timed(case).seconds * (1 + 1e-12)


@given(strategy=st.sampled_from(DISAGGREGATED), framework=st.sampled_from(sorted(METHODS)))
def test_parts_are_not_negative(strategy: str, framework: str) -> None:
    case = replace(case_70b(8, framework=framework), profile=profile("generic"))
    assert min(STRATEGIES[strategy](case).parts.values()) >= 0.0
