"""From recorded steps and samples to the figures of the summary; every function is one block of it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy.special import stdtrit

from rlsim.costs.training_layer import IDLE_SHARE
from rlsim.interval import TRAINER_PATH
from rlsim.sim import ledger as fates
from rlsim.sim.prices import Costs
from rlsim.sim.recorder import PHASES, POOL, UPKEEP, PoolCounts, Step
from rlsim.sim.run import Run

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]
GIB = 2.0**30
SOURCES = ("measured", "scaled", "roofline")


def step_time(seconds: Floats) -> dict[str, float | None]:
    """Statistics of the step time. ci95: half width of the mean's 95% interval, t·s/√n; null for one step."""
    n = len(seconds)
    ci95 = float(stdtrit(n - 1, 0.975) * seconds.std(ddof=1) / np.sqrt(n)) if n > 1 else None
    return {
        "mean": float(seconds.mean()),
        "p50": float(np.median(seconds)),
        "p90": float(np.quantile(seconds, 0.9)),
        "min": float(seconds.min()),
        "max": float(seconds.max()),
        "ci95": ci95,
    }


def phases(steps: Sequence[Step]) -> dict[str, float]:
    """Mean seconds a step under each label of the trainer group's clock; they sum to the mean step time."""
    return {name: sum(s.phases[name] for s in steps) / len(steps) for name in PHASES}


def other(steps: Sequence[Step]) -> dict[str, float]:
    """The label `other` split: what is not upkeep is the controller's. `lost`: steps that a crash undid."""
    upkeep = {name: sum(s.upkeep[name] for s in steps) / len(steps) for name in UPKEEP}
    controller = sum(s.phases["other"] - sum(s.upkeep.values()) for s in steps) / len(steps)
    return {"controller": max(0.0, controller), **upkeep}


def goodput(steps: Sequence[Step]) -> float:
    """Useful step time / wall time: without restarts, lost steps and checkpoints that the trainer waits for."""
    idle = sum(s.upkeep[name] for s in steps for name in ("checkpoint", "restart", "lost"))
    return 1.0 - idle / sum(s.seconds for s in steps)


def rollout_pool(steps: Sequence[Step]) -> dict[str, float]:
    """The same seconds as the rollout pool spends them."""
    return {name: sum(s.pool[name] for s in steps) / len(steps) for name in POOL}


def counts(steps: Sequence[Step]) -> PoolCounts:
    """What the engines did over all steps."""
    total = PoolCounts()
    for step in steps:
        total = total.plus(step.counts)
    return total


def rates(steps: Sequence[Step], costs: Costs, efficiency: float = 1.0) -> dict[str, float]:
    """Prompt + response tokens trained on, and samples, per second of wall time.

    `efficiency` is what a sample is worth for learning at this staleness (an input; 1: no effect).
    """
    wall = sum(s.seconds for s in steps)
    tokens = sum(s.tokens for s in steps) / wall
    return {
        "tokens_per_s": tokens,
        "tokens_per_s_per_gpu": tokens / costs.gpus.total,
        "samples_per_s": sum(s.samples for s in steps) / wall,
        "effective_tokens_per_s": tokens * efficiency,
        "goodput": goodput(steps),
    }


def utilization(steps: Sequence[Step], costs: Costs) -> dict[str, float]:
    """Share of GPU-seconds with work: passes on the trainer, engines with requests on the rollout side.

    Waiting, weight sync, offload and the controller are not work. `all`: over all GPUs that are paid for, those of
    other roles included.
    """
    wall = sum(s.seconds for s in steps)
    passes = ("logprob", "reference", "train")
    trainer = sum(s.phases[n] - s.exposed.get(n, 0.0) for s in steps for n in passes) / wall
    trainer += sum(s.early for s in steps) / wall
    engines = sum(count for _, count in costs.engines)
    rollout = sum(s.counts.occupied + s.evaluating for s in steps) / (engines * wall)
    gpus = costs.gpus
    used = trainer * gpus.trainer + rollout * gpus.rollout
    used += sum(seconds for s in steps for seconds in s.beside.values()) / wall
    used += sum(s.counts.lent for s in steps) / wall
    return {"trainer": trainer, "rollout": rollout, "all": used / gpus.total}


def lending(steps: Sequence[Step], costs: Costs) -> dict[str, float] | None:
    """Times a step that the trainer's GPUs are lent to rollout, and for how many seconds; null if they never can be."""
    if costs.lent is None:
        return None
    return {
        "times": sum(s.lendings for s in steps) / len(steps),
        "seconds": sum(s.lent for s in steps) / len(steps),
        "switch_seconds": costs.lent.to_rollout + costs.lent.to_trainer,
    }


