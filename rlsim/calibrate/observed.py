"""A run's log as phases of the step: which timers are which phase, with what lengths, and whether it is this scenario.

Timers of verl, see its reading pitfalls: `gen` is generation in a synchronous run (with the weight sync, where no
timer `update_weights` is beside it) and the trainer's wait in an asynchronous one; states that come back from the host
do so in the first pass that needs them; `step` holds checkpoints but no validation.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
from scipy.special import ndtri

from rlsim.errors import UserError
from rlsim.frameworks.run_log import Floats, RunLog
from rlsim.scenario.schema import Scenario
from rlsim.scenario.schema_lengths import LengthSpec

TIMERS: Mapping[str, tuple[str, ...]] = {
    "rollout": ("gen",),
    "reward": ("reward",),
    "logprob": ("old_log_prob", "values"),
    "reference": ("ref",),
    "train": ("update_actor", "update_critic"),
    "weight_sync": ("update_weights", "param_sync", "sync_rollout_weights"),
}
"""Phase -> timers that are added up."""
BESIDE = ("testing", "save_checkpoint")
"""Timers that no step of the simulation has."""
KNOWN = {timer for timers in TIMERS.values() for timer in timers}
MOST_BINS = 3
APART = 1.1  # ratio of mean lengths from which a bin of its own is worth its simulations
FEWEST = 3  # steps of a bin
SLOW = 3.0  # a step this much above the median is a warm-up or a hiccup
CENSORED = 0.98
SAMPLES_OFF = 0.1  # tokens of the batch over prompts · group · mean lengths: how far off before it is another batch


@dataclass(frozen=True)
class Bin:
    """Steps of similar lengths: medians of the phases' seconds, and how far single steps stray.

    seconds, noise   by phase; noise is the standard deviation of one step, robust
    """

    steps: int
    response: LengthSpec | None
    prompt_mean: float | None
    seconds: Mapping[str, float]
    noise: Mapping[str, float]

    @property
    def step_seconds(self) -> float:
        return sum(self.seconds.values())


@dataclass(frozen=True)
class Observed:
    """What a log says of a scenario's step: phases by bin, lengths over all, notes on what was done to it."""

    bins: tuple[Bin, ...]
    lengths: LengthSpec | None
    prompt_mean: float | None
    notes: tuple[str, ...] = field(default=())


def observe(log: RunLog, scenario: Scenario, bins: int | None = None) -> Observed:
    """Phases of the log's steps. Raises `UserError` where the log can't be of this scenario's run."""
    notes = list(log.notes)
    phases = _phases(log, notes)
    step = np.sum(list(phases.values()), axis=0)
    keep = step <= SLOW * np.median(step)
    if not keep.all():
        notes.append(f"{int((~keep).sum())} steps that took over {SLOW:g} times the median are left out")
    log, phases = log.part(np.flatnonzero(keep)), {name: v[keep] for name, v in phases.items()}
    notes += _check(log, scenario, float(np.median(step)))
    parts = _parts(log, bins)
    made = tuple(_bin(log.part(part), {n: v[part] for n, v in phases.items()}, scenario) for part in parts)
    prompt = _mean(log, "prompt_length/mean")
    return Observed(made, lengths(log, scenario), prompt, tuple(notes))


def _phases(log: RunLog, notes: list[str]) -> dict[str, Floats]:
    """Phase -> float64[steps]; `other` is what the step has beyond them."""
    found: dict[str, Floats] = {}
    for phase, timers in TIMERS.items():
        there = [np.nan_to_num(log.column(f"timing_s/{t}")) for t in timers if log.has(f"timing_s/{t}")]
        if there:
            found[phase] = np.sum(there, axis=0)
    if "rollout" not in found and "train" not in found:
        named = ", ".join(sorted({k for m in log.metrics for k in m if k.startswith("timing_s/")})[:6])
        message = f"neither timing_s/gen nor timing_s/update_actor; the timers are {named}"
        raise UserError(message, file=", ".join(log.files), fix="a log of whole training steps")
    if not log.has("timing_s/step"):
        notes.append("no timing_s/step in the log: the step is the sum of its phases")
        return found
    beside = np.sum([np.nan_to_num(log.column(f"timing_s/{t}")) for t in BESIDE], axis=0)
    step, known = log.column("timing_s/step"), np.sum(list(found.values()), axis=0)
    rest = np.where(step - beside - known < -0.01 * step, step - known, step - beside - known)
    found["other"] = np.maximum(np.nan_to_num(rest), 0.0)
    return found


