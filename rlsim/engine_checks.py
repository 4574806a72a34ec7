"""What has to divide what in a rollout engine: small checks, each naming the key and the nearest right values."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rlsim.divisors import divisors, nearest
from rlsim.model import ModelSpec

if TYPE_CHECKING:
    from rlsim.scenario.schema import RolloutEntry, Scenario

FP8_BLOCK = 128


def check_engine(scenario: Scenario, entry: RolloutEntry, model: ModelSpec, gpus_per_node: int) -> None:
    """All checks of one rollout entry's layout."""
    check_engine_gpus(scenario, entry)
    check_engine_nodes(scenario, entry, gpus_per_node)
    check_dense_engine(scenario, entry, model)
    check_engine_heads(scenario, entry, model)
    check_engine_widths(scenario, entry, model)
    check_engine_experts(scenario, entry, model)
    check_engine_fp8(scenario, entry, model)
    check_engine_stages(scenario, entry, model)


def rollout_key(scenario: Scenario, entry: RolloutEntry, key: str) -> str:
    """The dotted key of a rollout entry as the file has it: a mapping, or the n-th of a list."""
    if len(scenario.rollout) == 1:
        return f"rollout.{key}"
    position = next((i for i, other in enumerate(scenario.rollout) if other is entry), 0)
    return f"rollout.{position}.{key}"


def check_engine_gpus(scenario: Scenario, entry: RolloutEntry) -> None:
    """The GPUs of one engine divide the rollout GPUs."""
    size = entry.gpus_per_engine
    if entry.gpus % size:
        around = sorted({max(size, entry.gpus // size * size), -(-entry.gpus // size) * size})
        raise scenario.error(
            rollout_key(scenario, entry, "gpus"),
            f"engines of {size} GPUs (pp {entry.pp} · attn_tp {entry.attn_tp} · attn_dp {entry.attn_dp}) "
            f"do not divide {entry.gpus} rollout GPUs",
            f"gpus of {' or '.join(str(a) for a in around)}",
        )


def check_engine_nodes(scenario: Scenario, entry: RolloutEntry, gpus_per_node: int) -> None:
    """Engines fill nodes: several to a node, or whole nodes to an engine."""
    size = entry.gpus_per_engine
    fills = gpus_per_node % size == 0 if size <= gpus_per_node else size % gpus_per_node == 0
    if not fills and entry.gpus > gpus_per_node:
        allowed = divisors(gpus_per_node) + [gpus_per_node * n for n in range(2, 17)]
        raise scenario.error(
            rollout_key(scenario, entry, "attn_tp"),
            f"engines of {size} GPUs do not fill nodes of {gpus_per_node} GPUs",
            f"pp·attn_tp·attn_dp of {nearest(size, allowed)}",
        )


def check_dense_engine(scenario: Scenario, entry: RolloutEntry, model: ModelSpec) -> None:
    """DP attention and EP are for models with experts."""
    if model.experts is not None:
        return
    for key, size in (("moe_ep", entry.moe_ep), ("attn_dp", entry.attn_dp)):
        if size > 1:
            raise scenario.error(
                rollout_key(scenario, entry, key),
                f"{model.name} has no experts, and {key} {size} spreads experts",
                f"{key}: 1; more data parallelism is more engines",
            )


def check_engine_heads(scenario: Scenario, entry: RolloutEntry, model: ModelSpec) -> None:
    """Attention TP divides the query heads, and the KV heads or is a multiple of them (copies)."""
    a, tp = model.attention, entry.attn_tp

    def right(size: int) -> bool:
        kv = a.kind == "mla" or a.kv_heads % size == 0 or size % a.kv_heads == 0
        return a.heads % size == 0 and kv

    if not right(tp):
        heads = f"{a.heads} query heads" if a.heads % tp else f"{a.kv_heads} KV heads (nor is it a multiple)"
        raise scenario.error(
            rollout_key(scenario, entry, "attn_tp"),
            f"tensor parallel size {tp} does not divide the {heads} of {model.name}",
            f"a size of {nearest(tp, [d for d in divisors(a.heads) if right(d)])}",
        )


def check_engine_widths(scenario: Scenario, entry: RolloutEntry, model: ModelSpec) -> None:
    """Attention TP divides the MLP width; MoE TP divides the expert width."""
    e = model.experts
    if any(not layer.moe for layer in model.layers) and model.intermediate % entry.attn_tp:
        allowed = [d for d in divisors(model.attention.heads) if model.intermediate % d == 0]
        raise scenario.error(
            rollout_key(scenario, entry, "attn_tp"),
            f"tensor parallel size {entry.attn_tp} does not divide the MLP width {model.intermediate}",
            f"a size of {nearest(entry.attn_tp, allowed)}",
        )
    if e is not None and e.intermediate % entry.moe_tp:
        raise scenario.error(
            rollout_key(scenario, entry, "moe_tp"),
            f"moe_tp {entry.moe_tp} does not divide the expert width {e.intermediate} of {model.name}",
            f"moe_tp of {nearest(entry.moe_tp, divisors(e.intermediate, 64))}",
        )


def check_engine_experts(scenario: Scenario, entry: RolloutEntry, model: ModelSpec) -> None:
    """MoE EP divides the experts (vLLM also takes an uneven deal, with at least one expert on each rank)."""
    e = model.experts
    if e is None or entry.moe_ep == 1:
        return
    if e.count % entry.moe_ep and (entry.engine != "vllm" or entry.moe_ep > e.count):
        raise scenario.error(
            rollout_key(scenario, entry, "moe_ep"),
            f"moe_ep {entry.moe_ep} does not divide the {e.count} experts of {model.name}",
            f"moe_ep of {nearest(entry.moe_ep, divisors(e.count))}",
        )


def check_engine_fp8(scenario: Scenario, entry: RolloutEntry, model: ModelSpec) -> None:
    """FP8 weights are scaled in blocks of 128: every shard that TP cuts is a multiple of 128.

    A width of 768 at TP 8 gives 96, which the engines refuse.
    """
    if entry.dtype != "fp8":
        return
    e, a = model.experts, model.attention
    cuts = {("attn_tp", entry.attn_tp, "attention output"): a.heads * a.v_head_dim}
    if any(not layer.moe for layer in model.layers):
        cuts[("attn_tp", entry.attn_tp, "MLP")] = model.intermediate
    if e is not None:
        cuts[("moe_tp", entry.moe_tp, "expert")] = e.intermediate
    for (key, size, what), width in cuts.items():
        if size > 1 and width // size % FP8_BLOCK:
            allowed = [d for d in divisors(width, 64) if width // d % FP8_BLOCK == 0]
            raise scenario.error(
                rollout_key(scenario, entry, key),
                f"fp8 weights have a scale per block of {FP8_BLOCK}, but {key} {size} cuts the {what} width "
                f"{width} of {model.name} into {width // size}",
                f"{key} of {nearest(size, allowed)} (with more EP for experts), or dtype: bf16",
            )


def check_engine_stages(scenario: Scenario, entry: RolloutEntry, model: ModelSpec) -> None:
    """A pipeline stage has at least one layer."""
    if entry.pp > model.num_layers:
        raise scenario.error(
            rollout_key(scenario, entry, "pp"),
            f"pp {entry.pp} exceeds the {model.num_layers} layers of {model.name}",
            f"pp of at most {model.num_layers}",
        )
