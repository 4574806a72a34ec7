from __future__ import annotations

import pytest

from rlsim.errors import UserError
from rlsim.scenario import loads_scenario
from rlsim.scenario.variants import merge, put

from .text import BASE


def test_mappings_merge_and_null_deletes() -> None:
    base = {"a": {"b": 1, "c": 2}, "d": 3}
    assert merge(base, {"a": {"b": 5}, "d": None}) == {"a": {"b": 5, "c": 2}}
    assert base == {"a": {"b": 1, "c": 2}, "d": 3}


def test_lengths_and_pools_are_replaced_whole() -> None:
    lengths = {"workload": {"response_tokens": {"mean": 500, "p99": 1900, "max": 2048}, "prompts": 3}}
    over = {"workload": {"response_tokens": {"mean": 800, "max": 4096}}}
    assert merge(lengths, over)["workload"] == {"response_tokens": {"mean": 800, "max": 4096}, "prompts": 3}
    pools = {"cluster": {"pools": {"train": {"gpu": "h100-sxm", "gpus": 8}, "roll": {"gpu": "h20", "gpus": 8}}}}
    merged = merge(pools, {"cluster": {"pools": {"roll": {"gpu": "l40s"}}}})
    assert merged["cluster"]["pools"] == {"train": {"gpu": "h100-sxm", "gpus": 8}, "roll": {"gpu": "l40s"}}


def test_a_rollout_mapping_merges_into_the_single_entry() -> None:
    text = BASE.replace("rollout: {gpus: 8, tp: 2}", "rollout: [{gpus: 8, tp: 2, max_num_seqs: 64}]")
    together = loads_scenario(text).variant("together").rollout
    assert [(e.gpus, e.attn_tp, e.max_num_seqs) for e in together] == [(16, 2, 64)]


def test_a_model_name_and_a_mapping_merge() -> None:
    file = loads_scenario(BASE + "  named: {model: {base: Qwen/Qwen2.5-3B}}\n  short: {model: Qwen/Qwen2.5-1.5B}\n")
    assert [s.model.base for s in file.variants][2:] == ["Qwen/Qwen2.5-3B", "Qwen/Qwen2.5-1.5B"]


def test_null_restores_the_default() -> None:
    file = loads_scenario(BASE + "  default: {trainer: {tp: null}, async: null}\n")
    assert file.variant("default").trainer.tp == 1
    assert file.variant("default").async_.max_staleness == 1


def test_overrides_win_everywhere_and_reach_one_variant() -> None:
    file = loads_scenario(BASE, overrides=["run.steps=7", "variants.together.trainer.tp=4"])
    assert [s.run.steps for s in file.variants] == [7, 7]
    assert [s.trainer.tp for s in file.variants] == [2, 4]


def test_override_values_are_yaml() -> None:
    file = loads_scenario(
        BASE,
        overrides=["workload.response_tokens={mean: 100, max: 200}", "cluster.nic=25 GB/s", "rollout[0].tp=4"],
    )
    base = file.variants[0]
    assert base.workload.response_tokens.p99 is None  # replaced whole
    assert (base.cluster.nic, base.rollout[0].attn_tp) == (25e9, 4)
    one_key = loads_scenario(BASE, overrides=["workload.response_tokens.p99=1500"]).variants[0]
    assert (one_key.workload.response_tokens.mean, one_key.workload.response_tokens.p99) == (500, 1500)


def test_put_makes_blocks_and_enters_lists() -> None:
    assert put({}, ("a", "b"), 1) == {"a": {"b": 1}}
    assert put({"r": [{"x": 1}, {"x": 2}]}, ("r", "1", "x"), 3) == {"r": [{"x": 1}, {"x": 3}]}
    with pytest.raises(UserError, match="a list of 1 entries"):
        put({"r": [1]}, ("r", "4"), 3)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("  base: {}\n", "the base has this name already"),
        ("  other: 3\n", "not a mapping of keys"),
        ("  other: {name: x}\n", "belongs to the whole file"),
    ],
)
def test_mistakes_in_variants(text: str, says: str) -> None:
    with pytest.raises(UserError, match=says) as caught:
        loads_scenario(BASE + text)
    assert caught.value.line == 17


def test_unknown_variant_names_the_nearest() -> None:
    with pytest.raises(UserError, match="no variant") as caught:
        loads_scenario(BASE).variant("togehter")
    assert caught.value.fix == "together"