def mfu(steps: Sequence[Step], costs: Costs) -> float:
    """Model FLOPs of the updates / (their seconds · trainer GPUs · dense peak)."""
    seconds = sum(s.phases["train"] - s.exposed.get("train", 0.0) for s in steps)
    return sum(s.flops for s in steps) / (seconds * costs.gpus.trainer * costs.peak_flops) if seconds else 0.0


def tail(steps: Sequence[Step]) -> dict[str, float] | None:
    """Mean seconds a step that its rollout's tail lasts, and its share of the step; null without batches."""
    if any(s.tail is None for s in steps):
        return None
    seconds = sum(s.tail or 0.0 for s in steps) / len(steps)
    return {"seconds": seconds, "share": seconds * len(steps) / sum(s.seconds for s in steps)}


def staleness(versions: npt.NDArray[np.int64]) -> dict[str, float]:
    """Versions between the policy that began a sample and the one that trains on it."""
    return {
        "mean": float(versions.mean()),
        "p99": float(np.percentile(versions, 99)),
        "max": int(versions.max()),
    }


def staleness_updates(late: npt.NDArray[np.int64], mini_batches: int, epochs: int) -> dict[str, float]:
    """The same in optimizer updates, over every update that trains on the sample.

    `late` is for the first epoch; epoch e adds e · mini_batches.
    """
    return {
        "mean": float(late.mean()) + mini_batches * (epochs - 1) / 2,
        "max": int(late.max()) + mini_batches * (epochs - 1),
    }


def staleness_histogram(versions: npt.NDArray[np.int64]) -> dict[str, int]:
    """Samples by their staleness in versions."""
    counts = np.bincount(versions)
    return {str(late): int(counts[late]) for late in np.flatnonzero(counts)}


def spans(versions: npt.NDArray[np.int64]) -> dict[str, float]:
    """Policy versions that generated a sample: 1 + weight syncs between its first and its last token."""
    return {"mean": float(versions.mean()), "max": int(versions.max())}


def efficiency(worth: Sequence[tuple[float, float]], versions: Ints, tokens: Ints) -> float:
    """What the tokens trained on are worth for learning, on average; 1 without a curve.

    `worth` is (staleness, worth of a sample), an input: linear between its points, level beyond them.
    """
    if not worth:
        return 1.0
    late, factor = zip(*worth, strict=True)
    return float(np.average(np.interp(versions, late, factor), weights=tokens))


def share_in_engine(runs: Sequence[Run]) -> float:
    """Share of their age, from their start to their training, that samples spent in the rollout pool."""
    inside = age = 0.0
    for run in runs:
        rows = run.measured_samples()
        steps = run.history
        before = [sum(s.upkeep.values()) - s.upkeep["checkpoint"] for s in steps]
        begun = np.array([s.end - sum(s.phases[n] for n in TRAINER_PATH) for s in steps]) + before
        start = run.ledger["start"][rows]
        inside += float((run.ledger["scored"][rows] - start).sum())
        age += float((begun[run.ledger["step"][rows]] - start).sum())
    return min(1.0, inside / age) if age > 0 else 1.0


def samples(runs: Sequence[Run]) -> dict[str, Any]:
    """Samples of the measured steps by fate, dropped ones by reason; `aborted` counts tries that a sync threw away."""
    steps = [s for run in runs for s in run.steps]
    dropped = {name: sum(s.dropped.get(name, 0) for s in steps) for name in fates.FATES}
    return {
        "trained": sum(s.samples for s in steps),
        "dropped": {name: count for name, count in dropped.items() if count},
        "aborted": sum(s.aborted for s in steps),
        "in_flight": sum(int((run.ledger["fate"] == fates.IN_FLIGHT).sum()) for run in runs),
    }


def tokens(steps: Sequence[Step]) -> dict[str, int]:
    """Tokens of the measured steps.

    generated     response tokens
    trained       prompt + response tokens of the samples trained on
    wasted        generated for samples that were dropped or aborted
    reprefilled   contexts processed again after a preemption or a weight sync
    evaluated     response tokens of evaluations, which are not among those above
    """
    total = counts(steps)
    return {
        "generated": total.generated,
        "trained": sum(s.tokens for s in steps),
        "wasted": sum(s.wasted for s in steps),
        "reprefilled": total.reprefilled,
        "evaluated": sum(s.evaluated for s in steps),
    }


