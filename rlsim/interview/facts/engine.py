"""Facts of the inference engine: its memory, its precision, and what a weight sync does to it."""

from __future__ import annotations

from rlsim.interview.facts.compare import altered, compared
from rlsim.interview.figure import Facts, Pick, count, gib, plain, ratio, seconds, share, size, word
from rlsim.interview.lab import Lab, Run, Unanswerable
from rlsim.model import kv_bytes_per_token_layer

SWITCH = ("offload", "onload")


def engine_asks(lab: Lab) -> Facts:
    case = lab.regime("async")
    run, shared = lab.run(case), lab.run(lab.regime("colocated-sync"))
    return {
        "sync": seconds(run["weight_sync.seconds"]),
        "reprefill": seconds(run["weight_sync.lost.reprefill_s"]),
        "spans": plain(run["spans.mean"]),
        "switch": seconds(sum(shared[f"phases_s.{name}"] for name in SWITCH)),
        "logprob": seconds(shared["phases_s.logprob"]),
        "kv": count(shared["kv_tokens_per_engine"]),
        "command": word(lab.command(case)),
    }


def kv_budget(lab: Lab) -> Facts:
    case = lab.regime("colocated-sync")
    part = lab.system(case).rollout[0]
    fits = int(lab.run(case)["kv_tokens_per_engine"] / _mean_tokens(lab.run(case)))
    few = f"rollout.max_num_seqs={max(1, fits)}"
    runs, found = altered(lab, case, swap=("rollout.preemption=swap",), few=(few,), fp8=("rollout.kv_dtype=fp8",))
    base, model = runs["base"], lab.model
    work = lab.scenario(case).workload
    each_token = kv_bytes_per_token_layer(model, 2, 1) * len(model.layers)
    return {
        **found,
        "token": size(each_token),
        "sequence": size(each_token * _mean_tokens(base)),
        "mean": count(_mean_tokens(base)),
        "kv": count(base["kv_tokens_per_engine"]),
        "kv_fp8": count(runs["fp8"]["kv_tokens_per_engine"]),
        "fits": count(fits),
        "at_once": count(work.prompts * work.group_size / part.layout.engines),
        "preemptions": plain(base["preemptions"] / base["samples.trained"]),
        "limit": Pick("loses" if runs["few"].step > base.step else "gains"),
        "preemptions_fp8": plain(runs["fp8"]["preemptions"] / runs["fp8"]["samples.trained"]),
        "command": word(lab.command(case & ("rollout.kv_dtype=fp8",))),
    }


def _mean_tokens(run: Run) -> float:
    """Tokens of a finished sample: its response and the mean prompt."""
    trained = run["tokens.trained"] / run["samples.trained"]
    return max(trained, run["response_tokens.trained"])


def speculative(lab: Lab) -> Facts:
    case = lab.regime("colocated-sync") & ("rollout.speculative=null",)
    key = "rollout.speculative={{method: {}, tokens: 3, acceptance: {}{}}}"
    good, stale = key.format("eagle", 0.7, ""), key.format("eagle", 0.4, "")
    runs, found = altered(
        lab,
        case,
        good=(good,),
        stale=(stale,),
        tail=(key.format("eagle", 0.4, ", max_batch: 16"),),
        ngram=(key.format("ngram", 0.25, ", max_batch: 16"),),
    )
    return {
        **found,
        "acceptance": share(0.7),
        "acceptance_stale": share(0.4),
        "kept": plain(_kept(0.7, 3)),
        "kept_stale": plain(_kept(0.4, 3)),
        "tail_share": share(runs["base"]["tail.share"]),
        "command": word(lab.command(case & (good,))),
    }


def _kept(acceptance: float, drafted: int) -> float:
    """Tokens an iteration yields: one, and each drafted one if all before it were kept, Σ a^k."""
    return sum(acceptance**k for k in range(drafted + 1))


def prefix_caching(lab: Lab) -> Facts:
    case = lab.regime("disaggregated-sync") & ("routing=least-loaded", "rollout.prefix_caching=true")
    sticky = "routing=group-sticky"
    runs, found = altered(lab, case, sticky=(sticky,), without=(sticky, "rollout.prefix_caching=false"))
    work = lab.scenario(case).workload
    return {
        **found,
        "group": count(work.group_size),
        "prompt": count(work.prompt_tokens.mean or 0),
        **{f"prefill_{name}": seconds(run["rollout_pool_s.prefill"]) for name, run in runs.items()},
        "less": ratio(runs["without"]["rollout_pool_s.prefill"] / runs["sticky"]["rollout_pool_s.prefill"]),
        "engines": count(lab.system(case).rollout[0].layout.engines),
        "command": word(lab.command(case & (sticky,))),
    }


