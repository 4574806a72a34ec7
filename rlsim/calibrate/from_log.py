"""What `rlsim calibrate from-log` does: a run's log and its scenario to a profile of that run."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from rlsim import api
from rlsim.calibrate import command, posterior
from rlsim.calibrate.observed import Bin, Observed, observe
from rlsim.calibrate.posterior import Posterior, Simulated, predicted
from rlsim.calibrate.profile_text import NewProfile
from rlsim.catalog import profiles
from rlsim.catalog.profile_file import Z90
from rlsim.catalog.profiles import Profile
from rlsim.errors import UserError
from rlsim.frameworks import verl_log
from rlsim.frameworks.run_log import RunLog
from rlsim.scenario.load import load_scenario
from rlsim.scenario.schema import Scenario
from rlsim.scenario.schema_lengths import LengthSpec

STEPS = 1  # simulated for a prediction: what is fitted are means
VERSION_NOISE = 0.04  # standard deviation that stays in every phase: another day, another placement of the same run
FEW = 5


@dataclass(frozen=True)
class PhaseError:
    """Seconds a step: measured, predicted by the profile before and after the fit."""

    phase: str
    measured: float
    before: float
    after: float


@dataclass(frozen=True)
class LogAnswer:
    """What was made of a log: errors on the fitted steps and on those held out, the profile, the lengths."""

    log: RunLog
    observed: Observed
    found: Posterior
    prior: Profile
    profile: Profile
    fitted: tuple[PhaseError, ...]
    held: tuple[PhaseError, ...]
    steps: int
    steps_held: int
    path: Path
    scenario: Path
    sets: tuple[str, ...]
    notes: tuple[str, ...]


def from_log(
    logs: Sequence[Path], scenario_file: Path, out: Path, sets: Sequence[str], variant: str | None, hold_out: float
) -> LogAnswer:
    """Fit the scenario's profile to the logs and write it. `hold_out`: share of the steps, the last, not fitted."""
    if not 0 <= hold_out < 1:
        raise UserError(f"{hold_out:g} is no share", key="--hold-out", fix="a number from 0 up to below 1, such as 0.5")
    scenario = load_scenario(scenario_file, sets, variant).variants[0]
    report = api.check(scenario)
    prior = report.system.profile
    base = _base(prior)
    command.check_names(out, base)
    log = verl_log.read(logs)
    cut = max(1, round(len(log.steps) * (1 - hold_out)))
    seen, unseen = log.part(range(cut)), log.part(range(cut, len(log.steps)))
    observed = observe(seen, scenario)
    simulate = simulator(scenario)
    found = posterior.fit(observed, prior, simulate)
    source = f"{_names(logs)}, steps {seen.steps[0]}-{seen.steps[-1]}"
    profile = _with_noise(posterior.calibrated(prior, found, len(seen.steps), source), observed, found, source)
    notes = list(observed.notes)
    if report.memory.problems:
        notes.append(f"the memory check says that this run does not fit ({report.memory.problems[0].role}); it did")
    if len(seen.steps) < FEW:
        notes.append(f"{len(seen.steps)} steps say little: the ranges stay wide")
    held = _score(observe(unseen, scenario), prior, profile, simulate) if unseen.steps else ()
    new = NewProfile(
        name=out.stem,
        base=base,
        parameters={name: profile.parameters[name] for name in sorted(profile.own)},
        correlations=profile.correlations,
    )
    command.write(new, out, f"Fitted by `rlsim calibrate from-log` to {source}; scenario {scenario_file.name}.")
    return LogAnswer(
        log=log,
        observed=observed,
        found=found,
        prior=prior,
        profile=profile,
        fitted=_errors(observed.bins, found.before, found.after),
        held=held,
        steps=len(seen.steps),
        steps_held=len(unseen.steps),
        path=out,
        scenario=scenario_file,
        sets=_sets(out, observed),
        notes=tuple(notes),
    )


