"""Links: groups, collectives across nodes with all NICs, all-to-all, sends."""

from __future__ import annotations

import numpy as np
import pytest

from rlsim.costs.network import Group, Topology
from tests.costs.training_double import FlatKernels

LINKS = Topology(
    FlatKernels(), nic=50e9, nvlink=450e9, domain=8, nic_efficiency=1.0, nvlink_efficiency=1.0, latency=0.0
)


@pytest.mark.parametrize(
    ("size", "stride", "local", "domains"),
    [(8, 1, 8, 1), (32, 1, 8, 4), (4, 8, 1, 4), (16, 4, 2, 8), (2, 4, 2, 1), (1, 16, 1, 1)],
)
def test_a_group_counts_its_members_behind_one_switch(size: int, stride: int, local: int, domains: int) -> None:
    group = LINKS.group(size, stride)
    assert (group.local, group.domains) == (local, domains)


def test_a_gather_across_nodes_uses_all_their_nics() -> None:
    # 4 nodes take in 3/4 of 40 GB each through 8 x 50 GB/s: 30/400 = 0.075 s; the NVLink part at 100 GB/s takes 0.4 s
    # and would hide it, so ask a group with one member per node: 30/50 = 0.6 s.
    alone, _ = LINKS.collective("all_gather", 40e9, Group(4, 1))
    assert float(alone) == pytest.approx(0.6)
    fast = Topology(FlatKernels(), 1e9, 450e9, 8, 1.0, 1.0, 0.0)
    eight, source = fast.collective("all_gather", 40e9, Group(32, 8))
    assert float(eight) == pytest.approx(30 / 8)
    assert source == "scaled"


def test_an_all_reduce_crosses_twice() -> None:
    once, _ = LINKS.collective("reduce_scatter", 1e9, Group(4, 1))
    twice, _ = LINKS.collective("all_reduce", 1e9, Group(4, 1))
    assert float(twice) == pytest.approx(2 * float(once))


def test_one_gpu_needs_no_collective() -> None:
    assert float(LINKS.collective("all_gather", 1e9, Group(1, 1))[0]) == 0.0
    assert float(LINKS.all_to_all(1e9, Group(1, 1))[0]) == 0.0


def test_all_to_all_is_bound_by_the_slower_of_nvlink_and_nic() -> None:
    # 32 ranks, 8 a node: 24/32 of 1 GB over 50 GB/s = 15 ms; 7/32 over 450 GB/s is less.
    seconds, _ = LINKS.all_to_all(1e9, Group(32, 8))
    assert float(seconds) == pytest.approx(0.015)


def test_a_send_leaves_the_domain_over_the_nic() -> None:
    assert float(LINKS.send(45e9, 4)) == pytest.approx(0.1)
    assert float(LINKS.send(45e9, 8)) == pytest.approx(0.9)
    assert float(LINKS.send(np.array([0.0]), 8)[0]) == 0.0


def test_oversubscription_thins_the_fabric() -> None:
    thin = Topology(FlatKernels(), 25e9, 450e9, 8, 1.0, 1.0, 0.0)
    full, _ = LINKS.collective("all_gather", 1e9, Group(4, 1))
    half, _ = thin.collective("all_gather", 1e9, Group(4, 1))
    assert float(half) == pytest.approx(2 * float(full))
