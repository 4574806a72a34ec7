"""Facts of scale: more GPUs, failures, money, the network, and how far to trust all of it."""

from __future__ import annotations

from rlsim.interview.facts.compare import altered, compared, those_that_run
from rlsim.interview.figure import Facts, Figure, Pick, count, plain, ratio, seconds, share, slower, usd, word
from rlsim.interview.lab import REGIMES, Case, Lab, Unanswerable
from rlsim.model import active_parameters, parameters

TIMES = (1, 2, 4, 8, 16)
FEW = 3
"""Measured steps of a run with a large batch."""
DAY = 86_400.0


def _larger(lab: Lab, case: Case, times: int, *, batch: bool) -> Case:
    """The case on so many times the GPUs, the batch as many times as large or as it is."""
    scenario = lab.scenario(case)
    gpus = scenario.cluster.gpus * times
    if not gpus:
        raise Unanswerable(f"{lab.file} has pools of GPUs", f"{lab.file} 含多个资源池")
    sets = (f"cluster.gpus={gpus}", f"trainer.gpus={gpus}", f"rollout.gpus={gpus}", f"run.steps={FEW}")
    return case & (*sets, *((f"workload.prompts={scenario.workload.prompts * times}",) if batch else ()))


def scale_out(lab: Lab) -> Facts:
    case = lab.regime("colocated-sync")
    strong = lab.runs({f"{n}": _larger(lab, case, n, batch=False) for n in TIMES})
    weak = lab.runs({f"{n}": _larger(lab, case, n, batch=True) for n in (1, 4, 16)})
    first, last = strong["1"], strong[f"{TIMES[-1]}"]
    found: dict[str, Figure | Pick] = {}
    gpus = lab.scenario(case).cluster.gpus
    for n in TIMES:
        found[f"gpus_{n}"] = count(gpus * n)
        found[f"strong_{n}"] = seconds(strong[f"{n}"].step)
    found |= {f"weak_{times}": seconds(run.step) for times, run in weak.items()}
    return {
        **found,
        "times": plain(TIMES[-1]),
        "speedup": ratio(first.step / last.step),
        "efficiency": share(first.step / last.step / TIMES[-1]),
        "weak_efficiency": share(weak["1"].step / weak[f"{TIMES[-1]}"].step),
        "tail": seconds(first["tail.seconds"]),
        "tail_last": seconds(last["tail.seconds"]),
        "train": seconds(first["phases_s.train"]),
        "train_last": seconds(last["phases_s.train"]),
        "sync_last": seconds(last["phases_s.weight_sync"]),
        "other_last": seconds(last["phases_s.other"]),
        "usd": usd(first["cost.usd_per_step"]),
        "usd_last": usd(last["cost.usd_per_step"]),
        "command": word(lab.command(_larger(lab, case, TIMES[-1], batch=False))),
    }


def controller(lab: Lab) -> Facts:
    case = lab.regime("colocated-sync")
    cases = {f"n{n}": _larger(lab, case, n, batch=True) for n in (1, 4, 16)}
    runs, found = compared(lab, cases)
    profile = lab.system(case).profile
    for name, run in runs.items():
        found[f"controller_{name}"] = seconds(run["other_s.controller"])
        found[f"share_{name}"] = share(run["other_s.controller"] / run.step)
        found[f"gpus_{name}"] = count(lab.scenario(cases[name]).cluster.gpus)
        found[f"bytes_{name}"] = Figure(
            run["tokens_per_s"] * run.step * profile.value("controller_bytes_per_token"), "B"
        )
    return {
        **found,
        "rate": Figure(profile.value("controller_bytes_rate"), "B/s"),
        "sample": seconds(profile.value("controller_sample_s")),
        "growth": ratio(runs["n16"]["other_s.controller"] / runs["n1"]["other_s.controller"]),
        "command": word(lab.command(cases["n16"])),
    }


def failures(lab: Lab) -> Facts:
    case = lab.regime("async")
    days = 150.0
    cost = lab.cost(case, steps=1000, mtbf=days * DAY)
    nodes = lab.system(case).trainer.gpus / lab.system(case).trainer.gpus_per_node
    return {
        "steps": count(cost.steps),
        "mtbf": plain(days),
        "nodes": count(nodes),
        "every": Figure((cost.mtbf_s or 0.0) / DAY, "days"),
        "crashes": plain(cost.crashes),
        "useful": Figure(cost.useful_s / DAY, "days"),
        "wall": Figure(cost.wall_s / DAY, "days"),
        "lost": Figure(cost.lost_s / 3600, "h"),
        "held": Figure(cost.checkpoint_s / 3600, "h"),
        "goodput": share(cost.goodput),
        "best": count(cost.best_every or 0),
        "step": seconds(cost.step_s),
        "usd": usd(cost.usd),
        "command": word(f"{lab.command(case, 'cost')} --steps 1000 --mtbf {days:g}d"),
    }


