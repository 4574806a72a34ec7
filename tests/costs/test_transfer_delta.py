"""Delta sync: bytes, break-even, dense first sync; and the process group built anew."""

from __future__ import annotations

from dataclasses import replace

import pytest

from rlsim.costs.transfer import first_sync_cost, weight_sync_cost
from rlsim.costs.transfer_delta import break_even, delta, delta_bytes
from rlsim.costs.transfer_group import group_seconds
from rlsim.costs.transfer_links import behind
from rlsim.costs.transfer_strategies import STRATEGIES
from rlsim.errors import UserError
from tests.costs.systems import LLAMA_70B, QWEN_7B, system
from tests.costs.transfer_cases import MODEL_70B, case_70b


def test_bytes_by_index() -> None:
    """70.55e9 values, 2% changed, 4 + 2 bytes each: 8.466 GB instead of 141.1; a third changed is as much as all."""
    case = case_70b()
    assert delta_bytes(case) == pytest.approx(8.466e9)
    assert delta_bytes(replace(case, changed=1 / 3)) == pytest.approx(MODEL_70B)


def test_bytes_by_zstd() -> None:
    """H(0.02) = 0.1414 bit = 0.01768 B, + 0.02·2 B values = 0.05768 B a value, / 0.8: 5.09 GB of 70.55e9 values."""
    assert delta_bytes(replace(case_70b(), encoding="zstd")) == pytest.approx(5.086e9, rel=1e-3)


def test_published_delta_syncs() -> None:
    """verl docs at 1dda039, FSDP2 in bf16 on H100: 72B on 32 + 32 GPUs 12.0-13.0 s, 30B-A3B on 8 + 8 7.1 s."""
    text = """
model: MODEL
framework: verl
cluster: {gpu: h100-sxm, gpus: GPUS, nic: 50 GB/s}
placement: disaggregated
trainer: {gpus: HALF, backend: fsdp2, param_dtype: bf16, ep: EP}
rollout: {gpus: HALF, engine: sglang, tp: TP}
weight_sync: {strategy: delta}
"""
    rows = [("Qwen/Qwen2.5-72B", 32, 8, 1, 12.5), ("Qwen/Qwen3-30B-A3B", 8, 1, 8, 7.1)]
    for model, half, tp, ep, seconds in rows:
        pairs = {"MODEL": model, "GPUS": 2 * half, "HALF": half, "TP": tp, "EP": ep}
        filled = text
        for name, value in pairs.items():
            filled = filled.replace(name, str(value))
        cost = weight_sync_cost(system(filled))
        assert cost.seconds == pytest.approx(seconds, rel=0.15)
        assert cost.delta is not None
        assert cost.delta.full_seconds > 2 * cost.seconds


def test_below_the_break_even_the_delta_is_faster() -> None:
    case = replace(case_70b(), profile=system(LLAMA_70B).profile)
    rate = break_even(case, "broadcast")
    assert rate is not None
    slower, faster = behind(case, 0.9 * rate), behind(case, 1.1 * rate)
    assert delta(slower).seconds < STRATEGIES["broadcast"](slower).seconds
    assert delta(faster).seconds > STRATEGIES["broadcast"](faster).seconds


def test_break_even_on_paper() -> None:
    """Perfect software but for a delta handled at 8.466 GB/s (1 s) and the shard's diff (2.2 GB at the host rate).

    Full: P/b of the wire alone. Delta: the slowest of its stages and one bucket of the others, about 1 s. So level
    near b = 141.1 GB / 1.0 s, as far as the NICs (400 GB/s of a node) do not bind: between 100 and 141 GB/s.
    """
    case = case_70b()
    case = replace(case, profile=case.profile.with_values(delta_rate=8.466e9))
    rate = break_even(case, "broadcast")
    assert rate is not None
    assert 100e9 < rate < 142e9


def test_the_first_sync_is_dense() -> None:
    cost, first = (f(system(LLAMA_70B, "weight_sync.strategy=delta")) for f in (weight_sync_cost, first_sync_cost))
    assert cost is not None
    assert first is not None
    assert (cost.strategy, first.strategy) == ("delta", "broadcast")
    assert first.seconds == weight_sync_cost(system(LLAMA_70B)).seconds
    assert first_sync_cost(system(LLAMA_70B)) is None
    # its floor is that of the bytes that it sends
    assert cost.floor_seconds == pytest.approx(0.06 * first.floor_seconds)


def test_no_delta_where_nothing_is_sent_between_roles() -> None:
    assert weight_sync_cost(system(QWEN_7B)).delta is None
    with pytest.raises(UserError):
        weight_sync_cost(system(QWEN_7B, "weight_sync.strategy=delta"))


def test_a_group_built_anew_takes_seconds_by_its_ranks() -> None:
    """8 senders of the root's node + 32 engine GPUs: 1 + 40·0.01 = 1.4 s; engines stand still for it."""
    plain = weight_sync_cost(system(LLAMA_70B, "schedule=async"))
    anew = weight_sync_cost(system(LLAMA_70B, "schedule=async", "weight_sync.rebuild_group=true"))
    assert anew.group_seconds == pytest.approx(1.4)
    assert anew.seconds == pytest.approx(plain.seconds + 1.4)
    assert anew.transfer_seconds == pytest.approx(plain.transfer_seconds)
    assert anew.alternatives["filesystem"] == plain.alternatives["filesystem"]


def test_hundreds_of_ranks_take_one_to_ten_seconds() -> None:
    case = replace(case_70b(32), profile=system(LLAMA_70B).profile)
    assert 1 < group_seconds(case, "broadcast") < 10
    assert group_seconds(case, "filesystem") == 0
