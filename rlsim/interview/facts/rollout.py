"""Facts of the rollout: its tail, what shortens it, and who else it waits for."""

from __future__ import annotations

from math import exp, lgamma

from rlsim.interview.facts.compare import altered, compared, those_that_run
from rlsim.interview.figure import NOISE, Facts, Pick, count, more, plain, ratio, seconds, share, word
from rlsim.interview.lab import Case, Lab, Run, Unanswerable


def long_tail(lab: Lab) -> Facts:
    case = lab.regime("colocated-sync")
    run = lab.run(case)
    over = case & ("remedies.over_sampling.ratio=1.25", "remedies.over_sampling.unfinished=keep")
    stepping = lab.regime("one-step-off")
    kept, overlapped = lab.run(over), lab.run(stepping)
    surface = run.costs.engines[0][0]
    mean = run["response_tokens.trained"]
    many = surface.max_num_seqs
    one, full = surface.row(1, mean), surface.row(many, mean)
    return {
        "step": seconds(run.step),
        "rollout": seconds(run["phases_s.rollout"]),
        "tail": seconds(run["tail.seconds"]),
        "tail_share": share(run["tail.share"]),
        "mean": count(mean),
        "one": seconds(one),
        "full": seconds(full),
        "many": count(many),
        "cheaper": ratio(full / one),
        "throughput": ratio(many * one / full),
        "kept": seconds(kept.step),
        "kept_gain": ratio(run.step / kept.step),
        "overlapped": seconds(overlapped.step),
        "overlapped_gain": ratio(run.step / overlapped.step),
        "overlap": Pick("gains" if overlapped.step < (1 - NOISE) * run.step else "loses"),
        "command": word(lab.command(over)),
    }


def over_sampling(lab: Lab) -> Facts:
    case = lab.regime("colocated-sync")
    key = "remedies.over_sampling.ratio={}"
    kept = "remedies.over_sampling.unfinished=keep"
    runs, found = altered(
        lab,
        case,
        discard=(key.format(1.25),),
        discard_2=(key.format(2),),
        keep=(key.format(1.25), kept),
        keep_2=(key.format(2), kept),
    )
    thrown = runs["discard_2"]
    return {
        **found,
        "tail_share": share(runs["base"]["tail.share"]),
        "wasted": share(runs["discard"]["tokens.wasted"] / runs["discard"]["tokens.generated"]),
        "wasted_2": share(thrown["tokens.wasted"] / thrown["tokens.generated"]),
        "mean": count(runs["base"]["response_tokens.trained"]),
        "mean_2": count(thrown["response_tokens.trained"]),
        "bias": more(thrown["response_tokens.trained"], runs["base"]["response_tokens.trained"]),
        "staleness": plain(runs["keep_2"]["staleness.mean"]),
        "command": word(lab.command(case & (key.format(1.25), kept))),
    }


def dynamic_sampling(lab: Lab) -> Facts:
    case = lab.regime("colocated-sync")
    work = lab.scenario(case).workload
    rate = work.pass_rate
    mean = 0.5 if rate is None else rate.mean
    concentration = 0.6 if rate is None or rate.concentration is None else rate.concentration
    base = case & (
        f"workload.pass_rate={{mean: {mean:g}, concentration: {concentration:g}}}",
        "workload.dynamic_sampling=null",
    )
    refill = "workload.dynamic_sampling={{refill: {}}}"
    runs, found = altered(
        lab, base, **{name: (refill.format(name),) for name in ("batch", "replace", "double", "fetch")}
    )
    alike = _alike(mean, concentration, work.group_size)
    best = min(("batch", "replace", "double", "fetch"), key=lambda name: runs[name].step)
    return {
        **found,
        "group": count(work.group_size),
        "pass_rate": share(mean),
        "alike": share(alike),
        "drawn": ratio(1 / (1 - alike)),
        "wasted": share(runs[best]["tokens.wasted"] / runs[best]["tokens.generated"]),
        "tail": seconds(runs["replace"]["tail.seconds"]),
        "best": Pick(best),
        "command": word(lab.command(base & (refill.format(best),))),
    }


def _alike(mean: float, concentration: float, group: int) -> float:
    """E[p^G + (1-p)^G] for pass rates p of a beta distribution: the share of groups whose rewards are all the same."""
    a, b = mean * concentration, (1 - mean) * concentration

    def all_of(first: float, second: float) -> float:
        return exp(lgamma(first + group) - lgamma(first) + lgamma(first + second) - lgamma(first + second + group))

    return all_of(a, b) + all_of(b, a)


def routing(lab: Lab) -> Facts:
    case = lab.regime("colocated-sync")
    names = {"emptiest": "least-loaded", "turn": "round-robin", "sticky": "group-sticky", "length": "length-aware"}
    runs, found = compared(lab, {name: case & (f"routing={policy}",) for name, policy in names.items()})
    first = lab.system(case).rollout[0]
    samples = lab.scenario(case).workload.prompts * lab.scenario(case).workload.group_size
    return {
        **found,
        "engines": count(first.layout.engines),
        "slots": count(first.entry.max_num_seqs),
        "each": plain(samples / first.layout.engines),
        "rollout": seconds(runs["emptiest"]["phases_s.rollout"]),
        "command": word(lab.command(case & ("routing=length-aware",))),
    }