def checkpoints(lab: Lab) -> Facts:
    case = lab.regime("one-step-off") & ("run.checkpoint_every=null", "run.checkpoint=null", "run.eval=null")
    every = "run.checkpoint_every=2"
    runs, found = altered(
        lab, case, wait=(every, "run.checkpoint={mode: sync}"), behind=(every, "run.checkpoint={mode: async}")
    )
    system = lab.system(case)
    state = 14.0 * parameters(system.model)
    rate = system.profile.value("filesystem_write_rate")
    return {
        **found,
        "state": Figure(state, "B"),
        "rate": Figure(rate, "B/s"),
        "write": seconds(state / rate),
        "held_wait": seconds(runs["wait"]["other_s.checkpoint"]),
        "held_behind": seconds(runs["behind"]["other_s.checkpoint"]),
        "every": count(2),
        "command": word(lab.command(case & (every, "run.checkpoint={mode: async}"))),
    }


def price(lab: Lab) -> Facts:
    runs = lab.runs({name: lab.regime(name) for name in REGIMES})
    found: dict[str, Figure | Pick] = {}
    for name, run in runs.items():
        key = {"colocated-sync": "shared", "disaggregated-sync": "apart", "one-step-off": "one", "async": "free"}[name]
        found[key] = usd(run["cost.usd_per_step"])
        found[f"{key}_thousand"] = usd(run["cost.usd_per_1000_steps"])
        found[f"{key}_million"] = usd(run["cost.usd_per_step"] / (run["tokens_per_s"] * run.step) * 1e6)
        found[f"{key}_busy"] = share(run["utilization.all"])
    shared = runs["colocated-sync"]
    cheapest = min(runs, key=lambda name: runs[name]["cost.usd_per_step"])
    return {
        **found,
        "hours": plain(shared["cost.gpu_hours_per_step"]),
        "hourly": usd(shared["cost.usd_per_step"] / shared["cost.gpu_hours_per_step"]),
        "gpus": count(lab.system(lab.regime("colocated-sync")).gpus),
        "step": seconds(shared.step),
        "kwh": plain(shared["cost.kwh_per_step"]),
        "cheapest": word(cheapest),
        "saved": share(1 - runs[cheapest]["cost.usd_per_step"] / shared["cost.usd_per_step"]),
        "command": word(f"{lab.command(lab.regime('colocated-sync'), 'cost')} --steps 1000"),
    }


def experts(lab: Lab) -> Facts:
    case = lab.regime("colocated-sync")
    model = lab.model
    if model.experts is None:
        raise Unanswerable(f"{model.name} has no experts", f"{model.name} 不是 MoE 模型")
    system = lab.system(case)
    part = system.rollout[0]
    dispatchers = lab.runs({name: case & (f"trainer.dispatcher={name}",) for name in ("alltoall", "deepep")})
    run = lab.run(case)
    k, total = model.experts.top_k, model.experts.count

    def touched(batch: int) -> Figure:
        return share(1 - (1 - k / total) ** batch)

    return {
        "experts": count(total),
        "top_k": count(k),
        "total": Figure(parameters(model), "params"),
        "active": Figure(active_parameters(model), "params"),
        "sparsity": ratio(parameters(model) / active_parameters(model)),
        "touched_1": touched(1),
        "touched_32": touched(32),
        "touched_256": touched(256),
        "engine_ep": count(part.layout.moe_ep),
        "train_ep": count(system.trainer.ep),
        "imbalance": ratio(system.profile.value("expert_imbalance")),
        "step": seconds(run.step),
        "train": seconds(run["phases_s.train"]),
        "train_all": seconds(dispatchers["alltoall"]["phases_s.train"]),
        "train_deepep": seconds(dispatchers["deepep"]["phases_s.train"]),
        "dispatch": slower(dispatchers["alltoall"]["phases_s.train"], dispatchers["deepep"]["phases_s.train"]),
        "command": word(lab.command(case & ("trainer.dispatcher=alltoall",))),
    }


