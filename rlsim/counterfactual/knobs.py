"""What one can really turn to get part of a cost back: changes of the scenario, each to be simulated like any other.

A knob belongs to the cost that it goes for. What it saves is measured on the whole step, so that what it costs
elsewhere is in the figure.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from rlsim.divisors import divisors
from rlsim.scenario.load import scenario_from_dict
from rlsim.scenario.schema import Scenario
from rlsim.scenario.source import path_of
from rlsim.scenario.variants import put

OTHER = ""
"""Knobs that go for no single cost: the split of the GPUs, the schedule, the engines' size."""


@dataclass(frozen=True)
class Base:
    """What the knobs are chosen from: the scenario, its summary, and seconds of a weight sync by strategy."""

    scenario: Scenario
    summary: Mapping[str, Any]
    sync_seconds: Mapping[str, float]


@dataclass(frozen=True)
class Knob:
    """One change. `cost`: the removal that it realises part of; `keys`: dotted key -> new value (None deletes)."""

    cost: str
    text: str
    keys: Mapping[str, Any]


def turned(scenario: Scenario, keys: Mapping[str, Any]) -> Scenario:
    """The scenario with some keys changed. Raises `UserError` where it is then no scenario."""
    data = scenario.to_dict()
    for key, value in keys.items():
        data = put(data, path_of(key), value)
    return scenario_from_dict(data)


def knobs(base: Base) -> Iterator[Knob]:
    """All knobs that this scenario has."""
    for find in FINDERS:
        yield from find(base)


def _tail(base: Base) -> Iterator[Knob]:
    s = base.scenario
    if s.schedule == "async":
        return
    if s.remedies.over_sampling is None:
        for ratio, unfinished, text in (
            (1.25, "keep", "partial rollout (1.25 times the prompts, the unfinished go on next step)"),
            (1.25, "tail-batch", "tail batching (1.25 times the prompts, the unfinished get steps of their own)"),
        ):
            yield Knob("tail", text, {"remedies.over_sampling": {"ratio": ratio, "unfinished": unfinished}})
    if s.remedies.consolidate is None and len(s.rollout) == 1:
        yield Knob("tail", "consolidation (the last quarter moves to fewer engines)", {"remedies.consolidate": {}})
    if s.routing != "length-aware":
        yield Knob("tail", "routing by expected length", {"routing": "length-aware"})


def _schedule(base: Base) -> Iterator[Knob]:
    s = base.scenario
    if s.cluster.pools or len(s.rollout) > 1 or s.schedule == "async":
        return
    half = s.trainer.gpus // 2
    split = {"placement": "disaggregated", "trainer.gpus": half, "rollout.gpus": half}
    asynchronous = {"schedule": "async", "async": {"policy": "areal", "max_staleness": 1}}
    where = split if s.placement == "colocated" else {}
    half_each = f", {half} + {half} GPUs" if where else ""
    if s.schedule == "sync":
        yield Knob(OTHER, f"one step off{half_each} (off-policy)", {**where, "schedule": "one-step-off"})
    yield Knob(OTHER, f"asynchronous, staleness up to 1{half_each} (off-policy)", {**where, **asynchronous})
    if s.placement == "colocated":
        yield Knob(OTHER, f"disaggregated{half_each}", split)


