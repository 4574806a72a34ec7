"""Facts of the weight sync: its floor, its strategies, and what a fused tensor turns into."""

from __future__ import annotations

from rlsim.interview.figure import Facts, Pick, count, rate, ratio, seconds, size, word
from rlsim.interview.lab import Lab, Unanswerable
from rlsim.resharding import Run


def floor(lab: Lab) -> Facts:
    case = lab.regime("disaggregated-sync")
    plan, system = lab.plan(case), lab.system(case)
    sync, part = plan.sync, lab.system(case).rollout[0]
    ways = {name: s for name, s in sync.alternatives.items() if name != "filesystem"}
    if "broadcast" not in ways:
        raise Unanswerable(f"{lab.file} has no weight sync between two pools of GPUs")
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
        raise Unanswerable(f"{lab.model.name} has no fused {ours} of a dense layer")
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


FACTS = {"sync-floor": floor, "sync-at-scale": at_scale, "qkv-reshard": qkv, "gate-up-reshard": gate_up}
