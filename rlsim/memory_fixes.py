"""The nearest change that makes a layout fit: small changes are tried one by one, then in pairs, and re-measured."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from itertools import combinations
from typing import TYPE_CHECKING, Any

from rlsim.errors import UserError
from rlsim.grids import engine_layout, engine_stage_sizes, train_layout
from rlsim.memory_lengths import sequence_lengths
from rlsim.memory_report import GIB, MemoryReport, Problem
from rlsim.sync_settings import sync_bucket

if TYPE_CHECKING:
    from rlsim.scenario.schema import Scenario
    from rlsim.system import System

Changes = Mapping[str, Any]
Measure = Callable[["System"], MemoryReport]
PAIRS = 150


def nearest_change(system: System, problem: Problem, report: MemoryReport, measure: Measure) -> str:
    """What to change so that this role fits and no other role stops fitting, with its figures.

    Single changes in the order of how little they disturb, then pairs of them; where none is enough, the best one.
    """
    others = {p.role for p in report.problems} - {problem.role}
    singles = list(_candidates(system, problem.role))
    tried: list[tuple[float, Changes]] = []
    for changes in (*singles, *_pairs(singles)):
        new = changed_system(system, changes)
        if new is None:
            continue
        after = measure(new)
        left = {p.role: p for p in after.problems}
        if problem.role not in left and not left.keys() - others:
            return f"{described(changes)} ({_figures(problem.role, new, after)})"
        if problem.role in left:
            tried.append((left[problem.role].need - left[problem.role].have, changes))
    if not tried:
        return "no change of one or two settings fits: more GPUs, GPUs with more memory, or a smaller model"
    missing, changes = min(tried, key=lambda item: item[0])
    return (
        "no change of one or two settings fits: more GPUs, GPUs with more memory, a smaller model, or several changes "
        f"at once; {described(changes)} would leave {missing / GIB:.1f} GiB too much"
    )


def described(changes: Changes) -> str:
    """As the user would write it: `trainer.recompute: full`."""
    return " and ".join(f"{_key(key)}: {_written(key, value)}" for key, value in changes.items())


def _key(key: str) -> str:
    return f"cluster.{key}.gpus" if key.startswith("pools.") else key


def _written(key: str, value: Any) -> str:
    if key == "weight_sync.bucket":
        return f"{value / 2**20:g} MiB"
    if key == "run.checkpoint":
        return f"{{mode: {value.mode}}}"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, tuple):
        return "[" + ", ".join(str(v) for v in value) + "]"
    return f"{value:g}" if isinstance(value, float) else str(value)


def _entry(role: str) -> int:
    """Number of the rollout entry: 0 of `rollout`, 1 of `rollout[1]`."""
    return int(role[len("rollout[") : -1]) if role.endswith("]") else 0


def _figures(role: str, system: System, report: MemoryReport) -> str:
    if role.startswith("rollout"):
        return f"KV cache of {report.engines[_entry(role)].kv_tokens_per_rank:,} tokens per attention-DP rank"
    if role == "host":
        return f"{report.host.total / GIB:.0f} of {system.trainer_pool.gpu.host_memory_bytes / GIB:.0f} GiB per node"
    total = report.trainer.total if role == "trainer" else report.moments["weight sync"].total
    return f"{total / GIB:.1f} of {system.trainer_pool.gpu.hbm_bytes / GIB:.1f} GiB"


def _pairs(singles: list[Changes]) -> Iterator[Changes]:
    pairs = ({**a, **b} for a, b in combinations(singles, 2) if not a.keys() & b.keys())
    for _, pair in zip(range(PAIRS), pairs, strict=False):
        yield pair


# Changing a system ----------


def changed_system(system: System, changes: Changes) -> System | None:
    """The system with dotted keys changed, None where the layout does not divide."""
    scenario = _changed(system.scenario, changes)
    try:
        trainer = train_layout(scenario, system.model)
        rollout = tuple(
            replace(part, entry=entry, layout=engine_layout(scenario, entry, system.model))
            for part, entry in zip(system.rollout, scenario.rollout, strict=True)
        )
    except UserError:
        return None
    return replace(system, scenario=scenario, trainer=trainer, rollout=rollout)


def _changed(scenario: Scenario, changes: Changes) -> Scenario:
    blocks: dict[str, dict[str, Any]] = {}
    for key, value in changes.items():
        block, name = key.split(".")
        blocks.setdefault(block, {})[name] = value
    update: dict[str, Any] = {}
    for block, values in blocks.items():
        if block.startswith("rollout"):
            entries = list(update.get("rollout", scenario.rollout))
            which = [_entry(block)] if block.endswith("]") else range(len(entries))
            for i in which:
                entries[i] = entries[i].model_copy(update=_engine(values))
            update["rollout"] = tuple(entries)
        elif block == "pools":
            pools = {**(scenario.cluster.pools or {})}
            for name, gpus in values.items():
                pools[name] = pools[name].model_copy(update={"gpus": gpus})
            update["cluster"] = scenario.cluster.model_copy(update={"pools": pools})
        else:
            update[block] = getattr(scenario, block).model_copy(update=values)
    return scenario.model_copy(update=update)


def _engine(values: Changes) -> dict[str, Any]:
    """`tp` of an engine is short for attn_tp and moe_tp."""
    if "tp" not in values:
        return dict(values)
    rest = {key: value for key, value in values.items() if key != "tp"}
    return {**rest, "attn_tp": values["tp"], "moe_tp": values["tp"]}


# Candidates ----------


def _candidates(system: System, role: str) -> Iterator[Changes]:
    if role == "trainer":
        yield from _trainer_changes(system)
    elif role.startswith("rollout"):
        yield from _rollout_changes(system, role)
    elif role == "weight sync":
        yield from _offload_changes(system)
        yield {"weight_sync.bucket": sync_bucket(system.scenario) / 4}
        for i in range(len(system.rollout)):
            yield from _rollout_splits(system, "rollout" if len(system.rollout) == 1 else f"rollout[{i}]")
        yield from _trainer_splits(system)
    else:
        yield from _host_changes(system)


def _trainer_changes(system: System) -> Iterator[Changes]:
    """Cheapest first: recompute, smaller micro-batches, sharding, more parallelism, the optimizer on the host, GPUs."""
    t = system.scenario.trainer
    if t.recompute != "full":
        yield {"trainer.recompute": "full"}
    yield from _micro_batches(system, "micro_batch_tokens", "micro_batch_size")
    if t.logprob_micro_batch_tokens or t.logprob_micro_batch_size:
        yield from _micro_batches(system, "logprob_micro_batch_tokens", "logprob_micro_batch_size")
    if t.backend == "zero" and t.zero_stage < 3:
        yield {"trainer.zero_stage": t.zero_stage + 1}
    if t.backend == "fsdp2" and not t.reshard_after_forward:
        yield {"trainer.reshard_after_forward": True}
    if system.trainer.shards_weights and system.trainer.shard < system.trainer.dense_replicas:
        yield {"trainer.fsdp_size": system.trainer.shard * 2}
    if t.backend == "megatron" and t.tp > 1 and t.sequence_parallel is False:
        yield {"trainer.sequence_parallel": True}
    yield from _trainer_splits(system)
    if t.grad_dtype == "fp32":
        yield {"trainer.grad_dtype": "bf16"}
    if t.optimizer_device == "gpu":
        yield {"trainer.optimizer_device": "cpu"}
    yield from _more_gpus(system)


def _trainer_splits(system: System) -> Iterator[Changes]:
    t, layers = system.scenario.trainer, system.model.num_layers
    for factor in (2, 4, 8):
        if system.model.experts is not None and t.backend != "zero":
            yield {"trainer.ep": t.ep * factor}
        if t.tp * factor <= system.trainer_pool.gpus_per_node:
            yield {"trainer.tp": t.tp * factor}
        if t.backend == "megatron":
            yield {"trainer.cp": t.cp * factor}
            pp = t.pp * factor
            stages = {"trainer.pp_layers": engine_stage_sizes(layers, pp)} if layers % pp and pp <= layers else {}
            if stages or t.pp_layers is None:
                yield {"trainer.pp": pp, **stages}
            else:
                yield {"trainer.pp": pp, "trainer.pp_layers": None}
        else:
            yield {"trainer.ulysses": t.ulysses * factor}


def _micro_batches(system: System, tokens_key: str, size_key: str) -> Iterator[Changes]:
    """Half, a quarter … of the micro-batch, but never less than the longest sequence."""
    t, longest = system.scenario.trainer, sequence_lengths(system.scenario.workload).longest
    tokens, size = getattr(t, tokens_key), getattr(t, size_key)
    smaller = []
    if tokens is not None:
        smaller = [max(tokens // factor, longest) for factor in (2, 4, 8) if tokens > longest]
        key = tokens_key
    elif size is not None:
        smaller = [size // factor for factor in (2, 4, 8) if size // factor]
        key = size_key
    for value in dict.fromkeys(smaller):
        yield {f"trainer.{key}": value}


def _more_gpus(system: System) -> Iterator[Changes]:
    s = system.scenario
    for factor in (2, 4, 8):
        gpus = s.trainer.gpus * factor
        if system.colocated and len(s.rollout) == 1:
            yield {_pool_key(s): gpus, "trainer.gpus": gpus, "rollout.gpus": gpus}
        elif not system.colocated:
            beside = sum(entry.gpus for entry in s.rollout if entry.pool == s.trainer.pool)
            yield {"trainer.gpus": gpus, _pool_key(s): gpus + beside}


def _pool_key(scenario: Scenario) -> str:
    """What says how many GPUs the trainer's pool has: `cluster.gpus`, or `pools.NAME` for cluster.pools.NAME.gpus."""
    return "cluster.gpus" if scenario.trainer.pool is None else f"pools.{scenario.trainer.pool}"