def _split(base: Base) -> Iterator[Knob]:
    """A quarter of the smaller side moves to the other, in whole nodes."""
    s = base.scenario
    if s.placement == "colocated" or s.cluster.pools or len(s.rollout) > 1:
        return
    trainer, rollout, node = s.trainer.gpus, s.rollout[0].gpus, s.cluster.gpus_per_node
    moved = max(node, min(trainer, rollout) // 4 // node * node)
    for sign in (1, -1):
        t, r = trainer + sign * moved, rollout - sign * moved
        if t > 0 and r > 0:
            yield Knob(OTHER, f"split {t} trainer + {r} rollout GPUs", {"trainer.gpus": t, "rollout.gpus": r})


def _engines(base: Base) -> Iterator[Knob]:
    s = base.scenario
    if len(s.rollout) > 1:
        return
    entry = s.rollout[0]
    if entry.attn_dp == 1 and entry.moe_ep == 1:
        for tp in (entry.attn_tp // 2, entry.attn_tp * 2):
            if 0 < tp <= s.cluster.gpus_per_node and tp * entry.pp <= entry.gpus:
                keys = {"rollout.attn_tp": tp, "rollout.moe_tp": tp}
                count = entry.gpus // (tp * entry.pp)
                yield Knob(OTHER, f"engines of TP {tp} ({count} of them)", keys)
    if entry.enforce_eager:
        yield Knob("host", "CUDA graphs", {"rollout.enforce_eager": False})
    if entry.dtype == "bf16":
        yield Knob(OTHER, "FP8 weights in the engines", {"rollout.dtype": "fp8"})
    if not entry.prefix_caching:
        yield Knob("prefill", "prefix caching", {"rollout.prefix_caching": True})
    yield from _kv(base)


def _kv(base: Base) -> Iterator[Knob]:
    entry = base.scenario.rollout[0]
    if entry.memory_utilization < 0.9:
        yield Knob("kv", "memory utilisation 0.9", {"rollout.memory_utilization": 0.9})
    if entry.kv_dtype == "bf16":
        yield Knob("kv", "KV cache in FP8", {"rollout.kv_dtype": "fp8"})
    half = entry.max_num_seqs // 2
    if half:
        yield Knob("kv", f"at most {half} sequences an engine rank", {"rollout.max_num_seqs": half})


def _sync(base: Base) -> Iterator[Knob]:
    """The two fastest other strategies, a larger bucket, overlap, and KV kept through a sync."""
    s = base.scenario
    own = base.summary["weight_sync"]
    faster = sorted((t, n) for n, t in base.sync_seconds.items() if t < own["seconds"] and n != own["strategy"])
    for seconds, name in faster[:2]:
        yield Knob("weight-sync", f"strategy {name} ({seconds:.1f} s a sync)", {"weight_sync.strategy": name})
    if s.weight_sync.bucket is not None:
        size = 4 * s.weight_sync.bucket
        yield Knob("weight-sync", f"buckets of {size / 2**30:g} GiB", {"weight_sync.bucket": size})
    if s.schedule == "async" and not s.weight_sync.overlap:
        yield Knob("weight-sync", "double-buffered weights (overlap)", {"weight_sync.overlap": True})
    if s.schedule == "async" and s.async_.on_sync != "in-flight":
        yield Knob("interruption", "KV kept through a sync (in flight)", {"async.on_sync": "in-flight"})
    if s.schedule == "async" and s.async_.policy in ("areal", "slime", "trl"):
        every = 2 * (s.async_.sync_every or 1)
        yield Knob("weight-sync", f"a sync every {every} steps (staler)", {"async.sync_every": every})
    if s.cluster.nic is not None:
        yield Knob("network", f"NICs of {2 * s.cluster.nic / 1e9:g} GB/s", {"cluster.nic": 2 * s.cluster.nic})


def _offload(base: Base) -> Iterator[Knob]:
    s = base.scenario
    if s.placement != "colocated":
        return
    if s.offload.params or s.offload.grads or s.offload.optimizer:
        none = {"optimizer": False, "params": False, "grads": False}
        yield Knob("offload", "no offload", {f"offload.{name}": off for name, off in none.items()})
        yield Knob("offload", "only the optimizer states", {"offload.params": False, "offload.grads": False})
    if not s.offload.pinned:
        yield Knob("offload", "pinned host memory", {"offload.pinned": True})


def _trainer(base: Base) -> Iterator[Knob]:
    t = base.scenario.trainer
    if t.balance == "none":
        yield Knob("imbalance", "samples balanced over ranks by tokens", {"trainer.balance": "tokens"})
    if not t.packing:
        yield Knob("imbalance", "packing instead of padding", {"trainer.packing": True})
    if t.recompute == "full":
        yield Knob("recompute", "selective recompute", {"trainer.recompute": "selective"})
    if t.recompute != "none":
        yield Knob("recompute", "no recompute", {"trainer.recompute": "none"})
    if t.micro_batch_tokens:
        half, twice = t.micro_batch_tokens // 2, t.micro_batch_tokens * 2
        if t.pp > 1:
            yield Knob("bubble", f"micro-batches of {half:,} tokens", {"trainer.micro_batch_tokens": half})
        yield Knob("host", f"micro-batches of {twice:,} tokens", {"trainer.micro_batch_tokens": twice})
    if t.pp > 1:
        if t.vpp == 1 and t.pp_layers is None:
            yield Knob("bubble", "two virtual chunks a stage (VPP 2)", {"trainer.vpp": 2})
        if t.pp_layers is None:
            yield Knob("bubble", f"PP {t.pp // 2}", {"trainer.pp": t.pp // 2})
    if t.tp > 1:
        yield Knob("communication", f"trainer TP {t.tp // 2}", {"trainer.tp": t.tp // 2})
    if t.ep > 1 and t.dispatcher != "deepep":
        yield Knob("communication", "DeepEP dispatch", {"trainer.dispatcher": "deepep"})
    if t.backend == "fsdp2" and t.reshard_after_forward:
        keys = {"trainer.reshard_after_forward": False}
        yield Knob("communication", "weights kept after the forward pass (no reshard)", keys)
    if t.ep > 1:
        smaller = [ep for ep in divisors(t.ep) if ep < t.ep]
        yield Knob("experts", f"trainer EP {smaller[-1]}", {"trainer.ep": smaller[-1]})


def _passes(base: Base) -> Iterator[Knob]:
    s = base.scenario
    work, run = s.workload, s.run
    if work.logprob != "rollout":
        text = "taking the engines' own log-probs (bypass; mind the mismatch)"
        yield Knob("logprob", text, {"workload.logprob": "rollout"})
    if work.reward.workers:
        twice = 2 * work.reward.workers
        yield Knob("reward", f"{twice} reward workers", {"workload.reward.workers": twice})
    if not work.reward.streaming:
        yield Knob("reward", "samples scored as they finish", {"workload.reward.streaming": True})
    if work.turns is not None and work.turns.workers:
        twice = 2 * work.turns.workers
        yield Knob("environment", f"{twice} environment workers", {"workload.turns.workers": twice})
    if run.checkpoint_every is not None:
        if run.checkpoint.mode == "sync":
            yield Knob("checkpoints", "asynchronous checkpoints", {"run.checkpoint.mode": "async"})
        twice = 2 * run.checkpoint_every
        yield Knob("checkpoints", f"a checkpoint every {twice} steps", {"run.checkpoint_every": twice})
    if run.eval is not None:
        yield Knob("evaluation", f"every {2 * run.eval.every} steps", {"run.eval.every": 2 * run.eval.every})
    best = (base.summary["checkpoint"] or {}).get("best_every")
    if s.faults and best and best != run.checkpoint_every:
        yield Knob("faults", f"a checkpoint every {best} steps", {"run.checkpoint_every": best})


FINDERS: tuple[Callable[[Base], Iterator[Knob]], ...] = (
    _tail,
    _sync,
    _offload,
    _trainer,
    _engines,
    _passes,
    _split,
    _schedule,
)
