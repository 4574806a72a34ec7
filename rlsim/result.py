"""What one variant's run says: the summary of the JSON contract, and flat tables of what happened."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from rlsim import accounting
from rlsim.bottleneck import bottleneck
from rlsim.goodput import checkpoint_block
from rlsim.interval import needed, prediction_interval
from rlsim.memory_timeline import peaks, timeline
from rlsim.sim import ledger as fates
from rlsim.sim.prices import Costs, Memory
from rlsim.sim.recorder import PHASES, POOL, UPKEEP, Step
from rlsim.sim.run import Run, play
from rlsim.sim.settings import ASYNC, Settings
from rlsim.sim.work import Draw
from rlsim.sync_accounting import weight_sync

if TYPE_CHECKING:
    import pandas as pd

FIGURES = (
    "step_time_s",
    "phases_s",
    "rollout_pool_s",
    "other_s",
    "bottleneck",
    "tokens_per_s",
    "tokens_per_s_per_gpu",
    "samples_per_s",
    "effective_tokens_per_s",
    "goodput",
    "utilization",
    "mfu_train",
    "mean_running_batch",
    "preemptions",
    "kv",
    "tail",
    "staleness",
    "staleness_updates",
    "staleness_histogram",
    "spans",
    "lending",
    "weight_sync",
    "memory_gib",
    "memory_timeline",
    "memory_peak",
    "offload_ledger",
    "kv_tokens_per_engine",
    "engines",
    "samples",
    "tokens",
    "response_tokens",
    "early_logprob_s",
    "cost",
    "checkpoint",
    "prediction_interval_s",
    "provenance",
    "assumptions",
)


@dataclass(frozen=True)
class Labels:
    """What the run is called: scenario name, variant name, first seed."""

    name: str
    variant: str
    seed: int


@dataclass(frozen=True)
class Result:
    """One variant, simulated with one or more seeds."""

    labels: Labels
    settings: Settings
    costs: Costs
    runs: tuple[Run, ...]

    @property
    def name(self) -> str:
        return self.labels.name

    @property
    def variant(self) -> str:
        return self.labels.variant

    @property
    def memory(self) -> Memory:
        return self.costs.memory

    @property
    def hbm_bytes(self) -> float:
        return self.costs.hbm_bytes

    def window(self, steps: int) -> tuple[float, float]:
        """Start of the first measured step and end of the n-th, seconds of the first seed's run."""
        measured = self.runs[0].steps[:steps]
        return measured[0].start, measured[-1].end

    # --- the summary --------------------------------------------------

    def summary(self) -> dict[str, Any]:
        """One object of the JSON contract; plain Python values."""
        costs, settings = self.costs, self.settings
        steps = [step for run in self.runs for step in run.steps]
        phase, pool = accounting.phases(steps), accounting.rollout_pool(steps)
        stale, late, spans, lengths = self._trained()
        low, high = self._interval(phase, pool)
        totals = accounting.counts(steps)
        step_time = accounting.step_time(np.array([s.seconds for s in steps]))
        summary: dict[str, Any] = {
            **head(self.labels, len(self.runs[0].steps), settings.warmup, []),
            "step_time_s": step_time,
            "phases_s": phase,
            "rollout_pool_s": pool,
            "other_s": accounting.other(steps),
            "bottleneck": "",
            **accounting.rates(steps, costs, accounting.efficiency(settings.worth, stale, lengths)),
            "utilization": accounting.utilization(steps, costs),
            "mfu_train": accounting.mfu(steps, costs),
            "mean_running_batch": totals.batch_seconds / totals.busy if totals.busy else 0.0,
            "preemptions": totals.preemptions,
            "kv": accounting.kv(steps, costs),
            "tail": accounting.tail(steps),
            "staleness": accounting.staleness(stale),
            "staleness_updates": accounting.staleness_updates(late, settings.round_mini_batches, settings.epochs),
            "staleness_histogram": accounting.staleness_histogram(stale),
            "spans": accounting.spans(spans),
            "lending": accounting.lending(steps, costs),
            "weight_sync": weight_sync(steps, costs, phase, pool),
            "memory_gib": accounting.memory(costs),
            "memory_timeline": timeline(costs.occupancy, self._typical_step()),
            "memory_peak": peaks(costs.occupancy),
            "offload_ledger": costs.offload.as_dict() if costs.offload is not None else None,
            "kv_tokens_per_engine": costs.memory.kv_tokens_per_engine,
            "engines": accounting.engines(costs),
            "samples": accounting.samples(self.runs),
            "tokens": accounting.tokens(steps),
            "response_tokens": accounting.response_tokens(self.runs),
            "early_logprob_s": sum(s.early for s in steps) / len(steps),
            "cost": accounting.cost(steps, costs),
            "checkpoint": self._checkpoint(steps),
            "prediction_interval_s": {"p10": low, "p90": high},
            "provenance": accounting.provenance(steps, costs),
            "assumptions": list(dict.fromkeys([*costs.assumptions, *settings.notes, *self._unmeasured()])),
        }
        summary["bottleneck"] = bottleneck(summary, settings.regime)
        return summary

    def _typical_step(self) -> Step:
        """The measured step of the first seed whose time is nearest to the mean."""
        steps = self.runs[0].steps
        mean = sum(step.seconds for step in steps) / len(steps)
        return min(steps, key=lambda step: abs(step.seconds - mean))

    def _unmeasured(self) -> list[str]:
        """Faults at given moments outside the measured steps."""
        start, end = self.window(len(self.runs[0].steps))
        missed = [f for f in self.costs.faults if f.at is not None and not start <= f.at < end]
        return [
            f"the fault {f.kind} at {f.at:g} s is outside the measured steps ({start:.0f} to {end:.0f} s)"
            for f in missed
        ]

    def _checkpoint(self, steps: list[Step]) -> dict[str, Any] | None:
        useful = accounting.goodput(steps) * sum(s.seconds for s in steps) / len(steps)
        return checkpoint_block(self.settings, self.costs, useful)

    def _interval(self, phase: dict[str, float], pool: dict[str, float]) -> tuple[float, float]:
        """10th and 90th percentile of the step time."""
        if self.settings.schedule == ASYNC:
            pool = needed(phase, pool, accounting.share_in_engine(self.runs))
        return prediction_interval(phase, pool, self.settings.regime, self.costs.spreads)

    def _trained(self) -> tuple[accounting.Ints, accounting.Ints, accounting.Ints, accounting.Ints]:
        """Of the samples that the measured steps trained on: versions and updates late, versions spanned, tokens."""
        columns: list[list[accounting.Ints]] = [[], [], [], []]
        for run in self.runs:
            rows, ledger = run.measured_samples(), run.ledger
            late = ledger["train_version"][rows] - ledger["begin_version"][rows]
            length = ledger["prompt"][rows] + ledger["response"][rows]
            for column, values in zip(
                columns, (late, ledger["updates_late"][rows], ledger["spans"][rows], length), strict=True
            ):
                column.append(values)
        stale, updates, spans, lengths = (np.concatenate(column) for column in columns)
        return stale, updates, spans, lengths

    # --- the tables --------------------------------------------------

    @cached_property
    def steps(self) -> pd.DataFrame:
        """One row per measured step; phases and the rollout pool's account in seconds."""
        import pandas as pd

        return pd.DataFrame([{"seed": run.seed, **_row(s, run.warmup)} for run in self.runs for s in run.steps])

    @cached_property
    def samples(self) -> pd.DataFrame:
        """One row per admitted sample, warm-up and in flight included; measured steps count from 0.

        Times are NaN and versions -1 for what has not happened; `step` is -1 - warm-up steps for a sample
        that no step trained.
        """
        import pandas as pd

        return pd.concat([_sample_frame(run) for run in self.runs], ignore_index=True)

    @cached_property
    def spans(self) -> pd.DataFrame:
        """The timeline: spans of one `group` of GPUs never overlap; warm-up steps have negative numbers."""
        import pandas as pd

        return pd.concat([_span_frame(run) for run in self.runs], ignore_index=True)

    @cached_property
    def counters(self) -> pd.DataFrame:
        """Running sequences and KV tokens of the whole rollout pool over time (first seed)."""
        import pandas as pd

        return pd.DataFrame(self.runs[0].counters)