def kv(steps: Sequence[Step], costs: Costs) -> dict[str, float]:
    """What became of KV that is not in use on the GPU, over the measured steps.

    swap_s            per step, by which swaps with the host lengthen an engine's iterations (mean over engines)
    swapped_tokens    tokens whose KV went to the host
    reused_tokens     of later turns' prompts, those whose KV was still in the prefix cache
    evicted_tokens    those whose KV was no longer there
    """
    total, engines = counts(steps), sum(count for _, count in costs.engines)
    return {
        "swap_s": total.swap / (len(steps) * engines),
        "swapped_tokens": total.swapped,
        "reused_tokens": total.reused,
        "evicted_tokens": total.evicted,
    }


def response_tokens(runs: Sequence[Run]) -> dict[str, float]:
    """Mean response length of all samples of the workload that were drawn, and of those trained in measured steps.

    A remedy that stops or drops what takes long trains on shorter ones than were drawn.
    """
    drawn = np.concatenate([run.ledger["response"] for run in runs])
    trained = np.concatenate([run.ledger["response"][run.measured_samples()] for run in runs])
    return {"drawn": float(drawn.mean()), "trained": float(trained.mean())}


def memory(costs: Costs) -> dict[str, float]:
    """GiB at the peak moment: busiest GPU of either role, and a node's host memory."""
    report = costs.memory
    return {
        "trainer_peak": sum(report.trainer.parts.values()) / GIB,
        "rollout_peak": sum(report.rollout.parts.values()) / GIB,
        "host_peak": sum(report.host.parts.values()) / GIB,
    }


def cost(steps: Sequence[Step], costs: Costs) -> dict[str, Any]:
    """GPU-hours of a step, their price, by pool too, and their energy (kWh; null where no power limits are known)."""
    seconds = sum(s.seconds for s in steps) / len(steps)
    hours = costs.gpus.total * seconds / 3600
    by_pool = {pool: dollars * seconds / 3600 for pool, dollars in costs.hourly.items()}
    dollars = hours * costs.gpu_hour
    return {
        "usd_per_step": dollars,
        "usd_per_1000_steps": 1000 * dollars,
        "gpu_hours_per_step": hours,
        "usd_by_pool": by_pool,
        "kwh_per_step": power(utilization(steps, costs), costs) * seconds / 3.6e6 if costs.watts else None,
    }


def power(busy: Mapping[str, float], costs: Costs) -> float:
    """Mean power of all GPUs, W: the power limit while there is work, IDLE_SHARE of it while there is none.

    Above the truth where work is bound by memory, as decoding is. Hosts, network and cooling are not in it.
    """
    total = sum(costs.watts.values())
    if not costs.watts.get("rollout"):  # one group of GPUs that both roles share
        shares = {"trainer": busy["all"], "roles": 1.0}
    else:
        shares = {"trainer": busy["trainer"], "rollout": busy["rollout"], "roles": 1.0}
    working = sum(costs.watts[role] * min(1.0, share) for role, share in shares.items())
    return IDLE_SHARE * total + (1 - IDLE_SHARE) * working


def engines(costs: Costs) -> list[dict[str, Any]]:
    """The rollout entries in the file's order: pool, GPU, engines, GPUs and KV tokens of one."""
    return [asdict(kind) for kind in costs.kinds]


def provenance(steps: Sequence[Step], costs: Costs) -> dict[str, float]:
    """Shares of the step's priced seconds by what they rest on.

    Trainer passes and weight syncs say it themselves; generation and waiting for it carry the shares of the
    engine surfaces; offload, onload (bytes / bandwidth) and the controller (profile) are roofline, or measured by
    the profile's curves. The reward, an input, is left out.
    """
    shares = dict.fromkeys(SOURCES, 0.0)
    phase = {name: sum(s.phases[name] for s in steps) for name in PHASES}
    for step in steps:
        for source, seconds in step.sources.items():
            shares[source] += seconds
    _share(shares, phase["weight_sync"], costs.sync.sources)
    _share(shares, phase["rollout"] + phase["wait_rollout"], surfaces(costs))
    for name, role in (("offload", "offload"), ("onload", "onload"), ("other", "controller")):
        shares["measured" if role in costs.measured else "roofline"] += phase[name]
    total = sum(shares.values())
    return {name: seconds / total for name, seconds in shares.items()} if total else {**shares, "roofline": 1.0}


def surfaces(costs: Costs) -> dict[str, float]:
    """Provenance of generation, engines weighted alike."""
    mix = dict.fromkeys(SOURCES, 0.0)
    for surface, engines in costs.engines:
        for source, share in surface.provenance.items():
            mix[source] += engines * share
    return mix


def _share(shares: dict[str, float], seconds: float, weights: Mapping[str, float]) -> None:
    total = sum(weights.values())
    for source, weight in weights.items():
        if total > 0:
            shares[source] += seconds * weight / total
