from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rlsim.scenario.geometry import engine_geometry
from rlsim.scenario.quantity import MistakeError


def _four(**entry: int) -> tuple[int, int, int, int]:
    found = engine_geometry(entry)
    assert not {"tp", "ep"} & found.keys()
    return found["attn_tp"], found["attn_dp"], found["moe_tp"], found["moe_ep"]


def test_nothing_written_is_one_gpu() -> None:
    assert _four() == (1, 1, 1, 1)


def test_tp_is_short_for_both() -> None:
    assert _four(tp=8) == (8, 1, 8, 1)
    assert _four(tp=8, ep=4) == (8, 1, 2, 4)


def test_attention_dp_with_experts() -> None:
    assert _four(attn_tp=1, attn_dp=32, moe_ep=32) == (1, 32, 1, 32)
    assert _four(attn_tp=2, attn_dp=4, moe_ep=2) == (2, 4, 4, 2)
    assert _four(attn_dp=8, ep=8) == (1, 8, 1, 8)
    assert _four(moe_ep=8, attn_dp=4) == (2, 4, 1, 8)
    assert _four(attn_tp=4, moe_tp=2) == (4, 1, 2, 2)


@given(*[st.sampled_from([1, 2, 4, 8]) for _ in range(3)])
def test_both_products_are_the_engine(attn_tp: int, attn_dp: int, moe_ep: int) -> None:
    stage = attn_tp * attn_dp
    if stage % moe_ep:
        with pytest.raises(MistakeError):
            _four(attn_tp=attn_tp, attn_dp=attn_dp, moe_ep=moe_ep)
    else:
        assert _four(attn_tp=attn_tp, attn_dp=attn_dp, moe_ep=moe_ep) == (attn_tp, attn_dp, stage // moe_ep, moe_ep)


@pytest.mark.parametrize(
    "entry", [{"tp": 8, "ep": 3}, {"tp": 8, "attn_dp": 2}, {"ep": 2, "moe_ep": 2}, {"attn_dp": 32, "moe_ep": 24}]
)
def test_what_contradicts_itself(entry: dict[str, int]) -> None:
    with pytest.raises(MistakeError) as caught:
        engine_geometry(entry)
    assert caught.value.fix


def test_other_types_are_left_to_the_schema() -> None:
    assert engine_geometry({"tp": "eight"}) == {"tp": "eight"}
