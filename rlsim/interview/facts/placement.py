"""Facts of placements and schedules: what wins, by how much, and what the switch costs."""

from __future__ import annotations

from rlsim.interview.figure import NOISE, Facts, Figure, Pick, count, plain, ratio, seconds, share, size, word
from rlsim.interview.lab import REGIMES, Lab
from rlsim.model import parameters


def placement(lab: Lab) -> Facts:
    runs = {name: lab.run(lab.regime(name)) for name in REGIMES}
    shared, apart = runs["colocated-sync"], runs["disaggregated-sync"]
    step, late = runs["one-step-off"], runs["async"]
    change = apart.step / shared.step - 1
    best = min(runs, key=lambda name: runs[name].step)
    switch = shared["phases_s.offload"] + shared["phases_s.onload"]
    return {
        "shared": seconds(shared.step),
        "apart": seconds(apart.step),
        "step_off": seconds(step.step),
        "asynchronous": seconds(late.step),
        "difference": share(abs(change)),
        "on_policy": Pick("level" if abs(change) < NOISE else "shared" if change > 0 else "apart"),
        "best": Pick(best),
        "step_gain": ratio(shared.step / step.step),
        "async_gain": ratio(shared.step / late.step),
        "staleness": plain(late["staleness.mean"]),
        "switch": seconds(switch),
        "switch_share": share(switch / shared.step),
        "switch_weight": Pick("small" if switch < 0.05 * shared.step else "large"),
        "shared_train": seconds(shared["phases_s.train"]),
        "apart_train": seconds(apart["phases_s.train"]),
        "shared_rollout": seconds(shared["phases_s.rollout"]),
        "apart_rollout": seconds(apart["phases_s.rollout"]),
        "tail": seconds(shared["tail.seconds"]),
        "tail_share": share(shared["tail.share"]),
        "p10": seconds(shared["prediction_interval_s.p10"]),
        "p90": seconds(shared["prediction_interval_s.p90"]),
        "gpus": count(lab.system(lab.regime("colocated-sync")).gpus),
        "shared_usd": Figure(shared["cost.usd_per_step"], "$"),
        "async_usd": Figure(late["cost.usd_per_step"], "$"),
    }


def offload(lab: Lab) -> Facts:
    case = lab.regime("colocated-sync")
    run, system = lab.run(case), lab.system(case)
    gpus = system.trainer.gpus
    states = 12.0 * parameters(system.model)
    switch = run["phases_s.offload"] + run["phases_s.onload"]
    ledger = run.summary["offload_ledger"]
    return {
        "states": size(states),
        "each": size(states / gpus),
        "node": size(states / gpus * system.trainer.gpus_per_node),
        "gpus": count(gpus),
        "step": seconds(run.step),
        "switch": seconds(switch),
        "switch_share": share(switch / run.step),
        "without": seconds(ledger["without_offload"]["seconds"]),
        "kv": count(ledger["in_use"]["kv_tokens_per_engine"]),
        "kv_without": count(ledger["without_offload"]["kv_tokens_per_engine"]),
        "needed": Pick("yes" if ledger["needed"] else "no"),
        "weight": Pick("small" if switch < 0.05 * run.step else "large"),
        "command": word(lab.command(case)),
    }


def asynchrony(lab: Lab) -> Facts:
    case = lab.regime("async")
    bounds = (1, 2, 4)
    runs = {eta: lab.run(case & (f"async.max_staleness={eta}",)) for eta in bounds}
    base, last = lab.run(lab.regime("disaggregated-sync")), runs[bounds[-1]]
    found: dict[str, Figure | Pick] = {
        "sync_step": seconds(base.step),
        "gain": ratio(base.step / last.step),
        "busy_trainer": share(last["utilization.trainer"]),
        "busy_rollout": share(last["utilization.rollout"]),
        "wait": seconds(last["phases_s.wait_rollout"]),
        "pace": Pick("rollout" if last["phases_s.wait_rollout"] > 0.05 * last.step else "trainer"),
        "more": Pick("level" if runs[2].step < last.step * (1 + NOISE) else "gains"),
        "command": word(lab.command(case & ("async.max_staleness=1",))),
    }
    for eta, run in runs.items():
        found[f"step_{eta}"] = seconds(run.step)
        found[f"late_{eta}"] = plain(run["staleness.mean"])
    return found


FACTS = {
    "placement-7b": placement,
    "placement-600b": placement,
    "offload": offload,
    "staleness": asynchrony,
}