def _check(log: RunLog, scenario: Scenario, step: float) -> list[str]:
    """GPUs and samples as the log's own figures imply them, against the scenario's."""
    file, notes = ", ".join(log.files), []
    tokens = log.column("perf/total_num_tokens")
    gpus = float(np.nanmedian(tokens / log.column("perf/throughput") / log.column("perf/time_per_step"))) if (
        log.has("perf/throughput") and log.has("perf/total_num_tokens") and log.has("perf/time_per_step")
    ) else math.nan  # fmt: skip
    if not log.has("perf/total_num_tokens") and log.has("global_seqlen/mean"):
        tokens = log.column("global_seqlen/mean") * scenario.trainer.gpus
    every = scenario.trainer.gpus
    if scenario.placement != "colocated":
        every += sum(int(entry.gpus or 0) for entry in scenario.rollout)
    if math.isfinite(gpus) and round(gpus) not in (every, scenario.trainer.gpus):
        message = f"the log is of {gpus:.0f} GPUs (tokens / (throughput · step)), the scenario has {every}"
        raise UserError(message, file=file, fix="the scenario of this run, or --set for its GPUs")
    means = log.column("response_length/mean") + log.column("prompt_length/mean")
    work = scenario.workload
    samples = float(np.nanmedian(tokens / means)) if np.isfinite(tokens / means).any() else math.nan
    wanted = work.prompts * work.group_size
    if math.isfinite(samples) and abs(samples / wanted - 1) > SAMPLES_OFF:
        message = f"the log has {samples:,.0f} samples a step (tokens / mean length), the scenario {wanted:,}"
        raise UserError(message, file=file, fix="--set workload.prompts=… or workload.group_size=…")
    if not log.has("response_length/mean"):
        notes.append("no response_length in the log: the scenario's lengths are taken")
    return notes


def _parts(log: RunLog, bins: int | None) -> list[np.ndarray[tuple[int], np.dtype[np.int64]]]:
    """Places of the steps by mean response length, in as many bins as the lengths tell apart."""
    mean = log.column("response_length/mean")
    every = np.arange(len(mean))
    if not np.isfinite(mean).all() or len(mean) < 3 * MOST_BINS:
        return [every]
    low, high = np.quantile(mean, (0.05, 0.95))
    for count in range(bins or MOST_BINS, 1, -1):
        edges = np.geomspace(low, high, count + 1)[1:-1]
        which = np.searchsorted(edges, mean)
        parts = [np.flatnonzero(which == n) for n in range(count)]
        if (high / low) ** (1 / count) >= APART and min(len(part) for part in parts) >= FEWEST:
            return parts
    return [every]


def _bin(log: RunLog, phases: Mapping[str, Floats], scenario: Scenario) -> Bin:
    def noise(values: Floats) -> float:
        return 1.4826 * float(np.median(np.abs(values - np.median(values))))

    return Bin(
        steps=len(log.steps),
        response=lengths(log, scenario),
        prompt_mean=_mean(log, "prompt_length/mean"),
        seconds={name: float(np.median(v)) for name, v in phases.items()},
        noise={name: noise(v) for name, v in phases.items()},
    )


def _mean(log: RunLog, name: str) -> float | None:
    values = log.column(name)
    return float(np.nanmean(values)) if np.isfinite(values).any() else None


def lengths(log: RunLog, scenario: Scenario) -> LengthSpec | None:
    """Response lengths from mean, maximum and clip ratio of the steps; a lognormal under the scenario's cap.

    With samples at the cap, mean and clip ratio fix it. Else the largest of N samples is at the 2^(-1/N) quantile:
    ln(max/mean) = z·σ - σ²/2.
    """
    mean = _mean(log, "response_length/mean")
    if mean is None:
        return None
    cap = scenario.workload.response_tokens.max
    top = log.column("response_length/max")
    top_median = float(np.nanmedian(top)) if np.isfinite(top).any() else None
    if cap is None and top_median is not None:
        cap = float(np.nanmax(top))
    clip = _mean(log, "response_length/clip_ratio")
    mean = round(mean, 1)
    if cap is not None and clip and top_median is not None and top_median >= CENSORED * cap:
        return LengthSpec(mean=mean, clip_ratio=round(clip, 5), max=cap)
    if top_median is None or top_median <= mean:
        return LengthSpec(mean=mean, max=cap)
    n = scenario.workload.prompts * scenario.workload.group_size
    z = float(ndtri(2.0 ** (-1.0 / max(n, 2))))
    inside = z * z - 2 * math.log(top_median / mean)
    sigma = z - math.sqrt(inside) if inside > 0 else z
    p99 = mean * math.exp(float(ndtri(0.99)) * sigma - sigma * sigma / 2)
    p99 = max(p99, mean) if cap is None else min(max(p99, mean), cap)
    return LengthSpec(mean=mean, p99=round(p99, 1), max=cap)