def head(labels: Labels, steps: int, warmup: int, problems: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """The fields that an infeasible variant has too."""
    return {
        "name": labels.name,
        "variant": labels.variant,
        "seed": labels.seed,
        "steps": steps,
        "warmup_steps": warmup,
        "feasible": not problems,
        "problems": list(problems),
    }


def infeasible_summary(labels: Labels, settings: Settings, steps: int, memory: Memory) -> dict[str, Any]:
    """The summary of a variant that does not fit: why, what would, and every other figure null."""
    gib = accounting.GIB
    problems = [
        {"role": p.role, "need_gib": p.need / gib, "have_gib": p.have / gib, "by": p.by, "fix": p.fix}
        for p in memory.problems
    ]
    return {**head(labels, steps, settings.warmup, problems), **dict.fromkeys(FIGURES)}


def simulate(
    settings: Settings,
    costs: Costs,
    draw: Draw,
    labels: Labels,
    steps: int,
    seeds: int = 1,
) -> Result:
    """Play `steps` measured steps after the regime's warm-up, once for each seed from the labels' on."""
    runs = tuple(play(settings, costs, draw, steps, labels.seed + i) for i in range(seeds))
    return Result(labels, settings, costs, runs)


def _row(step: Step, warmup: int) -> dict[str, Any]:
    counts = asdict(step.counts)
    return {
        "step": step.index - warmup,
        "start": step.start,
        "end": step.end,
        "step_time": step.seconds,
        **{name: step.phases[name] for name in PHASES},
        **{f"pool_{name}": step.pool[name] for name in POOL},
        "tail": np.nan if step.tail is None else step.tail,
        "version": step.version,
        "samples": step.samples,
        "tokens": step.tokens,
        "dropped": sum(step.dropped.values()),
        "aborted": step.aborted,
        "wasted_tokens": step.wasted,
        **{name: step.upkeep[name] for name in UPKEEP},
        "train_flops": step.flops,
        "engine_seconds": counts["busy"],
        "generated_tokens": counts["generated"],
        "reprefilled_tokens": counts["reprefilled"],
        "preemptions": counts["preemptions"],
    }


def _sample_frame(run: Run) -> pd.DataFrame:
    import pandas as pd

    ledger = run.ledger
    trained = ledger["fate"] == fates.TRAINED
    version, begun = ledger["train_version"], ledger["begin_version"]
    return pd.DataFrame(
        {
            "seed": np.full(ledger.size, run.seed, np.int32),
            "sample": np.arange(ledger.size),
            "step": np.where(trained, ledger["step"] - run.warmup, -1 - run.warmup).astype(np.int32),
            "group": ledger["group"],
            "prompt_tokens": ledger["prompt"],
            "response_tokens": ledger["response"],
            "start": ledger["start"],
            "end": ledger["end"],
            "scored": ledger["scored"],
            "engine": ledger["engine"],
            "begin_version": begun,
            "train_version": version,
            "staleness": np.where(trained, version - begun, -1).astype(np.int32),
            "spans": ledger["spans"],
            "informative": ledger["informative"],
            "fate": pd.Categorical.from_codes(ledger["fate"].astype(np.int64), categories=pd.Index(fates.FATES)),
        },
        copy=False,
    )


def _span_frame(run: Run) -> pd.DataFrame:
    import pandas as pd

    spans = run.spans
    return pd.DataFrame(
        {
            "seed": np.full(len(spans.start), run.seed, np.int32),
            "name": pd.Categorical(spans.name),
            "track": pd.Categorical(spans.track),
            "group": pd.Categorical(spans.group),
            "phase": pd.Categorical(spans.phase),
            "start": np.array(spans.start),
            "end": np.array(spans.end),
            "step": np.array(spans.step, np.int32) - run.warmup,
        }
    )