def fp8(lab: Lab) -> Facts:
    case = lab.regime("colocated-sync") & ("rollout.dtype=bf16", "rollout.kv_dtype=bf16")
    weights, cache = "rollout.dtype=fp8", "rollout.kv_dtype=fp8"
    runs, found = altered(lab, case, weights=(weights,), cache=(cache,), both=(weights, cache))
    return {
        **found,
        **{f"rollout_{name}": seconds(run["phases_s.rollout"]) for name, run in runs.items()},
        **{f"kv_{name}": count(run["kv_tokens_per_engine"]) for name, run in runs.items()},
        "sync": seconds(runs["base"]["weight_sync.seconds"]),
        "sync_weights": seconds(runs["weights"]["weight_sync.seconds"]),
        "command": word(lab.command(case & (weights, cache))),
    }


def mismatch(lab: Lab) -> Facts:
    case = lab.regime("colocated-sync") & ("workload.logprob=recompute",)
    exact, bypass = ("rollout.deterministic=true",), ("workload.logprob=rollout",)
    runs, found = altered(lab, case, exact=exact, bypass=bypass, both=(*exact, *bypass))
    return {
        **found,
        "logprob": seconds(runs["base"]["phases_s.logprob"]),
        "rollout": seconds(runs["base"]["phases_s.rollout"]),
        "rollout_exact": seconds(runs["exact"]["phases_s.rollout"]),
        "factor": ratio(lab.system(case).profile.value("engine_deterministic_factor")),
        "command": word(lab.command(case & exact)),
    }


def interruption(lab: Lab) -> Facts:
    case = lab.regime("async")
    ways = {"interrupt": "interrupt", "drain": "drain", "abort": "abort", "flight": "in-flight"}
    runs, found = compared(lab, {name: case & (f"async.on_sync={way}",) for name, way in ways.items()})
    return {
        **found,
        "reprefill": seconds(runs["interrupt"]["weight_sync.lost.reprefill_s"]),
        "drained": seconds(runs["drain"]["weight_sync.lost.drain_s"]),
        "regenerated": seconds(runs["abort"]["weight_sync.lost.regenerate_s"]),
        "lost": share(runs["interrupt"]["weight_sync.lost.engine_share"]),
        "lost_drain": share(runs["drain"]["weight_sync.lost.engine_share"]),
        "spans": plain(runs["interrupt"]["spans.mean"]),
        "command": word(lab.command(case & ("async.on_sync=drain",))),
    }


def online_update(lab: Lab) -> Facts:
    case = lab.regime("async") & ("weight_sync.pause=0 s",)
    runs, found = altered(
        lab,
        case,
        pause=("weight_sync.pause=5 s",),
        rebuilt=("weight_sync.rebuild_group=true",),
        overlap=("weight_sync.overlap=true",),
    )
    memory = runs["overlap"]["memory_gib.rollout_peak"] - runs["base"]["memory_gib.rollout_peak"]
    return {
        **found,
        **{f"sync_{name}": seconds(run["phases_s.weight_sync"]) for name, run in runs.items()},
        "sync_share": share(runs["base"]["phases_s.weight_sync"] / runs["base"].step),
        "memory": gib(memory),
        "kv": count(runs["base"]["kv_tokens_per_engine"]),
        "kv_overlap": count(runs["overlap"]["kv_tokens_per_engine"]),
        "command": word(lab.command(case & ("weight_sync.pause=5 s",))),
    }


def prefill_decode(lab: Lab) -> Facts:
    case = lab.regime("disaggregated-sync")
    gpus = lab.system(case).rollout[0].layout.gpus
    if len(lab.scenario(case).rollout) != 1 or gpus % 4:
        raise Unanswerable(
            f"{lab.file} has no single kind of engine on a multiple of four GPUs",
            f"{lab.file} 的 rollout 不是单一引擎、GPU 数为 4 的倍数",
        )
    entry = lab.scenario(case).rollout[0]
    tp = lab.system(case).rollout[0].layout.gpus_per_engine
    each = f"tp: {tp}, max_num_seqs: {entry.max_num_seqs}, engine: {entry.engine}"

    def split(first: int) -> tuple[str, ...]:
        rest = gpus - first
        return (f"rollout=[{{role: prefill, gpus: {first}, {each}}}, {{role: decode, gpus: {rest}, {each}}}]",)

    runs, found = altered(lab, case, quarter=split(gpus // 4), half=split(gpus // 2))
    work = lab.scenario(case).workload
    return {
        **found,
        "gpus": count(gpus),
        "few": count(gpus // 4),
        "many": count(gpus // 2),
        "prompt": count(work.prompt_tokens.mean or 0),
        "response": count(runs["base"]["response_tokens.trained"]),
        "prefill": seconds(runs["base"]["rollout_pool_s.prefill"]),
        "generate": seconds(runs["base"]["rollout_pool_s.generate"]),
        "command": word(lab.command(case & split(gpus // 4))),
    }


FACTS = {
    "engine-asks": engine_asks,
    "kv-budget": kv_budget,
    "speculative": speculative,
    "prefix-caching": prefix_caching,
    "fp8": fp8,
    "mismatch": mismatch,
    "interrupt": interruption,
    "online-update": online_update,
    "prefill-decode": prefill_decode,
}