def _rollout_changes(system: System, role: str) -> Iterator[Changes]:
    """Cheapest first: more of the GPU for the engine, smaller prefill, fp8, more GPUs per engine.

    `role` is how the file has the entry: `rollout`, or `rollout[1]`.
    """
    entry = system.scenario.rollout[_entry(role)]
    yield from _offload_changes(system)
    for share in (0.85, 0.9, 0.95):
        if share > entry.memory_utilization:
            yield {f"{role}.memory_utilization": share}
    if entry.max_num_batched_tokens // 2 >= entry.max_num_seqs:
        yield {f"{role}.max_num_batched_tokens": entry.max_num_batched_tokens // 2}
    if entry.kv_dtype != "fp8":
        yield {f"{role}.kv_dtype": "fp8"}
    if entry.dtype != "fp8" and "fp8" in system.rollout[_entry(role)].pool.gpu.peak_flops:
        yield {f"{role}.dtype": "fp8"}
    yield from _rollout_splits(system, role)


def _rollout_splits(system: System, role: str) -> Iterator[Changes]:
    entry, experts = system.scenario.rollout[_entry(role)], system.model.experts
    for factor in (2, 4, 8):
        if entry.attn_dp == 1 and entry.moe_ep == 1:
            yield {f"{role}.tp": entry.attn_tp * factor}
        elif entry.moe_ep > 1 and experts is not None:
            yield {f"{role}.attn_dp": entry.attn_dp * factor, f"{role}.moe_ep": entry.moe_ep * factor}
            yield {f"{role}.attn_tp": entry.attn_tp * factor, f"{role}.moe_ep": entry.moe_ep * factor}
        else:
            yield {f"{role}.attn_tp": entry.attn_tp * factor, f"{role}.moe_tp": entry.moe_tp * factor}
        yield {f"{role}.pp": entry.pp * factor}


def _offload_changes(system: System) -> Iterator[Changes]:
    if not system.colocated:
        return
    for name in ("optimizer", "grads", "params"):
        if not getattr(system.scenario.offload, name):
            yield {f"offload.{name}": True}


def _host_changes(system: System) -> Iterator[Changes]:
    run = system.scenario.run
    if run.checkpoint_every and run.checkpoint.mode == "async":
        yield {"run.checkpoint": run.checkpoint.model_copy(update={"mode": "sync"})}
    if system.scenario.trainer.optimizer_device == "cpu":
        yield {"trainer.optimizer_device": "gpu"}
        yield {"trainer.optimizer_device": "nvme"}
    if system.colocated:
        for name in ("params", "optimizer"):
            if getattr(system.scenario.offload, name):
                yield {f"offload.{name}": False}
    yield from _more_gpus(system)
    yield from _trainer_splits(system)
