"""Facts of asynchrony: what staleness buys, how frameworks bound it, what it costs."""

from __future__ import annotations

from rlsim.interview.facts.compare import altered, compared
from rlsim.interview.figure import NOISE, Facts, Figure, Pick, plain, ratio, seconds, share, word
from rlsim.interview.lab import Lab

RULES = {
    "areal": ("async.policy=areal", "async.max_staleness=2"),
    "verl": ("async.policy=verl", "async.max_staleness=null", "async.theta=0.5", "async.sync_every=4"),
    "nemo": ("async.policy=nemo-rl", "async.max_staleness=2"),
    "slime": ("async.policy=slime", "async.max_staleness=null", "async.max_concurrent=96"),
    "openrlhf": ("async.policy=openrlhf", "async.max_staleness=null", "async.queue=2"),
    "trl": ("async.policy=trl", "async.max_staleness=2"),
}
"""Each framework's rule, with its own parameters where it has no bound in versions."""
WORTH = "workload.learning_efficiency={0: 1, 4: 0.9, 8: 0.7}"


def asynchrony(lab: Lab) -> Facts:
    case = lab.regime("async")
    bounds = (1, 2, 4)
    cases = {f"{eta}": case & (f"async.max_staleness={eta}",) for eta in bounds}
    runs = lab.runs({**cases, "sync": lab.regime("disaggregated-sync")})
    base, last = runs["sync"], runs["4"]
    found: dict[str, Figure | Pick] = {
        "sync_step": seconds(base.step),
        "gain": ratio(base.step / last.step),
        "busy_trainer": share(last["utilization.trainer"]),
        "busy_rollout": share(last["utilization.rollout"]),
        "wait": seconds(last["phases_s.wait_rollout"]),
        "pace": Pick("rollout" if last["phases_s.wait_rollout"] > 0.05 * last.step else "trainer"),
        "more": Pick("level" if runs["2"].step < last.step * (1 + NOISE) else "gains"),
        "command": word(lab.command(case & ("async.max_staleness=1",))),
    }
    for eta in cases:
        found[f"step_{eta}"] = seconds(runs[eta].step)
        found[f"late_{eta}"] = plain(runs[eta]["staleness.mean"])
    return found


def rules(lab: Lab) -> Facts:
    case = lab.regime("async")
    runs, found = compared(lab, {name: case & sets for name, sets in RULES.items()})
    for name, run in runs.items():
        found[f"late_{name}"] = plain(run["staleness.mean"])
        found[f"most_{name}"] = plain(run["staleness.max"])
        found[f"wasted_{name}"] = share(run["tokens.wasted"] / max(1.0, run["tokens.generated"]))
    fastest = min(runs, key=lambda name: runs[name].step)
    slowest = max(runs, key=lambda name: runs[name].step)
    return {
        **found,
        "fastest": word(fastest),
        "slowest": word(slowest),
        "spread": ratio(runs[slowest].step / runs[fastest].step),
        "command": word(lab.command(case & RULES["areal"])),
    }


def overlap(lab: Lab) -> Facts:
    names = {"base": "colocated-sync", "apart": "disaggregated-sync", "one": "one-step-off", "free": "async"}
    runs, found = compared(lab, {name: lab.regime(regime) for name, regime in names.items()})
    one, free = runs["one"], runs["free"]

    def passes(key: str) -> float:
        return runs[key]["phases_s.train"] + runs[key]["phases_s.logprob"]

    return {
        **found,
        "wait": seconds(one["phases_s.wait_rollout"]),
        "wait_share": share(one["phases_s.wait_rollout"] / one.step),
        "passes": seconds(passes("one")),
        "sync": seconds(one["phases_s.weight_sync"]),
        "rollout": seconds(runs["apart"]["phases_s.rollout"]),
        "tail": seconds(runs["apart"]["tail.seconds"]),
        "wait_free": seconds(free["phases_s.wait_rollout"]),
        "late": plain(free["staleness.mean"]),
        "gain": ratio(one.step / free.step),
        "which": Pick("free" if free.step < one.step * (1 - NOISE) else "one"),
        "command": word(lab.command(lab.regime("one-step-off"))),
    }


def effective(lab: Lab) -> Facts:
    case = lab.regime("async") & (WORTH,)
    bounds = (1, 2, 4, 8)
    runs, found = compared(lab, {f"step_{n}": case & (f"async.max_staleness={n}",) for n in bounds})
    worth = {n: runs[f"step_{n}"]["effective_tokens_per_s"] for n in bounds}
    best = max(bounds, key=lambda n: worth[n])
    for n in bounds:
        found[f"rate_{n}"] = plain(runs[f"step_{n}"]["tokens_per_s"])
        found[f"worth_{n}"] = plain(worth[n])
        found[f"late_{n}"] = plain(runs[f"step_{n}"]["staleness.mean"])
    return {
        **found,
        "best": plain(best),
        "gain": ratio(worth[best] / worth[1]),
        "command": word(lab.command(case & (f"async.max_staleness={best}",))),
    }


def partial_rollout(lab: Lab) -> Facts:
    case = lab.regime("async")
    runs, found = altered(
        lab,
        case & ("async.partial_rollout=true", "async.on_sync=interrupt"),
        drain=("async.partial_rollout=false", "async.on_sync=drain"),
    )
    base, drain = runs["base"], runs["drain"]
    return {
        **found,
        "spans": plain(base["spans.mean"]),
        "spans_max": plain(base["spans.max"]),
        "reprefill": seconds(base["rollout_pool_s.reprefill"]),
        "reprefill_share": share(base["rollout_pool_s.reprefill"] / base.step),
        "drained": seconds(drain["weight_sync.lost.drain_s"]),
        "lost": share(base["weight_sync.lost.engine_share"]),
        "lost_drain": share(drain["weight_sync.lost.engine_share"]),
        "command": word(lab.command(case & ("async.partial_rollout=false", "async.on_sync=drain"))),
    }


def correction(lab: Lab) -> Facts:
    case = lab.regime("async") & ("workload.logprob=rollout",)
    runs, found = altered(
        lab, case, recompute=("workload.logprob=recompute",), decoupled=("workload.logprob=decoupled",)
    )
    base = runs["base"]
    return {
        **found,
        **{f"logprob_{name}": seconds(run["phases_s.logprob"]) for name, run in runs.items()},
        "late": plain(base["staleness.mean"]),
        "updates": plain(base["staleness_updates.mean"]),
        "pace": Pick("rollout" if base["phases_s.wait_rollout"] > 0.05 * base.step else "trainer"),
        "wait": seconds(base["phases_s.wait_rollout"]),
        "command": word(lab.command(case & ("workload.logprob=decoupled",))),
    }


FACTS = {
    "staleness": asynchrony,
    "staleness-rules": rules,
    "one-step-or-async": overlap,
    "effective-throughput": effective,
    "partial-rollout": partial_rollout,
    "correction": correction,
}
