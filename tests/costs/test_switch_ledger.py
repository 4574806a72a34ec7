"""The switch ledger, with the arithmetic on paper."""

from __future__ import annotations

from dataclasses import replace

import pytest

from rlsim.catalog.switch_orders import ORDERS, order_of
from rlsim.costs.switch_ledger import HostLink, StateBytes, SwitchRow, engine_rows, state_rows, switch

LINK = HostLink(
    rate=55e9,
    pinned=12e9,
    pageable=4e9,
    process=10e9,
    node=200e9,
    gpus=8,
    map_per_byte=0.0,
    pinned_alloc=4e9,
    fixed=0.0,
)
STATE = StateBytes(optimizer=12e9, gradients=4e9, parameters=2e9, engine_weights=16e9, kv_cache=40e9)


def ledger(state, order, link, **leaving):
    return (*state_rows(state, order, link, **leaving), *engine_rows(state, order, link))


def rows_of(framework: str, link: HostLink = LINK, **wanted: bool) -> dict[str, SwitchRow]:
    asked = {"optimizer": True, "parameters": True, "gradients": True, **wanted}
    return {row.role: row for row in ledger(STATE, order_of(framework, "fsdp2"), link, **asked)}


@pytest.mark.parametrize(
    ("parameters", "gpus", "per_gpu", "seconds"),
    [(671.03e9, 1024, 7.86e9, 0.655), (671.03e9, 256, 31.45e9, 2.62), (7.616e9, 64, 1.428e9, 0.119)],
)
def test_optimizer_states_are_smaller_than_their_story(
    parameters: float, gpus: int, per_gpu: float, seconds: float
) -> None:
    """12 B * 671.03e9 / 1024 = 7.864 GB per GPU, 63 GB per node, 0.655 s at 12 GB/s; 256 GPUs: 31.45; 7B/64:
    1.43.
    """
    state = replace(STATE, optimizer=12 * parameters / gpus)
    rows = ledger(state, ORDERS["generic"], LINK, optimizer=True, parameters=False, gradients=False)
    cost = switch(rows, LINK, needed=True)
    assert cost.bytes_per_gpu == pytest.approx(per_gpu, rel=1e-3)
    assert cost.offload_seconds == pytest.approx(seconds, rel=2e-3)
    if gpus == 1024:
        assert cost.bytes_per_node == pytest.approx(63e9, rel=2e-3)


def test_generic_moves_states_and_parameters_once_each_way() -> None:
    """(12 + 2) GB / 12 GB/s = 1.1667 s each way; gradients, engine weights and KV only change their
    mapping.
    """
    cost = switch(tuple(rows_of("generic").values()), LINK, needed=True)
    assert cost.offload_seconds == pytest.approx(14 / 12)
    assert cost.onload_seconds == pytest.approx(14 / 12)
    assert cost.bytes_per_gpu == pytest.approx(14e9)
    assert cost.bytes_per_node == pytest.approx(112e9)


def test_pageable_memory_is_three_times_slower() -> None:
    pageable = ledger(STATE, ORDERS["generic"].pageable(), LINK, optimizer=True, parameters=True, gradients=True)
    assert switch(pageable, LINK, needed=True).offload_seconds == pytest.approx(14 / 4)


def test_fewer_gpus_share_what_the_node_can_do() -> None:
    """Two of eight: 4 times as much each, up to 0.8 of the link's 55 GB/s and to one process's 10 GB/s."""
    two = replace(LINK, gpus=2)
    assert two.copy_rate(True) == pytest.approx(44e9)
    assert two.copy_rate(False) == pytest.approx(10e9)
    assert replace(LINK, gpus=4).copy_rate(False) == pytest.approx(8e9)


def test_host_memory_is_shared_by_the_gpus_of_a_node() -> None:
    """40 GB/s over 8 GPUs: 5 GB/s each."""
    assert replace(LINK, node=40e9).copy_rate(pinned=True) == pytest.approx(5e9)


def test_sleep_level_1_copies_the_engine_weights_and_locks_pages() -> None:
    """16 GB / 12 GB/s each way; going to sleep also locks 16 GB at 4 GB/s = 4 s."""
    row = rows_of("openrlhf")["engine weights"]
    assert row.offload_seconds == pytest.approx(16 / 12)
    assert row.onload_seconds == pytest.approx(16 / 12 + 4)
    assert rows_of("generic")["engine weights"].moved == 0.0


def test_mapping_costs_milliseconds_per_gib() -> None:
    """40 GB of KV at 2 ms/GiB = 74.5 ms."""
    row = rows_of("generic", replace(LINK, map_per_byte=2e-3 / 2**30))["KV cache"]
    assert row.offload_seconds == pytest.approx(0.0745, rel=1e-3)


def test_verl_megatron_moves_its_optimizer_through_pageable_memory() -> None:
    assert not order_of("verl", "megatron").optimizer_pinned
    assert order_of("verl", "fsdp2").optimizer_pinned


def test_gradients_are_copied_only_where_the_framework_does() -> None:
    assert rows_of("generic")["gradients"].moved == 0.0
    assert rows_of("openrlhf")["gradients"].moved == 4e9


def test_what_the_scenario_keeps_does_not_move() -> None:
    assert set(rows_of("generic", optimizer=False, parameters=False, gradients=False)) == {
        "engine weights",
        "KV cache",
    }


def test_scaling_multiplies_every_duration() -> None:
    link = replace(LINK, map_per_byte=2e-12, fixed=0.3)
    cost = switch(tuple(rows_of("nemo-rl", link).values()), link, needed=False)
    twice = cost.scaled(2.0)
    assert twice.offload_seconds == 2 * cost.offload_seconds
    assert sum(twice.parts.values()) == pytest.approx(2 * (cost.offload_seconds + cost.onload_seconds))
