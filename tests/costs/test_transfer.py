"""Weight sync of whole systems: exact bytes, floors, strategies side by side."""

from __future__ import annotations

import pytest

from rlsim.costs.transfer import sync_cost, weight_sync_cost
from rlsim.costs.transfer_build import sync_case
from rlsim.costs.transfer_strategies import COLOCATED, DISAGGREGATED, engine_load
from rlsim.errors import UserError
from tests.costs.systems import DEEPSEEK_V3, LLAMA_70B, QWEN_7B, system


def test_70b_moves_141_gb_and_17_6_into_each_gpu() -> None:
    """70,553,706,496 * 2 B = 141.107 GB. TP=8: a GPU gets an eighth of all but the 161 norms of 8,192, which it
    gets whole: (141.107e9 - 161*8192*2)/8 + 161*8192*2 = 17.6407 GB; a node gets the model once: 0.3528 s.
    """
    cost = weight_sync_cost(system(LLAMA_70B))
    assert cost.bytes_total == 141_107_412_992
    norms = 161 * 8192 * 2
    assert cost.bytes_max_per_gpu == (141_107_412_992 - norms) / 8 + norms
    assert cost.bytes_max_per_gpu == pytest.approx(17.64e9, rel=1e-3)
    assert cost.floor_seconds == pytest.approx(0.3528, rel=1e-3)


def test_every_strategy_is_listed_and_above_the_floor() -> None:
    cost = weight_sync_cost(system(LLAMA_70B))
    assert set(cost.alternatives) == {*DISAGGREGATED, "delta"}
    assert min(cost.alternatives[name] for name in DISAGGREGATED) >= cost.floor_seconds
    assert cost.alternatives[cost.strategy] == cost.seconds
    assert cost.alternatives["p2p"] < cost.alternatives["broadcast"]


@pytest.mark.parametrize("text", [LLAMA_70B, QWEN_7B, DEEPSEEK_V3])
def test_parts_add_up_and_the_transfer_is_within_the_whole(text: str) -> None:
    cost = weight_sync_cost(system(text))
    assert sum(cost.parts.values()) == pytest.approx(cost.seconds)
    assert sum(cost.sources.values()) == pytest.approx(cost.seconds)
    assert cost.floor_seconds <= cost.transfer_seconds <= cost.seconds


def test_colocated_strategies() -> None:
    cost = weight_sync_cost(system(QWEN_7B))
    assert cost.strategy == "ipc"
    assert set(cost.alternatives) == set(COLOCATED)


def test_colocated_floor_leaves_out_what_the_node_holds() -> None:
    """8 of 64 shards lie on the node: 7/8 * 15.23 GB / 400 GB/s = 0.0333 s."""
    assert weight_sync_cost(system(QWEN_7B)).floor_seconds == pytest.approx(0.0333, rel=5e-3)


def test_verl_sends_what_fsdp_stores() -> None:
    """fp32 storage: 4 B/parameter on the wire, unless the scenario says otherwise; others cast to bf16."""
    generic, verl = system(QWEN_7B), system(QWEN_7B, "framework=verl")
    cast = system(QWEN_7B, "framework=verl", "weight_sync.wire_dtype=bf16")
    bf16 = system(QWEN_7B, "framework=verl", "trainer.param_dtype=bf16")
    total = weight_sync_cost(generic).bytes_total
    assert weight_sync_cost(verl).bytes_total == 2 * total
    assert weight_sync_cost(cast).bytes_total == total
    assert weight_sync_cost(bf16).bytes_total == total


def test_slime_quantises_at_the_source() -> None:
    """An FP8 engine gets half the bytes; block scales, embeddings, norms and the router keep it above a half."""
    bf16 = weight_sync_cost(system(DEEPSEEK_V3, "framework=nemo-rl"))
    fp8 = weight_sync_cost(system(DEEPSEEK_V3, "framework=slime"))
    assert 0.5 < fp8.bytes_total / bf16.bytes_total < 0.51


def test_an_engine_that_is_sent_bf16_quantises_its_own_slice() -> None:
    """70B in bf16 into FP8 engines of TP 8: 17.64 GB a GPU at 30 GB/s, 0.588 s more in the load; slime sends FP8."""
    fp8, bf16 = sync_case(system(LLAMA_70B, "rollout.dtype=fp8")), sync_case(system(LLAMA_70B))
    assert fp8.model_bytes == bf16.model_bytes
    assert engine_load(fp8, fp8.model_bytes) - engine_load(bf16, bf16.model_bytes) == pytest.approx(0.588, rel=1e-3)
    for strategy in DISAGGREGATED:
        assert sync_cost(fp8, strategy).parts["load"] > sync_cost(bf16, strategy).parts["load"]
    # instances that copy from the first one get what is quantised already
    peers = [sync_cost(case, "p2p-replicate").parts["replicate"] for case in (fp8, bf16)]
    assert peers[0] == peers[1]
    source = sync_case(system(LLAMA_70B, "rollout.dtype=fp8", "framework=slime"))
    assert not any(r.quantises for r in source.receivers)


def test_bucket_of_the_scenario_or_of_the_framework() -> None:
    assert sync_case(system(LLAMA_70B, "framework=slime")).bucket == 512 * 2**20
    assert sync_case(system(LLAMA_70B, "framework=slime", "weight_sync.bucket=2 GiB")).bucket == 2 * 2**30


def test_overlap_adds_a_swap_and_hides_the_transfer() -> None:
    """The copy out of the second buffer: 2 * 17.64 GB / 3.35 TB/s = 10.5 ms."""
    plain = weight_sync_cost(system(LLAMA_70B, "schedule=async"))
    double = weight_sync_cost(system(LLAMA_70B, "schedule=async", "weight_sync.overlap=true"))
    assert double.seconds - plain.seconds == pytest.approx(0.01053, rel=1e-2)
    assert double.pause_seconds == pytest.approx(plain.pause_seconds + 0.01053, rel=1e-2)


def test_overlap_costs_nothing_where_nobody_generates_meanwhile() -> None:
    for schedule in ("sync", "one-step-off"):
        plain = weight_sync_cost(system(LLAMA_70B, f"schedule={schedule}"))
        assert weight_sync_cost(system(LLAMA_70B, f"schedule={schedule}", "weight_sync.overlap=true")) == plain


def test_a_strategy_that_the_placement_forbids_is_the_users_mistake() -> None:
    with pytest.raises(UserError):
        weight_sync_cost(system(QWEN_7B, "weight_sync.strategy=broadcast"))


def test_faster_nics_never_slow_a_sync() -> None:
    slow, fast = system(LLAMA_70B), system(LLAMA_70B, "cluster.nic=100 GB/s")
    before, after = weight_sync_cost(slow).alternatives, weight_sync_cost(fast).alternatives
    assert all(after[name] <= before[name] for name in before)


def test_scaling_multiplies_every_duration() -> None:
    cost = weight_sync_cost(system(LLAMA_70B))
    twice = cost.scaled(2.0)
    assert (twice.seconds, twice.floor_seconds) == (2 * cost.seconds, 2 * cost.floor_seconds)
    assert sum(twice.parts.values()) == pytest.approx(twice.seconds)


def test_what_lacks_to_the_floor_is_put_on_the_links() -> None:
    """With perfect software nothing but links is left, and they are not below the floor."""
    case = sync_case(system(LLAMA_70B))
    for strategy in DISAGGREGATED:
        cost = sync_cost(case, strategy)
        assert cost.transfer_seconds >= cost.floor_seconds * (1 - 1e-12)