def network(lab: Lab) -> Facts:
    case = lab.regime("colocated-sync")
    if lab.scenario(case).cluster.pools:
        raise Unanswerable(f"{lab.file} has pools with networks of their own", f"{lab.file} 的各资源池网络不同")
    nic = lab.system(case).trainer_pool.nic
    runs, found = altered(
        lab,
        case,
        half=(f"cluster.nic={nic / 2e9:g} GB/s",),
        quarter=(f"cluster.nic={nic / 4e9:g} GB/s",),
        thin=("cluster.oversubscription=4",),
    )
    for name, run in runs.items():
        for phase in ("train", "weight_sync", "rollout"):
            found[f"{phase}_{name}"] = seconds(run[f"phases_s.{phase}"])
    quarter, base = runs["quarter"], runs["base"]
    most = max(("rollout", "train", "weight_sync"), key=lambda p: quarter[f"phases_s.{p}"] - base[f"phases_s.{p}"])
    return {
        **found,
        "nic": Figure(nic, "B/s"),
        "nic_quarter": Figure(nic / 4, "B/s"),
        "most": Pick(most),
        "command": word(lab.command(case & (f"cluster.nic={nic / 4e9:g} GB/s",))),
    }


def trust(lab: Lab) -> Facts:
    case = lab.regime("colocated-sync")
    runs, found = altered(lab, case, roofline=("costs.kernels=roofline",))
    run = runs["base"]
    low, high = run["prediction_interval_s.p10"], run["prediction_interval_s.p90"]
    return {
        **found,
        "low": seconds(low),
        "high": seconds(high),
        "width": share((high - low) / run.step),
        "measured": share(run["provenance.measured"]),
        "scaled": share(run["provenance.scaled"]),
        "priors": share(run["provenance.roofline"]),
        "assumptions": count(len(run.summary["assumptions"])),
        "profile": word(lab.system(case).profile.name),
        "other": Figure(run["phases_s.other"], "s"),
        "command": word(lab.command(case)),
        "command_profile": word(f"rlsim calibrate show {lab.system(case).profile.name}"),
    }


def hardware(lab: Lab) -> Facts:
    case = lab.regime("colocated-sync")
    if lab.scenario(case).cluster.pools:
        raise Unanswerable(f"{lab.file} has pools of several GPUs", f"{lab.file} 含多种 GPU 的资源池")
    kinds = ("h100-sxm", "h200", "h20", "b200")
    runs = those_that_run(lab, {k: case & (f"cluster.gpu={k}", "costs.gpu_hour=null") for k in kinds})
    if len(runs) < 2:
        raise Unanswerable(f"{lab.file} fits on one kind of GPU only", f"{lab.file} 只在一种 GPU 上放得下")
    fastest = min(runs, key=lambda kind: runs[kind].step)
    cheapest = min(runs, key=lambda kind: runs[kind]["cost.usd_per_step"])

    def each(of: str, unit: str) -> Figure:
        return word(", ".join(f"{kind} {Figure(run[of], unit)}" for kind, run in runs.items()))

    return {
        "kinds": word(", ".join(runs)),
        "steps": each("step_time_s.mean", "s"),
        "prices": each("cost.usd_per_step", "$"),
        "rollouts": each("phases_s.rollout", "s"),
        "updates": each("phases_s.train", "s"),
        "fastest": word(fastest),
        "fastest_step": seconds(runs[fastest].step),
        "cheapest": word(cheapest),
        "cheapest_usd": usd(runs[cheapest]["cost.usd_per_step"]),
        "command": word(lab.command(case & (f"cluster.gpu={fastest}", "costs.gpu_hour=null"))),
    }


def stragglers(lab: Lab) -> Facts:
    names = {"base": "none", "slow": "slow-node", "engine": "engine-crash", "crash": "trainer-crash"}
    runs, found = compared(
        lab, {**{key: lab.named(name) for key, name in names.items()}, "saved": lab.named("with-checkpoints")}
    )
    base = runs["base"]
    return {
        **found,
        "steps": count(lab.scenario(lab.named("none")).run.steps),
        "busy": share(base["utilization.trainer"]),
        "wait": seconds(base["phases_s.wait_rollout"]),
        "restart": seconds(runs["crash"]["other_s.restart"]),
        "lost": seconds(runs["crash"]["other_s.lost"]),
        "lost_saved": seconds(runs["saved"]["other_s.lost"]),
        "command": word(lab.command(lab.named("slow-node"))),
    }


FACTS = {
    "scale-out": scale_out,
    "controller-scale": controller,
    "failures": failures,
    "stragglers": stragglers,
    "checkpoints": checkpoints,
    "price": price,
    "experts": experts,
    "network": network,
    "hardware": hardware,
    "trust": trust,
}