def simulator(scenario: Scenario) -> Simulated:
    """Phases of the scenario with a bin's lengths under a profile; the same random numbers every time."""

    def simulate(one: Bin, profile: Profile) -> Mapping[str, float]:
        result = api.replay(with_lengths(scenario, one), profile, steps=STEPS)
        return dict(result.summary()["phases_s"])

    return simulate


def with_lengths(scenario: Scenario, one: Bin) -> Scenario:
    """The scenario with a bin's lengths, which do not drift. Prompts keep their shape, their mean is the log's."""
    work = scenario.workload
    update: dict[str, object] = {}
    if one.response is not None:
        update |= {"response_tokens": one.response, "drift": None}
    if one.prompt_mean is not None and work.prompt_tokens.mean is not None:
        cap = work.prompt_tokens.max
        mean = one.prompt_mean if cap is None else min(one.prompt_mean, cap)
        spread = dict.fromkeys(("p50", "p90", "p95", "p99", "clip_ratio"))
        update["prompt_tokens"] = work.prompt_tokens.model_copy(update={**spread, "mean": mean})
    return scenario.model_copy(update={"workload": work.model_copy(update=update)})


def _base(prior: Profile) -> str:
    """The shipped profile that the new one lies on."""
    if prior.measured:
        message = "this scenario's profile has measured roles, which a log's overheads are not added to"
        raise UserError(message, key="costs.profile", fix="the framework's profile, or `rlsim calibrate fit`")
    name = prior.name if prior.name in profiles.names() else prior.base
    return name or profiles.GENERIC


def _with_noise(profile: Profile, observed: Observed, found: Posterior, source: str) -> Profile:
    """Software noise: not what versions differ by, this is the version, but what the fit leaves."""
    off = [sum(after.values()) / one.step_seconds - 1 for one, after in zip(observed.bins, found.after, strict=True)]
    sigma = math.hypot(VERSION_NOISE, math.sqrt(sum(e * e for e in off) / len(off)))
    factor = math.exp(Z90 * sigma)
    one = replace(
        profile.parameters["software_noise"],
        value=1.0,
        low=1 / factor,
        high=factor,
        source=f"what the fit to {source} leaves, and {100 * VERSION_NOISE:.0f}% between runs",
    )
    return replace(
        profile, parameters={**profile.parameters, "software_noise": one}, own=profile.own | {"software_noise"}
    )


def _score(observed: Observed, prior: Profile, profile: Profile, simulate: Simulated) -> tuple[PhaseError, ...]:
    """Errors on steps that the fit has not seen, with their own lengths."""
    before, after = ([predicted(one, simulate(one, chosen)) for one in observed.bins] for chosen in (prior, profile))
    return _errors(observed.bins, before, after)


def _errors(
    bins: Sequence[Bin], before: Sequence[Mapping[str, float]], after: Sequence[Mapping[str, float]]
) -> tuple[PhaseError, ...]:
    """Means over the bins, weighted by their steps; the step last."""
    weights = [one.steps for one in bins]

    def mean(values: Sequence[Mapping[str, float]], name: str) -> float:
        return float(np.average([v[name] for v in values], weights=weights))

    measured = [one.seconds for one in bins]
    rows = [PhaseError(n, mean(measured, n), mean(before, n), mean(after, n)) for n in bins[0].seconds]
    whole = (sum(getattr(r, kind) for r in rows) for kind in ("measured", "before", "after"))
    return (*rows, PhaseError("step", *whole))


def _sets(out: Path, observed: Observed) -> tuple[str, ...]:
    """Overrides with which the scenario is the run: the profile, and the lengths of the log."""
    found = [f"costs.profile={out.resolve()}"]
    if observed.lengths is not None:
        found.append(f"workload.response_tokens={_flow(observed.lengths)}")
    return tuple(found)


def _flow(spec: LengthSpec) -> str:
    given = {k: v for k, v in spec.model_dump(exclude_none=True).items() if v != ()}
    return "{" + ", ".join(f"{name}: {value:g}" for name, value in given.items()) + "}"


def _names(logs: Sequence[Path]) -> str:
    return ", ".join(path.name for path in logs)
