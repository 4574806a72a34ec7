"""Megatron's trainer settings, which verl, slime, NeMo-RL and AReaL share under their own names."""

from __future__ import annotations

from rlsim.frameworks.sheet import Row, Sheet

SIZES = (
    Row("trainer.tp", "tensor_model_parallel_size"),
    Row("trainer.pp", "pipeline_model_parallel_size"),
    Row("trainer.cp", "context_parallel_size"),
    Row("trainer.ep", "expert_model_parallel_size"),
)
"""Parallel sizes by Megatron's names; flags have dashes in place of the underscores."""


def etp(sheet: Sheet) -> int:
    """The expert tensor parallel size that the layout has."""
    return sheet.system.trainer.etp


def ends(sheet: Sheet) -> tuple[int | None, int | None]:
    """Layers on the first and the last stage; a list of all stages is refused as not expressible."""
    given = sheet.scenario.trainer.pp_layers
    if given is None:
        return None, None
    if isinstance(given, tuple):
        inner = set(given[1:-1])
        if len(inner) > 1:
            sheet.cannot("trainer.pp_layers", "only the first and the last stage can differ from the rest")
            return None, None
        return given[0], given[-1]
    return given.first, given.last


def recompute(sheet: Sheet) -> dict[str, object]:
    """Megatron's recompute settings: full is uniform, every layer of its own."""
    kind = sheet.scenario.trainer.recompute
    if kind == "full":
        return {"recompute_granularity": "full", "recompute_method": "uniform", "recompute_num_layers": 1}
    return {"recompute_granularity": "selective"} if kind == "selective" else {}


def dispatcher(sheet: Sheet) -> dict[str, object]:
    """Token dispatcher of a MoE: DeepEP is Megatron's flex with moe_enable_deepep."""
    if sheet.system.model.experts is None:
        return {}
    kind = sheet.scenario.trainer.dispatcher
    if kind == "deepep":
        return {"moe_token_dispatcher_type": "flex", "moe_enable_deepep": True}
    return {"moe_token_dispatcher_type": kind}


def sequence_parallel(sheet: Sheet) -> bool:
    return sheet.system.trainer.sequence_parallel
