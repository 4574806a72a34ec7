"""Facts of the weight sync: its floor, its strategies, and what a fused tensor turns into."""

from __future__ import annotations

from rlsim.interview.facts.compare import altered
from rlsim.interview.figure import Facts, Figure, Pick, count, gib, rate, ratio, seconds, share, size, slower, word
from rlsim.interview.lab import Lab, Unanswerable
from rlsim.model import expert_parameters, parameters
from rlsim.resharding import Run


def floor(lab: Lab) -> Facts:
    case = lab.regime("disaggregated-sync")
    plan, system = lab.plan(case), lab.system(case)
    sync, part = plan.sync, lab.system(case).rollout[0]
    ways = {name: s for name, s in sync.alternatives.items() if name != "filesystem"}
    if "broadcast" not in ways:
        raise Unanswerable(
            f"{lab.file} has no weight sync between two pools of GPUs", f"{lab.file} 没有两组 GPU 之间的权重同步"
        )
    fastest, broadcast = min(ways, key=lambda name: ways[name]), ways["broadcast"]
    return {
        "model_bytes": size(sync.bytes_total),
        "each": size(sync.bytes_max_per_gpu),
        "gpus": count(part.layout.gpus_per_engine),
        "engines": count(part.layout.engines),
        "receivers": count(part.layout.gpus),
        "nic": rate(part.pool.nic),
        "one_nic": seconds(sync.bytes_max_per_gpu / part.pool.nic),
        "floor": seconds(sync.floor_seconds),
        "fastest": word(fastest),
        "fastest_seconds": seconds(ways[fastest]),
        "broadcast": seconds(broadcast),
        "above": ratio(broadcast / sync.floor_seconds),
        "amplification": ratio(plan.amplification_full_broadcast),
        "messages": count(plan.messages),
        "source": count(system.trainer.gpus),
        "command": word(lab.command(case, "reshard")),
    }


def _moves(lab: Lab, ours: str, theirs: str) -> tuple[str, list[Run], str]:
    """Command, runs of the first engine's tensor, and its name; TP=2 trainer to TP=4 engines."""
    sets = (
        "trainer.backend=megatron",
        "trainer.tp=2",
        "trainer.pp=1",
        "rollout.tp=4",
        "rollout.memory_utilization=0.9",
    )
    case = lab.regime("disaggregated-sync") & sets
    if lab.model.attention.kind != "gqa" or lab.model.layers[0].moe:
        raise Unanswerable(
            f"{lab.model.name} has no fused {ours} of a dense layer", f"{lab.model.name} 没有稠密层的融合 {ours}"
        )
    name = f"model.layers.0.{theirs}"
    plan = lab.plan(case)
    first = plan.system.trainer.gpus
    runs = [r for r in plan.runs(name) if r.dst_tensor == name and r.dst_rank < first + 4]
    return f"{lab.command(case, 'reshard')} --tensor {name}", runs, name


def _ranges(runs: list[Run], rank: int) -> str:
    mine = sorted((r for r in runs if r.dst_rank == rank), key=lambda r: r.dst_start)
    parts = [f"rank {r.src_rank} [{r.src_start[0]}, {r.src_start[0] + r.shape[0]})" for r in mine]
    return ", ".join(parts[:6]) + (", …" if len(parts) > 6 else "")


def _fused(lab: Lab, ours: str, theirs: str) -> Facts:
    command, runs, name = _moves(lab, ours, theirs)
    last = max(r.dst_rank for r in runs)
    rows = max(r.dst_start[0] + r.shape[0] for r in runs if r.dst_rank == last)
    m = lab.model
    return {
        "tensor": word(name),
        "rows": count(rows),
        "runs": count(sum(r.dst_rank == last for r in runs)),
        "ranges": word(_ranges(runs, last)),
        "heads": count(m.attention.heads),
        "kv_heads": count(m.attention.kv_heads),
        "head_dim": count(m.attention.head_dim),
        "width": count(m.intermediate),
        "quarter": count(m.intermediate / 4),
        "command": word(command),
    }


def qkv(lab: Lab) -> Facts:
    return _fused(lab, "QKV", "self_attn.qkv_proj.weight")


def gate_up(lab: Lab) -> Facts:
    return _fused(lab, "gate_up", "mlp.gate_up_proj.weight")


def at_scale(lab: Lab) -> Facts:
    found = dict(floor(lab))
    run = lab.run(lab.regime("disaggregated-sync"))
    found["share"] = Pick("large" if run["weight_sync.exposed_seconds"] > 0.05 * run.step else "small")
    found["step"] = seconds(run.step)
    return found


