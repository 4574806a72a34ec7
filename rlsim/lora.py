"""Low-rank adapters: which weights have one, and how large it is.

The adapter of a weight W [out, in] is A [r, in] and B [out, r]; the layer computes W·x + B·(A·x), and only A and B are
trained (Hu et al. 2021). On a tensor-parallel rank A has the rank's columns of W and B its rows. Llama-3.1-8B with
r = 16 on all linear layers: 32 · 16 · Σ (out + in) = 41.9 M parameters.
"""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from rlsim.architecture import ModelSpec
from rlsim.catalog.switch_orders import SwitchOrder, order_of
from rlsim.errors import UserError
from rlsim.grids import TrainLayout
from rlsim.shards import Grid, WeightClass, layer_count, train_box, weight_classes
from rlsim.slices import RankParams, unsharded

if TYPE_CHECKING:
    from rlsim.scenario.schema import Lora, Scenario

ALL_LINEAR = "all-linear"
LINEAR = ("attention", "mlp", "shared_expert", "expert")
"""Parts of the model whose matrices `all-linear` means: not the router, nor embedding and head."""


class Adapted(NamedTuple):
    """A rank's slice of a weight that has an adapter: `experts` matrices of rows × cols in each layer."""

    cls: WeightClass
    experts: int
    rows: int
    cols: int


def module_name(cls: WeightClass) -> str:
    """self_attn.q_proj.weight -> q_proj, mlp.experts.gate_up_proj[*] -> gate_up_proj."""
    return cls.name.removesuffix(".weight").removesuffix("[*]").rsplit(".", 1)[-1]


@lru_cache(maxsize=64)
def adapted(m: ModelSpec, targets: str | tuple[str, ...]) -> tuple[WeightClass, ...]:
    """The weights with adapters. Raises `UserError` for a target that is no linear layer of the model."""
    linear = [cls for cls in weight_classes(m) if cls.part in LINEAR and min(cls.rows, cls.cols) > 1]
    if targets == ALL_LINEAR:
        return tuple(linear)
    asked = (targets,) if isinstance(targets, str) else targets
    known = sorted({module_name(cls) for cls in linear})
    for target in asked:
        if target not in known:
            listed = ", ".join(known)
            raise UserError(
                f"{m.name} has no linear layer {target}",
                key="model.lora.targets",
                fix=f"{ALL_LINEAR}, or some of {listed}",
            )
    return tuple(cls for cls in linear if module_name(cls) in asked)


def adapter_parameters(m: ModelSpec, lora: Lora) -> int:
    """Σ over layers and experts of r·(out + in)."""
    return sum(_copies(cls, m) * lora.rank * (cls.rows + cls.cols) for cls in adapted(m, lora.targets))


def adapter_tensors(m: ModelSpec, lora: Lora) -> int:
    """A and B of every adapted weight."""
    return sum(2 * _copies(cls, m) for cls in adapted(m, lora.targets))


def _copies(cls: WeightClass, m: ModelSpec) -> int:
    return cls.experts * sum(layer.moe == (cls.place == "moe") for layer in m.layers)


@lru_cache(maxsize=256)
def rank_slices(m: ModelSpec, layout: TrainLayout, lora: Lora) -> tuple[Adapted, ...]:
    """What a rank's adapters are attached to, before any sharding over data parallelism."""
    zero = np.zeros(1, dtype=np.int64)
    grid = Grid(zero, zero, zero, zero, zero, zero, zero, zero)
    found = []
    for cls in adapted(m, lora.targets):
        box = train_box(cls, unsharded(layout), grid, m.attention)
        experts, rows, cols = (int(hi[0] - lo[0]) for lo, hi in zip(box[::2], box[1::2], strict=True))
        found.append(Adapted(cls, experts, rows, cols))
    return tuple(found)


@lru_cache(maxsize=256)
def adapter_params(m: ModelSpec, layout: TrainLayout, stage: int, lora: Lora) -> RankParams:
    """Adapter parameters of one rank of a pipeline stage: r·(rows + cols) of each slice."""
    held = {"dense": 0, "expert": 0}
    for one in rank_slices(m, layout, lora):
        layers = int(layer_count(one.cls, layout.stages, m)[stage])
        held["expert" if one.cls.part == "expert" else "dense"] += (
            layers * one.experts * lora.rank * (one.rows + one.cols)
        )
    return RankParams(**held)


# What it means for the scenario ----------


def engine_keeps_base(scenario: Scenario) -> bool:
    """Adapters are all that the engines get: their base weights are never sent again, and adapters run beside them."""
    lora = scenario.model.lora
    return lora is not None and lora.sync == "adapter"


def reference_is_base(scenario: Scenario) -> bool:
    """The reference model is the policy with its adapters off: it needs no weights of its own."""
    return scenario.model.lora is not None


def switch_order(scenario: Scenario, backend: str) -> SwitchOrder:
    """The framework's habits; an engine that gets adapters alone keeps its base on the host asleep (level 1)."""
    order = order_of(scenario.framework.name, backend)
    return replace(order, sleep_level=1) if engine_keeps_base(scenario) else order
