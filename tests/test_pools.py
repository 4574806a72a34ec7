"""Systems of several pools: hardware, layouts, memory, price and utilisation, each by its own pool."""

from __future__ import annotations

import pytest

from rlsim.api import check, simulate
from rlsim.costs.kv_transfer import kv_transfer
from rlsim.errors import UserError
from rlsim.memory import check_memory
from rlsim.pricing import price
from rlsim.scenario.load import loads_scenario
from rlsim.scenario.schema import Scenario
from rlsim.system import resolve
from rlsim.workload import workload_lengths

TEXT = """
name: pools
model: Qwen/Qwen2.5-7B
cluster:
  pools:
    train: {gpu: h100-sxm, gpus: 8, gpu_hour: 3 $/h}
    roll: {gpu: h20, gpus: 16, nic: 25 GB/s, gpus_per_node: 4, gpu_hour: 1 $/h}
workload: {prompts: 16, group_size: 4, prompt_tokens: {mean: 200, max: 1024}, response_tokens: {mean: 500, max: 2048}}
placement: disaggregated
trainer: {pool: train, backend: fsdp2}
rollout: [{pool: roll, gpus: 8, tp: 1, kernels}, {pool: roll, gpus: 8, tp: 4}]
costs: {kernels: roofline}
run: {steps: 2}
""".replace(", kernels", "")


def scenario(*overrides: str) -> Scenario:
    return loads_scenario(TEXT, overrides=overrides).variants[0]


def test_parts_have_their_own_pool() -> None:
    system = resolve(scenario())
    assert (system.trainer_pool.name, system.trainer_pool.gpu.name) == ("train", "h100-sxm")
    assert [(p.pool.name, p.pool.gpu.name, p.pool.nic, p.layout.engines) for p in system.rollout] == [
        ("roll", "h20", 25e9, 8),
        ("roll", "h20", 25e9, 2),
    ]
    assert system.trainer.gpus_per_node == 8
    assert system.rollout[0].layout.gpus_per_node == 4


def test_gpu_hours_cost_what_their_pool_says() -> None:
    """8·3 $/h + 16·1 $/h = 40 $/h for 24 GPUs; `costs.gpu_hour` holds where a pool gives no price of its own."""
    system = resolve(scenario())
    costs = price(system, check_memory(system), workload_lengths(system.scenario.workload))
    assert costs.hourly == {"train": 24.0, "roll": 16.0}
    assert costs.gpu_hour == pytest.approx(40 / 24)
    flat = resolve(scenario("costs.gpu_hour=2 $/h", "cluster.pools.train={gpu: h100-sxm, gpus: 8}"))
    assert flat.hourly() == {"train": 16.0, "roll": 16.0}


def test_kv_tokens_are_each_entrys_own() -> None:
    """TP 4 has a quarter of the weights on a GPU, hence more KV cache; the summary's one figure is the tightest's."""
    result = simulate(scenario())
    summary = result.summary()
    small, large = summary["engines"]
    assert small["kv_tokens_per_engine"] < large["kv_tokens_per_engine"]
    assert summary["kv_tokens_per_engine"] == small["kv_tokens_per_engine"]
    surfaces = [surface for surface, _ in result.costs.engines]
    assert [s.kv_capacity_tokens for s in surfaces] == [e["kv_tokens_per_engine"] for e in summary["engines"]]
    assert 0 < summary["utilization"]["rollout"] <= 1
    assert sum(summary["cost"]["usd_by_pool"].values()) == pytest.approx(summary["cost"]["usd_per_step"])


def test_a_busy_engine_counts_by_its_gpus() -> None:
    """8 engines of 1 GPU and 2 of 4: 1.6 GPUs on average, so their weights are 0.625 and 2.5."""
    system = resolve(scenario())
    costs = price(system, check_memory(system), workload_lengths(system.scenario.workload))
    assert costs.engine_weights() == pytest.approx((0.625, 2.5))


def test_what_does_not_fit_names_the_entry() -> None:
    """70B in bf16 is 141 GB: TP 2 on 96 GB H20 holds it, one GPU only in FP8."""
    big = ("cluster.pools.train={gpu: h200, gpus: 64}", "trainer.gpus=64", "workload.prompts=64")
    report = check(scenario("model=meta-llama/Llama-3.1-70B", *big)).memory
    roles = {p.role: p for p in report.problems}
    assert set(roles) == {"rollout[0]"}
    assert roles["rollout[0]"].fix.startswith("rollout[0].")


def test_an_unknown_gpu_names_its_pool() -> None:
    with pytest.raises(UserError) as caught:
        resolve(scenario("cluster.pools.roll.gpu=h21"))
    assert "cluster.pools.roll.gpu" in str(caught.value)


def test_a_pool_alike_is_the_cluster() -> None:
    """The same GPUs, written as one kind or as two pools: the same figures."""
    one = TEXT.replace(TEXT[TEXT.index("cluster:") : TEXT.index("workload:")], "cluster: {gpu: h20, gpus: 24}\n")
    one = one.replace("pool: train, ", "").replace("pool: roll, ", "")
    two = TEXT.replace("h100-sxm", "h20").replace(", nic: 25 GB/s, gpus_per_node: 4, gpu_hour: 1 $/h", "")
    two = two.replace(", gpu_hour: 3 $/h", "")
    a, b = (simulate(loads_scenario(text).variants[0]).summary() for text in (one, two))
    for key in ("step_time_s", "phases_s", "utilization", "weight_sync", "memory_gib", "mfu_train"):
        assert a[key] == b[key]
    assert a["cost"]["usd_per_step"] == pytest.approx(b["cost"]["usd_per_step"])


def test_kv_between_pools_takes_their_link() -> None:
    """8 prefill ranks share 8 GB/s: 1 GB/s each at 0.85, and 10 ms more; without a link 0.85 of the 25 GB/s NICs."""
    split = TEXT.replace(
        "tp: 1}, {pool: roll, gpus: 8, tp: 4}", "tp: 1, role: prefill}, {pool: more, gpus: 8, role: decode}"
    )
    split = split.replace("  pools:\n", "  pools:\n    more: {gpu: h20, gpus: 8}\n")
    line = "cluster.links=[{between: [roll, more], bandwidth: 8 GB/s, latency: 10 ms}]"
    plain, linked = (kv_transfer(resolve(loads_scenario(split, overrides=o).variants[0])) for o in ((), (line,)))
    assert plain is not None
    assert linked is not None
    assert plain.rate == pytest.approx(0.85 * 25e9)
    assert linked.rate == pytest.approx(0.85e9)
    assert linked.latency == pytest.approx(plain.latency + 0.010)
