"""Points of grids and samples, and the keys and figures that people name."""

from __future__ import annotations

import math

import pytest

from rlsim.catalog.profiles import profile
from rlsim.errors import UserError
from rlsim.plan.figures import figure
from rlsim.plan.keys import resolve_key
from rlsim.plan.space import axis, space
from rlsim.scenario.quantity import RATE, parse

GENERIC = profile("generic")


def test_a_grid_is_every_combination_the_last_axis_fastest() -> None:
    points = space(["nic=25GB/s,50GB/s", "trainer.tp=1,2,4"], GENERIC).points()
    assert len(points) == 6
    assert points[1] == (("cluster.nic", "25GB/s"), ("trainer.tp", "2"))
    assert points[3] == (("cluster.nic", "50GB/s"), ("trainer.tp", "1"))


def test_commas_inside_brackets_do_not_separate() -> None:
    one = axis("workload.response_tokens={mean: 900, max: 4096},{trace: 'a,b.csv'}", GENERIC)
    assert one.values == ("{mean: 900, max: 4096}", "{trace: 'a,b.csv'}")


def test_a_latin_hypercube_has_one_point_in_every_slice_of_every_axis() -> None:
    n = 20
    points = space(["nic=10GB/s..160GB/s:log", "rollout.memory_utilization=0.5..0.9"], GENERIC, "lhs", n, 3).points()
    shares = [math.log(parse(point[0][1], RATE) / 10e9) / math.log(16) for point in points]
    assert sorted(int(share * n) for share in shares) == list(range(n))
    assert sorted(int((float(p[1][1]) - 0.5) / 0.4 * n) for p in points) == list(range(n))


@pytest.mark.parametrize("sampler", ["random", "lhs"])
def test_samples_depend_on_their_seed_alone(sampler: str) -> None:
    over = ["trainer.micro_batch_tokens=1024..8192", "schedule=sync,async"]
    drawn = [space(over, GENERIC, sampler, 30, seed).points() for seed in (0, 0, 1)]  # type: ignore[arg-type]
    assert drawn[0] == drawn[1] != drawn[2]
    assert all(1024 <= int(p[0][1]) <= 8192 for p in drawn[0])
    assert {p[1][1] for p in drawn[0]} == {"sync", "async"}


@pytest.mark.parametrize(
    ("text", "key"),
    [
        ("gpus", "cluster.gpus"),
        ("response_tokens.p99", "workload.response_tokens.p99"),
        ("max_staleness", "async.max_staleness"),
        ("trainer.tp", "trainer.tp"),
        ("rollout[0].tp", "rollout[0].tp"),
        ("variants.async.trainer.gpus", "variants.async.trainer.gpus"),
        ("cluster.pools.h20.gpus", "cluster.pools.h20.gpus"),
        ("profile.gemm_derate", "profile.gemm_derate"),
    ],
)
def test_short_names_stand_for_their_key(text: str, key: str) -> None:
    assert resolve_key(text, "--over", GENERIC) == key


@pytest.mark.parametrize(
    ("over", "sampler", "words"),
    [
        (["tp=1,2"], "grid", ("trainer.tp, rollout.tp", "Fix: the whole key")),
        (["nicc=1"], "grid", ("no key 'nicc'", "nic")),
        (["profile.gemm_derat=1"], "grid", ("gemm_derate",)),
        (["nic"], "grid", ("not KEY=VALUES",)),
        (["nic=25GB/s,"], "grid", ("an empty value",)),
        (["nic=25GB/s..50GB/s"], "grid", ("--lhs 20",)),
        (["nic=50GB/s..25GB/s"], "lhs", ("not below",)),
        (["nic=25..50"], "lhs", ("has no unit",)),
        (["nic=25 GHz..50 GB/s"], "lhs", ("25 GHz",)),
        (["schedule=a..b"], "lhs", ("'a' is not a number",)),
        (["schedule=1..2"], "lhs", ("a range makes no sense",)),
        (["async.theta=0..1:log"], "lhs", ("logarithm",)),
        (["nic=25GB/s", "cluster.nic=50GB/s"], "grid", ("given twice",)),
        ([], "grid", ("nothing to vary",)),
    ],
)
def test_mistakes_say_what_would_be_right(over: list[str], sampler: str, words: tuple[str, ...]) -> None:
    with pytest.raises(UserError) as error:
        space(over, GENERIC, sampler, 10)  # type: ignore[arg-type]
    for word in words:
        assert word in str(error.value)


def test_figures_by_their_json_names_or_short() -> None:
    assert figure("step_time") == figure("step_time_s") == "step_time_s.mean"
    assert figure("usd_per_step") == "cost.usd_per_step"
    assert figure("tail.share") == "tail.share"
    with pytest.raises(UserError, match=r"phases_s\.weight_sync"):
        figure("phases_s.weight_synk")
    with pytest.raises(UserError, match="may be any of"):
        figure("p90")
