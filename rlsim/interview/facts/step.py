"""Facts of the step itself: its stages, its controller, its log-probs, its rollout."""

from __future__ import annotations

from rlsim.interview.facts.compare import altered, those_that_run
from rlsim.interview.figure import Facts, Figure, Pick, count, gib, more, plain, seconds, share, size, slower, word
from rlsim.interview.lab import Lab, Unanswerable
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


def slow_step(lab: Lab) -> Facts:
    case = lab.regime("colocated-sync")
    mean = lab.run(case)["response_tokens.trained"]
    nic = lab.system(case).trainer_pool.nic
    equal, faster = f"workload.response_tokens={mean:.0f}", f"cluster.nic={2 * nic / 1e9:g} GB/s"
    runs, found = altered(lab, case, equal=(equal,), nic=(faster,), larger=("rollout.max_num_seqs=512",))
    base = runs["base"]
    phase = base.summary["phases_s"]
    order = sorted(phase, key=lambda name: -phase[name])
    first, second = order[:2]
    return {
        **found,
        "first": Pick(first),
        "second": Pick(second),
        "first_s": seconds(phase[first]),
        "first_share": share(phase[first] / base.step),
        "second_s": seconds(phase[second]),
        "second_share": share(phase[second] / base.step),
        "tail": seconds(base["tail.seconds"]),
        "tail_share": share(base["tail.share"]),
        "busy": share(base["utilization.all"]),
        "mfu": share(base["mfu_train"]),
        "batch": plain(base["mean_running_batch"]),
        "command": word(lab.command(case)),
        "command_why": word(lab.command(case, "explain")),
    }


def bubble(lab: Lab) -> Facts:
    case = lab.regime("colocated-sync")
    stages = lab.system(case).trainer.pp
    if stages == 1:
        raise Unanswerable(f"{lab.file} has no pipeline stages", f"{lab.file} 没有流水线并行")
    prompts = lab.scenario(case).workload.prompts
    fewer = {"half": (f"workload.prompts={prompts // 2}",), "quarter": (f"workload.prompts={prompts // 4}",)}
    runs, found = altered(lab, case, **fewer)
    for name, run in runs.items():
        update = lab.update(case & fewer.get(name, ()))
        m = update.micro_batches
        found[f"micro_{name}"] = count(m)
        found[f"paper_{name}"] = share((stages - 1) / (m + stages - 1))
        found[f"bubble_{name}"] = share(update.parts["bubble"] / update.seconds)
        found[f"imbalance_{name}"] = share(update.parts["imbalance"] / update.seconds)
        found[f"train_{name}"] = seconds(run["phases_s.train"])
    return {
        **found,
        "stages": count(stages),
        "dp": count(lab.system(case).trainer.dp),
        "prompts": count(prompts),
        "prompts_quarter": count(prompts // 4),
        "command": word(lab.command(case & fewer["quarter"])),
    }


def critic(lab: Lab) -> Facts:
    case = lab.regime("disaggregated-sync") & ("workload.algorithm=grpo",)
    runs, found = altered(lab, case, ppo=("workload.algorithm=ppo",), reference=("workload.reference_model=false",))
    base, ppo = runs["base"], runs["ppo"]
    return {
        **found,
        "train": seconds(base["phases_s.train"]),
        "train_ppo": seconds(ppo["phases_s.train"]),
        "peak": gib(base["memory_gib.trainer_peak"]),
        "peak_ppo": gib(ppo["memory_gib.trainer_peak"]),
        "host": gib(base["memory_gib.host_peak"]),
        "host_ppo": gib(ppo["memory_gib.host_peak"]),
        "group": count(lab.scenario(case).workload.group_size),
        "kl": seconds(base["phases_s.reference"]),
        "command": word(lab.command(case & ("workload.algorithm=ppo",))),
    }


def packing(lab: Lab) -> Facts:
    case = lab.regime("colocated-sync")
    budget = lab.scenario(case).trainer.micro_batch_tokens or 16384
    sets = {
        "base": (),
        "padded": ("trainer.packing=false",),
        "unbalanced": ("trainer.balance=none",),
        "small": (f"trainer.micro_batch_tokens={budget // 4}",),
        "selective": ("trainer.recompute=selective",),
    }
    runs = those_that_run(lab, {name: case & keys for name, keys in sets.items()})
    missing = sets.keys() - runs.keys()
    if missing - {"selective", "small"}:
        raise Unanswerable(f"{lab.file} does not run without packing", f"{lab.file} 关闭 packing 后无法运行")
    base = runs["base"]
    found: dict[str, Figure | Pick] = {}
    for name in sets:
        run = runs.get(name)
        found[name] = seconds(run["phases_s.train"]) if run is not None else word("–")
        found[f"{name}_change"] = slower(run["phases_s.train"], base["phases_s.train"]) if run else word("–")
    return {
        **found,
        "budget": count(budget),
        "budget_small": count(budget // 4),
        "step": seconds(base.step),
        "step_padded": seconds(runs["padded"].step),
        "mean": count(base["response_tokens.trained"]),
        "cap": count(lab.scenario(case).workload.response_tokens.max or 0),
        "command": word(lab.command(case & ("trainer.packing=false",))),
    }


def utilisation(lab: Lab) -> Facts:
    case, free = lab.regime("colocated-sync"), lab.regime("async")
    runs = lab.runs({"base": case, "free": free})
    base = runs["base"]
    work = base["phases_s.train"] / base.step
    return {
        "mfu": share(base["mfu_train"]),
        "train": seconds(base["phases_s.train"]),
        "train_share": share(work),
        "whole": share(base["mfu_train"] * work),
        "busy": share(base["utilization.all"]),
        "busy_free": share(runs["free"]["utilization.all"]),
        "rate": plain(base["tokens_per_s_per_gpu"]),
        "rate_free": plain(runs["free"]["tokens_per_s_per_gpu"]),
        "step": seconds(base.step),
        "step_free": seconds(runs["free"].step),
        "batch": plain(base["mean_running_batch"]),
        "more": more(runs["free"]["tokens_per_s_per_gpu"], base["tokens_per_s_per_gpu"]),
        "command": word(lab.command(case)),
    }


FACTS = {
    "six-stages": six_stages,
    "single-controller": single_controller,
    "old-logprobs": old_logprobs,
    "framework-map": framework_map,
    "slow-step": slow_step,
    "pipeline-bubble": bubble,
    "critic": critic,
    "packing": packing,
    "utilisation": utilisation,
}
