"""The ablation ladder: each modelled effect switched off in the real model, and the error that whole steps then have.

An effect goes by parameters of the profile (seconds of host time, rates, factors) or by the scenario (network cards,
memory, spread of the lengths). Nothing is fitted again.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from rlsim import catalog
from validation import score
from validation.published import nemo_rl, simulation
from validation.published.records import Record
from validation.score import Score

NONE, ENDLESS = 1e-12, 1e18
Scenario = dict[str, Any]


@dataclass(frozen=True)
class Effect:
    """`values`: profile parameters without the effect; `change`: what becomes of the scenario."""

    name: str
    values: Mapping[str, float] = field(default_factory=dict)
    change: Callable[[Scenario], Scenario] | None = None


def one_card(scenario: Scenario) -> Scenario:
    """One network card for a whole node."""
    cluster = scenario["cluster"]
    card = catalog.gpu(cluster["gpu"]).nic_bandwidth
    cluster["nic"] = f"{card / cluster['gpus_per_node'] / 1e9} GB/s"
    return scenario


def endless_memory(scenario: Scenario) -> Scenario:
    """No KV limit, so no waves and no preemption."""
    scenario["cluster"]["hbm"] = "2000 GB"
    return scenario


def same_lengths(scenario: Scenario) -> Scenario:
    """Every response of the mean length."""
    work = scenario["workload"]
    work["response_tokens"] = {"distribution": "constant", "mean": int(work["response_tokens"]["mean"])}
    return scenario


EFFECTS = (
    Effect("everything on"),
    Effect("weight sync (refit)", {
        "refit_gather_rate": ENDLESS, "refit_fsdp_gather_rate": ENDLESS, "refit_fixed_s": NONE,
        "refit_per_tensor_s": NONE, "refit_fsdp_per_tensor_s": NONE, "refit_per_bucket_s": NONE,
        "refit_load_rate": ENDLESS, "refit_ipc_rate": ENDLESS,
    }),
    Effect("engine host time", {"engine_step_base_s": NONE, "engine_step_per_seq_s": NONE}),
    Effect("MoE floor and host synchronisation", {"moe_layer_floor_s": NONE, "moe_layer_sync_s": NONE}),
    Effect("expert imbalance", {"expert_imbalance": 1.0}),
    Effect("GEMM derate and power limit", {
        "gemm_derate": 1.0, "flop_joules_hopper": 0.3e-12, "flop_joules_blackwell": 0.2e-12,
    }),
    Effect("all cards of a node (one instead)", change=one_card),
    Effect("asynchronous path and fixed costs", {
        "async_step_fixed_s": NONE, "async_sample_overhead_s": NONE, "step_fixed_s": NONE,
        "update_fixed_s": NONE, "logprob_fixed_s": NONE,
    }),
    Effect("KV limit, waves and preemption", change=endless_memory),
    Effect("spread of the lengths", change=same_lengths),
    Effect("spread of the GPUs' speed", {"gpu_speed_spread": NONE}),
    Effect("host time of micro-batches and layers", {"microbatch_host_s": NONE, "layer_floor_s": NONE}),
    Effect("passes over the logits", {"logits_passes": NONE}),
)  # fmt: skip


@dataclass(frozen=True)
class Rung:
    """Errors of all steps without one effect; `shift`: median change of the predicted time."""

    name: str
    score: Score
    shift: float


def ladder(records: Sequence[Record], processes: int = 1) -> list[Rung]:
    """One rung per effect, over all recipes among the records."""
    recipes = [record for record in records if "resolved_recipe" in record.config]
    if not recipes:
        return []
    one = partial(_without, recipes)
    if processes == 1:
        found = [one(effect) for effect in range(len(EFFECTS))]
    else:
        with ProcessPoolExecutor(processes) as pool:
            found = list(pool.map(one, range(len(EFFECTS))))
    rungs = []
    for effect, errors in zip(EFFECTS, found, strict=True):
        shifts = sorted((1 + e) / (1 + whole) - 1 for e, whole in zip(errors, found[0], strict=True))
        own = score.score(errors)
        if own is not None:
            rungs.append(Rung(effect.name, own, shifts[len(shifts) // 2]))
    return rungs


def _without(records: Sequence[Record], index: int) -> list[float]:
    """Errors of all records without one effect."""
    effect = EFFECTS[index]
    errors = []
    for record in records:
        scenario = copy.deepcopy(nemo_rl.scenario(record))
        if effect.change:
            scenario = effect.change(scenario)
        seconds = simulation.predict(scenario, effect.values).seconds
        errors.append(seconds / float(record.measured["total_step_time_s"]) - 1)
    return errors
