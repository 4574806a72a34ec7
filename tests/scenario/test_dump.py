from __future__ import annotations

from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from rlsim.scenario import dump_yaml, loads_scenario, scenario_from_dict

from .text import BASE

POWERS = st.sampled_from([1, 2, 4, 8])


@st.composite
def scenarios(draw: st.DrawFn) -> dict[str, Any]:
    """Valid scenarios of many shapes."""
    tp, pp, cp = draw(POWERS), draw(POWERS), draw(POWERS)
    gpus = 8 * tp * pp * cp
    engine = draw(
        st.sampled_from([{"tp": 8}, {"tp": 4, "ep": 2}, {"attn_dp": 8, "moe_ep": 8}, {"attn_tp": 2, "pp": 2}])
    )
    colocated = draw(st.booleans())
    budget = draw(st.sampled_from(["micro_batch_tokens", "micro_batch_size"]))
    return {
        "model": "Qwen/Qwen3-8B",
        "cluster": {
            "gpu": "h100-sxm",
            "gpus": 2 * gpus,
            "nic": draw(st.none() | st.floats(1e9, 1e12)),
            "host_memory": draw(st.none() | st.floats(1e9, 1e13)),
        },
        "workload": {
            "prompts": 1024,
            "group_size": draw(st.integers(1, 16)),
            "prompt_tokens": {"mean": draw(st.floats(10, 900)), "max": 1024},
            "response_tokens": draw(st.sampled_from([500, {"mean": 500, "clip_ratio": 0.1, "max": 2048}])),
            "reward": draw(st.sampled_from([{"kind": "rule"}, {"kind": "model", "seconds": 0.25, "workers": 8}])),
            "logprob": draw(st.sampled_from(["recompute", "rollout", "decoupled"])),
        },
        "placement": "colocated" if colocated else "disaggregated",
        "schedule": "sync" if colocated else draw(st.sampled_from(["sync", "one-step-off", "async"])),
        "async": {"partial_rollout": draw(st.booleans()), "max_staleness": draw(st.integers(0, 8))},
        "trainer": {"gpus": gpus, "tp": tp, "pp": pp, "cp": cp, budget: draw(st.integers(1, 99999))},
        "rollout": {"gpus": gpus, **engine},
        "weight_sync": {"bucket": draw(st.floats(1e6, 1e10))},
        "run": {"seed": draw(st.integers(0, 10**6))},
    }


@settings(deadline=None, max_examples=60)
@given(scenarios())
def test_yaml_and_dict_round_trip(data: dict[str, Any]) -> None:
    scenario = scenario_from_dict(data)
    assert scenario_from_dict(scenario.to_dict()) == scenario
    assert loads_scenario(dump_yaml(scenario)).variants == (scenario,)


def test_variants_round_trip_one_by_one() -> None:
    for scenario in loads_scenario(BASE).variants:
        (again,) = loads_scenario(dump_yaml(scenario)).variants
        assert again == scenario
        assert again.variant == scenario.variant


def test_quantities_are_written_with_units() -> None:
    data = loads_scenario(BASE).variants[0].to_dict()
    assert data["cluster"] == {"gpu": "h100-sxm", "gpus": 16, "nic": "50 GB/s"}
    assert "weight_sync" not in data  # all at its defaults
