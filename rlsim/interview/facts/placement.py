"""Facts of placements and schedules: what wins, by how much, and what the switch costs."""

from __future__ import annotations

from rlsim.interview.facts.compare import altered, compared, those_that_run
from rlsim.interview.figure import (
    NOISE,
    Facts,
    Figure,
    Pick,
    count,
    gib,
    plain,
    ratio,
    seconds,
    share,
    size,
    slower,
    word,
)
from rlsim.interview.lab import REGIMES, Lab, Unanswerable
from rlsim.model import parameters

STATES = ("weights", "gradients", "optimizer states")


def placement(lab: Lab) -> Facts:
    runs = lab.runs({name: lab.regime(name) for name in REGIMES})
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


def split(lab: Lab) -> Facts:
    case = lab.regime("one-step-off")
    if lab.scenario(case).cluster.pools:
        raise Unanswerable(f"{lab.file} has pools, which fix the split", f"{lab.file} 的资源池已固定切分比例")
    gpus = lab.scenario(case).cluster.gpus
    shares = (2, 3, 4, 5, 6)
    cases = {n: case & (f"trainer.gpus={gpus * n // 8}", f"rollout.gpus={gpus - gpus * n // 8}") for n in shares}
    runs = those_that_run(lab, {str(n): one for n, one in cases.items()})
    if len(runs) < 2:
        raise Unanswerable(f"{lab.file} runs at one split only", f"{lab.file} 只有一种切分放得下，无从比较")
    names = sorted(runs, key=int)
    best = min(names, key=lambda n: runs[n].step)

    def of(n: str) -> str:
        return f"{gpus * int(n) // 8}+{gpus - gpus * int(n) // 8}"

    def each(key: str) -> Figure:
        return word(", ".join(f"{of(n)}: {seconds(runs[n][key])}" for n in names))

    first, last, top = runs[names[0]], runs[names[-1]], runs[best]
    return {
        "gpus": count(gpus),
        "steps": each("step_time_s.mean"),
        "waits": each("phases_s.wait_rollout"),
        "best": word(of(best)),
        "best_step": seconds(top.step),
        "best_wait": seconds(top["phases_s.wait_rollout"]),
        "first": word(of(names[0])),
        "first_change": slower(first.step, top.step),
        "last": word(of(names[-1])),
        "last_change": slower(last.step, top.step),
        "rollout": seconds(top["rollout_pool_s.generate"]),
        "passes": seconds(top["phases_s.train"] + top["phases_s.logprob"]),
        "command": word(lab.command(cases[int(best)])),
    }


def fit(lab: Lab) -> Facts:
    case = lab.base
    report = lab.check(case).memory
    trainer, system = report.trainer, lab.system(case)
    model = system.model
    problem = report.problems[0] if report.problems else None
    return {
        "params": Figure(float(parameters(model)), "params"),
        "states": size(18.0 * parameters(model)),
        "fits": Pick("no" if problem else "yes"),
        "role": word(problem.role if problem else "–"),
        "over": gib((problem.need - problem.have) / 2**30 if problem else 0.0),
        "fix": word(problem.fix if problem else "–"),
        "peak": gib(trainer.total / 2**30),
        "engine": gib(report.rollout.total / 2**30),
        "hbm": gib(system.trainer_pool.gpu.hbm_bytes / 2**30),
        "weights": gib(trainer.parts.get("weights", 0.0) / 2**30),
        "gradients": gib(trainer.parts.get("gradients", 0.0) / 2**30),
        "optimizer": gib(trainer.parts.get("optimizer states", 0.0) / 2**30),
        "rest": gib((trainer.total - sum(trainer.parts.get(name, 0.0) for name in STATES)) / 2**30),
        "host": gib(report.host.total / 2**30),
        "gpus": count(system.trainer.gpus),
        "command": word(lab.command(case, "check")),
    }


def sleep(lab: Lab) -> Facts:
    case = lab.regime("colocated-sync") & ("offload={optimizer: true, params: true, grads: true, pinned: true}",)
    cases = {
        "base": case,
        "pageable": case & ("offload={optimizer: true, params: true, grads: true, pinned: false}",),
        "some": case & ("offload={optimizer: true, params: false, grads: false}",),
        "none": case & ("offload={optimizer: false, params: false, grads: false}",),
    }
    runs = those_that_run(lab, cases)
    if "base" not in runs:
        lab.run(case)
    base = runs["base"]
    found: dict[str, Figure | Pick] = {}
    for name in cases:
        run = runs.get(name)
        found[name] = seconds(run.step) if run else word("–")
        found[f"switch_{name}"] = seconds(run["phases_s.offload"] + run["phases_s.onload"]) if run else word("–")
        found[f"kv_{name}"] = count(run["kv_tokens_per_engine"]) if run else word("–")
    return {
        **found,
        "none_fits": Pick("yes" if "none" in runs else "no"),
        "switch_share": share((base["phases_s.offload"] + base["phases_s.onload"]) / base.step),
        "states": size(12.0 * parameters(lab.model) / lab.system(case).trainer.gpus),
        "weights": size(2.0 * parameters(lab.model) / lab.system(case).rollout[0].layout.gpus_per_engine),
        "host": gib(base["memory_gib.host_peak"]),
        "command": word(lab.command(cases["some"])),
    }


def cheaper(lab: Lab) -> Facts:
    names = {"base": "all-h100", "h20": "h20-rollout", "l40s": "l40s-rollout", "mixed": "h20-and-h100"}
    runs, found = compared(lab, {key: lab.named(name) for key, name in names.items()})
    for name, run in runs.items():
        found[f"usd_{name}"] = Figure(run["cost.usd_per_step"], "$")
        found[f"rollout_{name}"] = seconds(run["rollout_pool_s.generate"])
        found[f"wait_{name}"] = seconds(run["phases_s.wait_rollout"])
    cheapest = min(runs, key=lambda name: runs[name]["cost.usd_per_step"])
    return {
        **found,
        "cheapest": word(names[cheapest]),
        "saved": share(1 - runs[cheapest]["cost.usd_per_step"] / runs["base"]["cost.usd_per_step"]),
        "command": word(lab.command(lab.named("h20-rollout"))),
    }


def lending(lab: Lab) -> Facts:
    case = lab.regime("async")
    runs, found = altered(lab, case, some=("remedies.elastic={below: 0.4}",), all=("remedies.elastic={below: 1.0}",))
    base, system = runs["base"], lab.system(case)
    return {
        **found,
        "wait": seconds(base["phases_s.wait_rollout"]),
        "wait_share": share(base["phases_s.wait_rollout"] / base.step),
        "gpus": count(system.trainer.gpus),
        "busy": share(base["utilization.all"]),
        "busy_all": share(runs["all"]["utilization.all"]),
        "command": word(lab.command(case & ("remedies.elastic={below: 1.0}",))),
    }


FACTS = {
    "placement-7b": placement,
    "placement-600b": placement,
    "offload": offload,
    "split": split,
    "will-it-fit": fit,
    "sleep-wake": sleep,
    "cheaper-gpus": cheaper,
    "lending": lending,
}
