"""Facts of the step itself: its stages, its controller, its log-probs, its rollout."""

from __future__ import annotations

from rlsim.interview.figure import NOISE, Facts, Pick, count, plain, ratio, seconds, share, size, word
from rlsim.interview.lab import Lab
from rlsim.model import parameters

SWITCH = ("offload", "onload")


def six_stages(lab: Lab) -> Facts:
    case = lab.regime("colocated-sync")
    run = lab.run(case)
    phase = run.summary["phases_s"]
    switch = sum(phase[name] for name in SWITCH)
    largest = max(("rollout", "logprob", "train", "weight_sync"), key=lambda name: phase[name])
    return {
        "step": seconds(run.step),
        "rollout": seconds(phase["rollout"]),
        "rollout_share": share(phase["rollout"] / run.step),
        "reward": seconds(phase["reward"]),
        "logprob": seconds(phase["logprob"] + phase["reference"]),
        "train": seconds(phase["train"]),
        "sync": seconds(phase["weight_sync"]),
        "sync_share": share(phase["weight_sync"] / run.step),
        "switch": seconds(switch),
        "other": seconds(phase["other"]),
        "largest": Pick(largest),
        "command": word(lab.command(case)),
    }


def single_controller(lab: Lab) -> Facts:
    case = lab.regime("colocated-sync")
    run = lab.run(case)
    controller = run["other_s.controller"]
    tokens = run["tokens_per_s"] * run.step
    return {
        "step": seconds(run.step),
        "controller": seconds(controller),
        "controller_share": share(controller / run.step),
        "tokens": count(tokens),
        "batch": size(tokens * lab.system(case).profile.value("controller_bytes_per_token")),
        "gpus": count(lab.system(case).gpus),
        "weight": Pick("small" if controller < 0.05 * run.step else "felt"),
        "command": word(lab.command(case)),
    }


def old_logprobs(lab: Lab) -> Facts:
    case = lab.regime("colocated-sync") & ("workload.logprob=recompute",)
    bypass = lab.regime("colocated-sync") & ("workload.logprob=rollout",)
    with_, without = lab.run(case), lab.run(bypass)
    return {
        "step": seconds(with_.step),
        "logprob": seconds(with_["phases_s.logprob"]),
        "train": seconds(with_["phases_s.train"]),
        "logprob_of_train": share(with_["phases_s.logprob"] / with_["phases_s.train"]),
        "bypass": seconds(without.step),
        "saved": share(1 - without.step / with_.step),
        "updates": count(lab.scenario(case).workload.updates.mini_batches),
        "updates_late": plain(with_["staleness_updates.mean"]),
        "on_policy": Pick("one" if with_["staleness_updates.max"] == 0 else "several"),
        "command": word(lab.command(bypass)),
    }


def framework_map(lab: Lab) -> Facts:
    case = lab.regime("colocated-sync")
    system, report = lab.system(case), lab.check(case).memory
    states = 16.0 * parameters(system.model)
    return {
        "params": size(2.0 * parameters(system.model)),
        "states": size(states),
        "each": size(states / system.trainer.gpus),
        "gpus": count(system.trainer.gpus),
        "backend": word(system.trainer.backend),
        "peak": size(report.trainer.total),
        "hbm": size(system.trainer_pool.gpu.hbm_bytes),
        "command": word(lab.command(case, "check")),
    }


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


FACTS = {
    "six-stages": six_stages,
    "single-controller": single_controller,
    "old-logprobs": old_logprobs,
    "framework-map": framework_map,
    "long-tail": long_tail,
    "engine-asks": engine_asks,
}
