"""The floor of a weight sync, with the arithmetic on paper."""

from __future__ import annotations

from dataclasses import replace

import pytest

from rlsim.costs.transfer_floor import cut_floor, egress_floor, floor_seconds
from tests.costs.transfer_cases import case_70b, colocated_7b, side


def test_70b_into_tp8_needs_0_35_seconds() -> None:
    """141.1 GB / 8 GPUs = 17.6375 GB per GPU; / 50 GB/s = 0.35275 s."""
    case = case_70b()
    assert case.recv_gpu == pytest.approx(17.6375e9)
    assert floor_seconds(case) == pytest.approx(0.35275, rel=1e-9)


def test_floor_does_not_depend_on_the_instances_because_multicast_is_allowed() -> None:
    assert floor_seconds(case_70b(1)) == pytest.approx(floor_seconds(case_70b(16)))


def test_a_small_trainer_is_bound_by_its_own_nics() -> None:
    """141.1 GB / (4 * 50 GB/s) = 0.7055 s."""
    case = case_70b(trainer_gpus=4)
    assert egress_floor(case) == pytest.approx(0.7055)
    assert floor_seconds(case) == pytest.approx(0.7055)


def test_a_thin_fabric_between_the_roles() -> None:
    """32 rollout NICs at 50 GB/s, 1:20 oversubscribed: 141.1 * 20 / 1600 = 1.76375 s."""
    case = replace(case_70b(), oversubscription=20.0)
    assert cut_floor(case) == pytest.approx(1.76375)
    assert floor_seconds(case) == pytest.approx(1.76375)


def test_colocated_leaves_out_what_the_node_holds() -> None:
    """7B bf16 15.232 GB over 8 nodes: 7/8 of it into each node over 8 NICs: 13.328/400 = 0.03332 s."""
    assert floor_seconds(colocated_7b(64)) == pytest.approx(13.328e9 / 400e9)


def test_colocated_in_one_node_is_bound_by_nvlink() -> None:
    """7/8 of 15.232 GB over NIC + NVLink of one GPU: 13.328 / 500 = 0.026656 s."""
    assert floor_seconds(colocated_7b(8)) == pytest.approx(13.328e9 / 500e9)


def test_one_gpu_that_holds_everything_needs_nothing() -> None:
    assert floor_seconds(colocated_7b(1)) == 0.0


def test_faster_nics_lower_the_floor() -> None:
    case = case_70b()
    fast = replace(
        case,
        source=replace(case.source, side=side(64, 100e9)),
        receivers=(replace(case.receivers[0], side=side(32, 100e9)),),
    )
    assert floor_seconds(fast) == pytest.approx(floor_seconds(case) / 2)
