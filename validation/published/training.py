"""Training-only records: what every converter hands over, and its price.

A converter turns one record into a `TrainingCase`: a scenario whose trainer has the record's layout (the rollout block
is a placeholder), uniform lengths, and what the record says of its stack that a scenario file has no key for.
"""

from __future__ import annotations

import json
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from rlsim import catalog
from rlsim.costs.kernels import kernels_for
from rlsim.costs.offload import host_link
from rlsim.costs.switch_ledger import HostLink
from rlsim.costs.training import StepTime, TrainingCosts
from rlsim.costs.training_memorybound import local_parameters
from rlsim.model import forward_flops
from rlsim.scenario import scenario_from_dict
from rlsim.system import System, resolve

CATALOG = Path(__file__).parents[2] / "rlsim" / "catalog" / "models"
HERE = Path(__file__).parent / "models"

PRETRAINING = {"expert_imbalance": 1.0, "update_fixed_s": 0.03, "microbatch_host_s": 0.002, "logits_passes": 8.0}
"""Pretraining and SFT loops against RL's: routing is balanced by a loss or by force, no mini-batch comes through a
driver, no ratio, KL or entropy is computed over the logits. Each value is the low end of its prior."""
FUSED_LOSS = {"logits_passes": 2.0}
"""A fused cross-entropy reads bf16 logits twice and writes their gradient once: 6 B instead of 4 B a pass."""
OVERLAPPED = {"tp_overlap": 1.0, "tp_pipelined_overlap": 1.0, "dp_overlap": 1.0}
"""Pre-training presets of Megatron hide TP traffic behind GEMMs (user buffers) and DP traffic behind the backward."""
COMPILED = {"elementwise_eager": 1.3}
"""torch.compile fuses element-wise work as Megatron's hand-written kernels do."""


FA2_SHARE = 0.57
"""FlashAttention 2 over 3 on H100 (FlashAttention-3 paper: 1.5 to 2 times faster)."""


def flash_attention_2(gpu: str) -> dict[str, float]:
    """Factors of attention's efficiencies with FlashAttention 2, which runs on Ampere's matrix instructions.

    On Ampere that is all there is, on Hopper two thirds of FlashAttention 3; on Blackwell those instructions have
    Hopper's rate at best, a smaller share of a larger peak.
    """
    peaks = catalog.gpu(gpu).peak_flops
    if "fp8" not in peaks:
        return {}
    share = FA2_SHARE * min(1.0, catalog.gpu("h100-sxm").peak_flops["bf16"] / peaks["bf16"])
    return dict.fromkeys(("attention_forward_efficiency", "attention_backward_efficiency"), share)