def reward(lab: Lab) -> Facts:
    case = lab.regime("colocated-sync")
    work = lab.scenario(case).workload
    workers = work.reward.workers
    if workers is None or workers < 8:
        raise Unanswerable(f"{lab.file} has no pool of reward workers", f"{lab.file} 没有 reward worker 池")
    few, whole = f"workload.reward.workers={workers // 8}", "workload.reward.streaming=false"
    runs, found = altered(lab, case, few=(few,), whole=(whole,), both=(few, whole))
    return {
        **found,
        "workers": count(workers),
        "workers_few": count(workers // 8),
        "samples": count(work.prompts * work.group_size),
        "rollout": seconds(runs["base"]["phases_s.rollout"]),
        **{f"exposed_{name}": seconds(run["phases_s.reward"]) for name, run in runs.items()},
        "command": word(lab.command(case & (few, whole))),
    }


def length_growth(lab: Lab) -> Facts:
    case = lab.regime("colocated-sync") & ("workload.drift=null",)
    runs, found = altered(lab, case, double=("workload.drift={table: {0: 2, 1: 2}}",))
    base, double = runs["base"], runs["double"]
    cap = lab.scenario(case).workload.response_tokens.max
    return {
        **found,
        "mean": count(base["response_tokens.trained"]),
        "mean_double": count(double["response_tokens.trained"]),
        "grown": more(double["response_tokens.trained"], base["response_tokens.trained"]),
        "cap": count(cap or 0),
        **{
            f"{phase}_{name}": seconds(run[f"phases_s.{phase}"])
            for name, run in runs.items()
            for phase in ("rollout", "train")
        },
        "command": word(lab.command(case & ("workload.drift={table: {0: 2, 1: 2}}",))),
    }


def multi_turn(lab: Lab) -> Facts:
    case = lab.regime("colocated-sync")
    turns = lab.scenario(case).workload.turns
    if turns is None:
        raise Unanswerable(f"{lab.file} has no turns", f"{lab.file} 不是多轮任务")
    runs, found = altered(
        lab,
        case,
        drop=("workload.turns.kv=drop",),
        few=("workload.turns.workers=16",),
        some=("workload.turns.workers=64",),
    )
    base, drop = runs["base"], runs["drop"]
    return {
        **found,
        "rollout": seconds(base["phases_s.rollout"]),
        "tail_share": share(base["tail.share"]),
        "generating": seconds(base["rollout_pool_s.generate"]),
        "idle": seconds(base["rollout_pool_s.idle"]),
        "prefill": seconds(base["rollout_pool_s.prefill"]),
        "prefill_drop": seconds(drop["rollout_pool_s.prefill"]),
        "batch": plain(base["mean_running_batch"]),
        "command": word(lab.command(case & ("workload.turns.workers=16",))),
    }


def engine_size(lab: Lab) -> Facts:
    case = lab.regime("colocated-sync")
    sizes = (1, 2, 4, 8)
    cases = {str(tp): case & (f"rollout.tp={tp}",) for tp in sizes}
    runs = those_that_run(lab, cases)
    if len(runs) < 2:
        raise Unanswerable(f"{lab.file} runs with one engine size only", f"{lab.file} 只有一种引擎规模放得下，无从比较")
    small, large = min(runs, key=int), max(runs, key=int)
    best = min(runs, key=lambda tp: runs[tp].step)
    mean = runs[small]["response_tokens.trained"]

    def one(run: Run) -> float:
        return float(run.costs.engines[0][0].row(1, mean))

    return {
        "sizes": word(", ".join(sorted(runs, key=int))),
        "steps": word(", ".join(str(seconds(runs[tp].step)) for tp in sorted(runs, key=int))),
        "tails": word(", ".join(str(seconds(runs[tp]["tail.seconds"])) for tp in sorted(runs, key=int))),
        "best": word(best),
        "best_step": seconds(runs[best].step),
        "small": word(small),
        "large": word(large),
        "one_small": seconds(one(runs[small])),
        "one_large": seconds(one(runs[large])),
        "faster": ratio(one(runs[small]) / one(runs[large])),
        "wider": ratio(int(large) / int(small)),
        "kv_small": count(_kv_in_all(lab, cases[small], runs[small])),
        "kv_large": count(_kv_in_all(lab, cases[large], runs[large])),
        "command": word(lab.command(cases[best])),
    }


def _kv_in_all(lab: Lab, case: Case, run: Run) -> float:
    """KV tokens of all engines together."""
    return run["kv_tokens_per_engine"] * lab.system(case).rollout[0].layout.engines


FACTS = {
    "long-tail": long_tail,
    "over-sampling": over_sampling,
    "dynamic-sampling": dynamic_sampling,
    "routing": routing,
    "reward": reward,
    "length-growth": length_growth,
    "multi-turn": multi_turn,
    "engine-size": engine_size,
}