def buckets(lab: Lab) -> Facts:
    case = lab.regime("disaggregated-sync") & ("weight_sync.strategy=broadcast",)
    found: dict[str, Figure | Pick] = {}
    for name, mib in {"large": 4096, "usual": 1024, "small": 128, "tiny": 32}.items():
        sync = lab.plan(case & (f"weight_sync.bucket={mib} MiB",)).sync
        found[name] = seconds(sync.seconds)
        found[f"{name}_size"] = word(f"{mib} MiB")
        found[f"{name}_buckets"] = count(-(-sync.bytes_total // (mib * 2**20)))
    plan = lab.plan(case)
    return {
        **found,
        "model_bytes": size(plan.sync.bytes_total),
        "floor": seconds(plan.sync.floor_seconds),
        "handshake": seconds(plan.system.profile.value("refit_per_bucket_s")),
        "command": word(lab.command(case & ("weight_sync.bucket=32 MiB",), "reshard")),
    }


def fan_out(lab: Lab) -> Facts:
    case = lab.regime("disaggregated-sync")
    part = lab.system(case).rollout[0]
    most, one = part.layout.gpus, part.layout.gpus_per_engine
    if most < 4 * one:
        raise Unanswerable(f"{lab.file} has fewer than four engines", f"{lab.file} 的引擎不足四个")
    found: dict[str, Figure | Pick] = {}
    ways: dict[str, dict[str, float]] = {}
    for name, gpus in {"few": one, "some": most // one // 2 * one, "all": most}.items():
        plan = lab.plan(case & (f"rollout.gpus={gpus}",))
        ways[name] = dict(plan.sync.alternatives)
        found[f"engines_{name}"] = count(gpus / one)
        found[f"floor_{name}"] = seconds(plan.sync.floor_seconds)
        for way in ("broadcast", "p2p", "chain", "host"):
            found[f"{way}_{name}"] = seconds(ways[name][way])
    best = min(("broadcast", "p2p", "chain"), key=lambda way: ways["all"][way])
    return {
        **found,
        "best": word(best),
        "gain": ratio(ways["all"]["broadcast"] / ways["all"][best]),
        "p2p_growth": ratio(ways["all"]["p2p"] / ways["few"]["p2p"]),
        "broadcast_growth": ratio(ways["all"]["broadcast"] / ways["few"]["broadcast"]),
        "nic": rate(part.pool.nic),
        "each": size(lab.plan(case).sync.bytes_max_per_gpu),
        "command": word(lab.command(case & ("weight_sync.strategy=p2p",), "reshard")),
    }


def delta(lab: Lab) -> Facts:
    case = lab.regime("async") & ("weight_sync.strategy=broadcast",)
    packed = ("weight_sync.strategy=delta", "weight_sync.encoding=zstd")
    runs, found = altered(lab, case, delta=("weight_sync.strategy=delta",), packed=packed)
    base, sent = runs["base"], runs["delta"].summary["weight_sync"]["delta"]
    return {
        **found,
        **{f"sync_{name}": seconds(run["weight_sync.seconds"]) for name, run in runs.items()},
        "bytes": size(base["weight_sync.bytes_total"]),
        "bytes_delta": size(sent["bytes"]),
        "changed": share(sent["changed"]),
        "even": rate(sent["break_even_bytes_per_s"]),
        "command": word(lab.command(case & ("weight_sync.strategy=delta",))),
    }


def lora(lab: Lab) -> Facts:
    case = lab.regime("colocated-sync") & ("model.lora=null",)
    key = "model.lora={{rank: 16, targets: all-linear, sync: {}}}"
    runs, found = altered(lab, case, adapter=(key.format("adapter"),), merged=(key.format("merged"),))
    for name, run in runs.items():
        found[f"sync_{name}"] = seconds(run["weight_sync.seconds"])
        found[f"bytes_{name}"] = size(run["weight_sync.bytes_total"])
        found[f"rollout_{name}"] = seconds(run["phases_s.rollout"])
        found[f"train_{name}"] = seconds(run["phases_s.train"])
        found[f"peak_{name}"] = gib(run["memory_gib.trainer_peak"])
    best = min(("adapter", "merged"), key=lambda name: runs[name].step)
    return {
        **found,
        "rank": count(16),
        "rollout_more": slower(runs["adapter"]["phases_s.rollout"], runs["base"]["phases_s.rollout"]),
        "best": Pick(best),
        "command": word(lab.command(case & (key.format("adapter"),))),
    }


def experts(lab: Lab) -> Facts:
    case = lab.regime("disaggregated-sync")
    model, system = lab.model, lab.system(case)
    if model.experts is None:
        raise Unanswerable(f"{model.name} has no experts", f"{model.name} 不是 MoE 模型")
    plan, part = lab.plan(case), system.rollout[0]
    in_experts = sum(layer.moe for layer in model.layers) * model.experts.count * expert_parameters(model)
    whole = parameters(model)
    rest = whole - in_experts
    layout = part.layout
    return {
        "count": count(model.experts.count),
        "share": share(in_experts / whole),
        "train_ep": count(system.trainer.ep),
        "engine_ep": count(layout.moe_ep),
        "attn_dp": count(layout.attn_dp),
        "mine": count(model.experts.count / layout.moe_ep),
        "theirs": count(model.experts.count / system.trainer.ep),
        "expert_bytes": size(2.0 * in_experts / (layout.moe_ep * layout.moe_tp)),
        "rest_bytes": size(2.0 * rest / layout.attn_tp),
        "each": size(plan.sync.bytes_max_per_gpu),
        "model_bytes": size(plan.sync.bytes_total),
        "amplification": ratio(plan.amplification_full_broadcast),
        "broadcast": seconds(plan.sync.alternatives["broadcast"]),
        "p2p": seconds(plan.sync.alternatives["p2p"]),
        "messages": count(plan.messages),
        "command": word(lab.command(case, "reshard")),
    }


FACTS = {
    "sync-floor": floor,
    "sync-at-scale": at_scale,
    "qkv-reshard": qkv,
    "gate-up-reshard": gate_up,
    "buckets": buckets,
    "fan-out": fan_out,
    "delta-sync": delta,
    "lora-sync": lora,
    "expert-reshard": experts,
}