def even_stages(model: str, pp: int) -> list[int] | None:
    """Layers by stage where they do not divide: the first stage, then the last, has one less; None where they do."""
    layers = len(catalog.model(model).layers)
    missing = -layers % pp
    if not missing or missing > 2:
        return None
    each = -(-layers // pp)
    return [each - 1, *[each] * (pp - 2), each - (missing > 1)]


@dataclass(frozen=True)
class TrainingCase:
    """One optimizer update of a published training run.

    samples, length  uniform sequences of the global batch, tokens of each
    measured         seconds of the update
    recompute        how much of each recompute setting the stack's own policy is; weights add up to 1
    gpu              datasheet figures of the run's GPU that differ from the catalog's and have no key in a scenario
    profile          what is known of the stack, over the generic profile
    scale            factors of profile values: what the stack does in place of what they stand for
    swapped          bytes per trained parameter that wait on the host and come in for the optimizer step alone
    hidden           parts that the stack hides behind compute, as its source says
    """

    scenario: Mapping[str, Any]
    samples: int
    length: int
    measured: float
    recompute: Mapping[str, float]
    gpu: Mapping[str, float] = field(default_factory=dict)
    profile: Mapping[str, float] = field(default_factory=dict)
    scale: Mapping[str, float] = field(default_factory=dict)
    swapped: float = 0.0
    note: str = ""
    quantity: str = "update_s"
    hidden: tuple[str, ...] = ()


def scenario(
    name: str, model: str | dict[str, Any], cluster: dict[str, Any], trainer: dict[str, Any], samples: int
) -> dict[str, Any]:
    """A scenario around a trainer and its global batch. The rollout block has to be there and is not used.

    `model`: a catalog name, or the model block with its adapters.
    """
    gpus = trainer["gpus"]
    return {
        "name": name,
        "model": model,
        "cluster": {"gpus": gpus, "gpus_per_node": min(8, gpus), **cluster},
        "workload": {
            "prompts": samples,
            "group_size": 1,
            "prompt_tokens": {"distribution": "constant", "mean": 1},
            "response_tokens": {"distribution": "constant", "mean": 1},
        },
        "placement": "colocated",
        "trainer": trainer,
        "rollout": {"gpus": gpus, "tp": 1},
    }


def system(case: TrainingCase, recompute: str, values: Mapping[str, float] | None = None) -> System:
    """The case resolved; `values` are profile parameters in place of the shipped ones (for fitting)."""
    content = dict(case.scenario)
    content["trainer"] = {**content["trainer"], "recompute": recompute}
    resolved = resolve(scenario_from_dict(content))
    known = resolved.profile.with_values(**{**(values or {}), **case.profile})
    known = known.with_values(**{name: factor * known.value(name) for name, factor in case.scale.items()})
    pool = resolved.trainer_pool
    if case.gpu:
        pool = replace(pool, gpu=replace(pool.gpu, **case.gpu))
    return replace(resolved, profile=known, trainer_pool=pool)


def price(case: TrainingCase, values: Mapping[str, float] | None = None) -> tuple[float, float, dict[str, float]]:
    """(seconds, physical floor, seconds by cause) of the case's update."""
    floor = 0.0
    parts: dict[str, float] = {}
    for setting, weight in case.recompute.items():
        step = update(case, setting, values)
        floor = max(floor, step.floor_seconds)
        for part, value in step.parts.items():
            parts[part] = parts.get(part, 0.0) + weight * value
    parts = {part: value for part, value in parts.items() if part not in case.hidden}
    return sum(parts.values()), floor, parts


def work(case: TrainingCase) -> float:
    """Model FLOPs of the update over the dense bf16 peak of all GPUs, seconds."""
    resolved = system(case, "none")
    flops = 3.0 * forward_flops(resolved.model, np.full(case.samples, case.length, dtype=np.int64))
    return float(flops / (resolved.trainer.gpus * resolved.trainer_pool.gpu.peak_flops["bf16"]))


def update(case: TrainingCase, recompute: str, values: Mapping[str, float] | None = None) -> StepTime:
    """One update with one recompute setting."""
    resolved = system(case, recompute, values)
    costs = TrainingCosts(resolved, kernels_for(resolved.trainer_pool.gpu))
    step = costs.update(np.full(case.samples, case.length, dtype=np.int64))
    if not case.swapped:
        return step
    size = case.swapped * max(local_parameters(costs.case, stage) for stage in range(resolved.trainer.pp))
    return replace(step, parts={**step.parts, "swap": swap_seconds(host_link(resolved), size)})


def swap_seconds(link: HostLink, size: float) -> float:
    """Optimizer states in from pinned memory, and out by a pageable copy into memory that is then page-locked."""
    return size * (1 / link.copy_rate(True) + 1 / link.copy_rate(False) + 1 / link.pinned_alloc)


@cache
def _folder() -> tempfile.TemporaryDirectory[str]:
    return tempfile.TemporaryDirectory(prefix="rlsim-validation-")


@cache
def truncated(model: str, layers: int, dense: int | None = None) -> str:
    """Path of the model's config.json with fewer layers, and its first `dense` of them without experts.

    `model`: a file of the catalog, or of the models beside this module, without `.json`.
    """
    file = next(folder / f"{model}.json" for folder in (CATALOG, HERE) if (folder / f"{model}.json").exists())
    facts = json.loads(file.read_text(encoding="utf-8"))
    facts["num_hidden_layers"] = layers
    if dense is not None:
        facts["first_k_dense_replace"] = dense
    target = Path(_folder().name) / f"{model}-l{layers}-d{dense}.json"
    target.write_text(json.dumps(facts), encoding="utf-8")
    return str(target)
