"""Links between pools and a thin fabric in the weight sync, with the arithmetic on paper."""

from __future__ import annotations

from dataclasses import replace

import pytest

from rlsim.costs.transfer import sync_cost, weight_sync_cost
from rlsim.costs.transfer_case import Crossing, SyncCase
from rlsim.costs.transfer_floor import floor_seconds
from rlsim.costs.transfer_links import behind, each, once
from rlsim.costs.transfer_strategies import DISAGGREGATED, STRATEGIES
from tests.costs.systems import system
from tests.costs.transfer_cases import MODEL_70B, case_70b

LINE = Crossing("away", 1.25e9, 0.005)
TWO_POOLS = """
model: meta-llama/Llama-3.1-8B
cluster:
  pools:
    home: {gpu: h100-sxm, gpus: 16, nic: 50 GB/s}
    near: {gpu: h20, gpus: 8, nic: 50 GB/s}
    away: {gpu: l40s, gpus: 16, nic: 12.5 GB/s}
  links: [{between: [away, home], bandwidth: 1.25 GB/s, latency: 5 ms}]
placement: disaggregated
trainer: {pool: home, backend: megatron, tp: 2}
rollout: [{pool: near, tp: 1}, {pool: away, tp: 2}]
"""


def thin(line: Crossing = LINE, engines: int = 4) -> SyncCase:
    case = case_70b(engines)
    return replace(case, receivers=tuple(replace(r, crossing=line) for r in case.receivers))


def test_the_link_bounds_every_strategy() -> None:
    """141.1 GB over 1.25 GB/s: 112.88 s, once and for all engines (multicast)."""
    case = thin()
    assert floor_seconds(case) == pytest.approx(MODEL_70B / 1.25e9)
    assert floor_seconds(case) == pytest.approx(112.88)
    for strategy in DISAGGREGATED:
        assert sync_cost(case, strategy).seconds >= 112.88 * (1 - 1e-12)


def test_without_multicast_every_instance_draws_its_own_copy() -> None:
    """Four copies of 141.1 GB: 451.5 s by root-fanout and point to point; broadcast and first-instance need one."""
    case = thin()
    assert STRATEGIES["root-fanout"](case).link_seconds == pytest.approx(4 * 112.88 + case.rounds * 0.01)
    assert STRATEGIES["p2p"](case).link_seconds == pytest.approx(4 * 112.88 + 0.01)
    assert STRATEGIES["broadcast"](case).link_seconds == pytest.approx(112.88 + case.rounds * 0.01)
    assert sync_cost(case, "p2p-replicate").seconds < 1.3 * 112.88


def test_the_chain_crosses_once() -> None:
    """132 buckets at the pace of the link, 31 further hops of 1.07 GB / 50 GB/s inside."""
    case = thin(replace(LINE, latency=0.0))
    bucket = MODEL_70B / case.rounds
    inside = 31 * bucket / 50e9 + bucket * (1 / 1.25e9 - 1 / 50e9)
    assert STRATEGIES["chain"](case).link_seconds == pytest.approx(112.88 + inside, rel=1e-3)


def test_kinds_in_one_pool_share_a_multicast() -> None:
    case = thin()
    both = replace(case, receivers=(*case.receivers, *case.receivers))
    assert once(both, 10e9) == pytest.approx(8.0)
    assert each(both, lambda r: 10e9) == pytest.approx(16.0)
    apart = replace(both, receivers=(both.receivers[0], replace(both.receivers[1], crossing=Crossing("b", 2.5e9))))
    assert each(apart, lambda r: 10e9) == pytest.approx(8.0)
    assert behind(case, 5e9).receivers[0].crossing == Crossing("engines", 5e9, 0.005)


def test_a_link_is_crossed_only_where_it_leads() -> None:
    """8.03 B parameters in bf16, 16.06 GB / 1.25 GB/s = 12.85 s: away alone is behind the line."""
    whole, near = (
        system(TWO_POOLS),
        system(TWO_POOLS.replace("[{pool: near, tp: 1}, {pool: away, tp: 2}]", "{pool: near, tp: 1}")),
    )
    assert weight_sync_cost(whole).floor_seconds == pytest.approx(12.85, rel=1e-3)
    assert weight_sync_cost(near).floor_seconds < 0.1


def test_unlike_receivers_each_by_its_own_nic() -> None:
    """An L40S takes half of the 16.06 GB over its NIC and PCIe, 8.03/(12.5+32) = 0.1805 s; an H20 0.04 s."""
    alone = TWO_POOLS.replace("  links: [{between: [away, home], bandwidth: 1.25 GB/s, latency: 5 ms}]\n", "")
    cost = weight_sync_cost(system(alone))
    assert cost.floor_seconds == pytest.approx(0.1805, rel=1e-2)
    for strategy in DISAGGREGATED:
        assert cost.alternatives[strategy] >= cost.floor_seconds
    assert cost.bytes_max_per_gpu == pytest.approx(16.06e9, rel=1e-3)


def test_a_thinner_fabric_never_helps() -> None:
    case = case_70b(16)
    for strategy in DISAGGREGATED:
        full, half = (STRATEGIES[strategy](replace(case, oversubscription=o)).seconds for o in (1.0, 2.0))
        assert half >= full
    assert STRATEGIES["broadcast"](replace(case, oversubscription=2.0)).link_seconds == pytest.approx(
        2 * STRATEGIES["broadcast"](case).link_seconds
    )
