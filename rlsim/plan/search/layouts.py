"""Layouts and settings that a plan tries: every combination of a role's options that its rules of division allow."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import product
from typing import Any

from rlsim.errors import UserError
from rlsim.grids import engine_layout, train_layout
from rlsim.model import ModelSpec
from rlsim.scenario.schema import RolloutEntry, Scenario, Trainer
from rlsim.scenario.schema_roles import MICRO_BATCH_TOKENS

Choices = Mapping[str, Sequence[Any]]
Options = dict[str, Any]
WIDEST_ENGINE = 32
"""GPUs of an engine at most, unless the file has a wider one."""
DEEPEST = 32
"""Pipeline stages at most."""


def powers(top: int) -> list[int]:
    """1, 2, 4, … up to `top`."""
    return [2**i for i in range(max(1, top).bit_length())]


def trainer_choices(base: Scenario, model: ModelSpec) -> dict[str, list[Any]]:
    """Values by key of the trainer that a plan tries where nothing limits them. The backend is the file's."""
    t, node = base.trainer, base.cluster.gpus_per_node
    tokens = t.micro_batch_tokens or MICRO_BATCH_TOKENS
    choices: dict[str, list[Any]] = {
        "recompute": ["full", "selective"] if t.backend == "megatron" else ["full", "none"],
        "micro_batch_tokens": [tokens] if t.micro_batch_size is None else [None],
    }
    if t.backend == "megatron":
        choices |= {
            "tp": powers(node),
            "pp": sorted({*powers(min(DEEPEST, model.num_layers)), t.pp}) if t.pp > 1 else [1, 2, 4],
            "vpp": sorted({1, t.vpp}) if model.num_layers % 2 else sorted({1, 2, t.vpp}),
            "cp": sorted({1, 2, t.cp}),
        }
        if model.experts is not None:
            wide = [ep for ep in (8, 32, 64) if ep <= model.experts.count]
            choices |= {"ep": sorted({*wide, t.ep}), "etp": sorted({1, t.etp or 1})}
    elif t.backend == "fsdp2":
        choices |= {
            "fsdp_size": [None, node, 4 * node],
            "ulysses": [1, 2, 4, 8],
            "reshard_after_forward": [True, False],
        }
        if t.tp > 1:
            choices["tp"] = powers(node)
    else:
        choices |= {"zero_stage": [1, 2, 3], "ulysses": [1, 2, 4, 8]}
    return choices


def rollout_choices(base: Scenario, model: ModelSpec) -> dict[str, list[Any]]:
    """Values by key of the engines that a plan tries. Engine and dtype are the file's."""
    entry, node = base.rollout[0], base.cluster.gpus_per_node
    seqs = entry.max_num_seqs
    choices: dict[str, list[Any]] = {
        "pp": sorted({1, entry.pp}),
        "attn_tp": powers(node),
        "attn_dp": [1],
        "moe_ep": [1],
        "max_num_seqs": sorted({max(1, seqs // 4), seqs, min(2 * seqs, entry.max_num_batched_tokens)}),
        "memory_utilization": sorted({entry.memory_utilization, max(entry.memory_utilization, 0.85)}),
        "dtype": [entry.dtype],
    }
    if model.experts is not None:
        widest = powers(max(WIDEST_ENGINE, entry.gpus_per_engine))
        choices |= {"attn_dp": widest, "moe_ep": widest, "max_num_seqs": [seqs]}
    return choices


def trainers(base: Scenario, model: ModelSpec, choices: Choices) -> Iterator[Options]:
    """Trainer options for `base.trainer.gpus` GPUs that divide."""
    gpus, layers = base.trainer.gpus, model.num_layers
    for values in product(*choices.values()):
        options = dict(zip(choices, values, strict=True))
        pp, size = options.get("pp", 1), options.get("fsdp_size")
        if gpus % (options.get("tp", 1) * pp * options.get("cp", 1)) or (size is not None and size >= gpus):
            continue
        if "pp" in options:
            ends = stage_ends(layers, pp)
            if ends is None and layers % pp:
                continue
            options["pp_layers"] = ends
        if _divides(base, model, options):
            yield options


def stage_ends(layers: int, pp: int) -> dict[str, int] | None:
    """First and last stage of an uneven pipeline, none longer than those between; None where it is even, or cannot be.

    61 over 16: 3, fourteen times 4, 2.
    """
    middle = -(-layers // pp)
    rest = layers - middle * (pp - 2)
    if layers % pp == 0 or pp < 2 or rest < 2 or rest - rest // 2 > middle:
        return None
    return {"first": rest - rest // 2, "last": rest // 2}


def _divides(base: Scenario, model: ModelSpec, options: Options) -> bool:
    try:
        train_layout(base.model_copy(update={"trainer": with_trainer(base, options)}), model)
    except (UserError, ValueError):
        return False
    return True


def with_trainer(base: Scenario, options: Options) -> Trainer:
    """The base's trainer with other options."""
    known = {**base.trainer.model_dump(exclude_none=True), **options}
    return Trainer.model_validate({key: value for key, value in known.items() if value is not None})


def engines(base: Scenario, model: ModelSpec, choices: Choices) -> Iterator[Options]:
    """Engine options for `base.rollout[0].gpus` GPUs that divide; moe_tp is what attention and moe_ep leave."""
    entry = base.rollout[0]
    gpus = entry.gpus
    widest = max(WIDEST_ENGINE, entry.gpus_per_engine)
    for values in product(*choices.values()):
        options = dict(zip(choices, values, strict=True))
        stage = options["attn_tp"] * options["attn_dp"]
        size = stage * options["pp"]
        if gpus % size or size > widest or stage % options["moe_ep"]:
            continue
        if model.experts is not None and options["moe_ep"] not in (stage, options["attn_dp"], entry.moe_ep):
            continue  # experts are spread over all GPUs, or over attention ranks
        options["moe_tp"] = stage // options["moe_ep"]
        if _engine_divides(base, model, options):
            yield options


def _engine_divides(base: Scenario, model: ModelSpec, options: Options) -> bool:
    known = {**base.rollout[0].model_dump(exclude_none=True), **options}
    try:
        entry = RolloutEntry.model_validate(known)
        engine_layout(base.model_copy(update={"rollout": (entry,)}), entry, model)
    except (UserError, ValueError):
        return False
    return True
