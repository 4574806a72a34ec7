"""Profile parameters from the phases of a run: least squares with the profile's own ranges as priors.

    Σ ((predicted - measured) / σ)²  +  Σ prior((ln θ - ln θ₀) / σ₀)        over phases and bins of lengths, parameters

σ of a phase: the model's own error, and the steps' noise over √steps. σ₀ from the parameter's range. The prior is
soft-L1: a quarter of a range costs little, and a figure that the log insists on may leave its range at a linear price,
so ten steps move little and give wide errors, a thousand move what they must.

A phase is a sum of parts, each proportional to a parameter or its inverse, so one simulation per parameter and bin
gives the parts, and the least squares runs on the sum; it is simulated again at its solution until both agree.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from scipy.optimize import least_squares

from rlsim.calibrate.least_squares import Floats
from rlsim.calibrate.observed import Bin, Observed
from rlsim.catalog.profile_file import Z90, is_share
from rlsim.catalog.profiles import Profile

MODEL_ERROR = 0.02  # of a phase: what no value of the parameters could mend
STEP_ERROR = 0.003  # of the step, so that phases of a few milliseconds don't decide
LEAST_NUDGE, MOST_NUDGE = 1.2, 3.0
MATTERS = 0.003  # share of the step by which the upper end of a range has to move a phase
NARROWEST = 0.02  # half a range, ln
ROUNDS = 4
CLOSE = 0.003  # of the step: surrogate and simulation agree
CANDIDATES = (
    "rollout_kernel_factor", "engine_step_base_s", "engine_step_per_seq_s", "gemm_derate", "microbatch_host_s",
    "layer_floor_s", "moe_layer_floor_s", "update_fixed_s", "logprob_fixed_s", "refit_fixed_s", "refit_gather_rate",
    "refit_fsdp_gather_rate", "refit_fsdp_per_tensor_s", "host_link_rate", "reward_rule_s", "step_fixed_s",
    "async_step_fixed_s",
)  # fmt: skip
"""Overheads of a framework and of its kernels' surroundings; hardware and lengths are the scenario's."""
PREDICTED: Mapping[str, tuple[str, ...]] = {
    "rollout": ("rollout", "wait_rollout"),
    "reward": ("reward",),
    "logprob": ("logprob", "onload"),
    "reference": ("reference",),
    "train": ("train", "offload"),
    "weight_sync": ("weight_sync",),
    "other": ("other",),
}
"""A log's phase -> the simulation's."""
HOST = {"logprob": "train", "onload": "train", "weight_sync": "rollout", "reward": "rollout", "other": None}
"""Where a phase goes that the log has no timer for."""
Simulated = Callable[[Bin, Profile], Mapping[str, float]]


@dataclass(frozen=True)
class Posterior:
    """Values, standard errors and correlations of ln θ; predictions by bin and phase before and after."""

    names: tuple[str, ...]
    values: Floats
    errors: Floats
    correlations: Floats
    before: tuple[Mapping[str, float], ...]
    after: tuple[Mapping[str, float], ...]


@dataclass(frozen=True)
class Surrogate:
    """Phases near `here`: [phases] seconds, and [phases, names] seconds in proportion to θ (> 0) or to 1/θ (< 0)."""

    base: Floats
    parts: Floats
    here: Floats

    def __call__(self, theta: Floats) -> Floats:
        return np.asarray(self.base + (np.abs(self.parts_at(theta)) - np.abs(self.parts)).sum(axis=1))

    def parts_at(self, theta: Floats) -> Floats:
        ratio = theta / self.here
        return np.where(self.parts >= 0, self.parts * ratio, self.parts / ratio)


@dataclass(frozen=True)
class _Prior:
    """Where the parameters were, and how wide their ranges are."""

    theta0: Floats
    names: tuple[str, ...]
    profile: Profile

    def widths(self, log_t: Floats) -> Floats:
        """σ₀ of ln θ on the side of the range that θ is on."""
        value, low, high = (np.array([f(n) for n in self.names]) for f in self._ends())
        up, down = np.log(high / value), np.log(value / np.maximum(low, 0.05 * value))
        return np.asarray(np.maximum(np.where(log_t >= np.log(self.theta0), up, down), NARROWEST) / Z90)

    def _ends(self) -> tuple[Callable[[str], float], ...]:
        return self.profile.value, self.profile.low, self.profile.high

    def scores(self, log_t: Floats) -> Floats:
        """(ln θ - ln θ₀) / σ₀."""
        return np.asarray((log_t - np.log(self.theta0)) / self.widths(log_t))


def predicted(bin_: Bin, phases: Mapping[str, float]) -> dict[str, float]:
    """The simulation's phases added up as the log's timers have them."""
    found = dict.fromkeys(bin_.seconds, 0.0)
    for phase, parts in PREDICTED.items():
        to: str | None = phase
        while to is not None and to not in found:
            to = HOST.get(to)
        if to is not None:
            found[to] += sum(phases[part] for part in parts)
    return found


def fit(observed: Observed, prior: Profile, simulate: Simulated) -> Posterior:
    """The most likely values of the parameters that matter, and how sure the log makes them."""
    before = [predicted(one, simulate(one, prior)) for one in observed.bins]
    names, parts = _parts(observed.bins, prior, simulate, before)
    theta0 = np.array([prior.value(name) for name in names])
    weights = _weights(observed.bins)
    measured, now = _flat([one.seconds for one in observed.bins]), _flat(before)
    theta, after = theta0, list(before)
    for _ in range(ROUNDS if names else 0):
        near = Surrogate(now, parts, theta)
        theta = _most_likely(near, measured, weights, _Prior(theta0, names, prior))
        profile = prior.with_values(**dict(zip(names, theta.tolist(), strict=True)))
        after = [predicted(one, simulate(one, profile)) for one in observed.bins]
        now, parts = _flat(after), near.parts_at(theta)
        if np.abs(now - near(theta)).max() < CLOSE * np.mean([one.step_seconds for one in observed.bins]):
            break
    errors, correlations = _errors(parts, weights, theta, _Prior(theta0, names, prior))
    return Posterior(names, theta, errors, correlations, tuple(before), tuple(after))


def calibrated(prior: Profile, found: Posterior, steps: int, source: str) -> Profile:
    """The prior with the posterior laid over it; `source` says which log."""
    changed = dict(prior.parameters)
    for name, value, error in zip(found.names, found.values.tolist(), found.errors.tolist(), strict=True):
        factor = math.exp(Z90 * error)
        least, most = (0.0, 1.0) if is_share(name) else (0.0, math.inf)
        changed[name] = replace(
            changed[name],
            value=min(value, most),
            low=max(value / factor, least),
            high=min(value * factor, most),
            stderr=value * error,
            source=f"{source}; before: {prior.value(name):.3g}",
            data={"steps": steps},
        )
    correlations = dict(prior.correlations)
    for i, a in enumerate(found.names):
        for j in range(i + 1, len(found.names)):
            if abs(found.correlations[i, j]) > 0.1:
                correlations[a, found.names[j]] = float(found.correlations[i, j])
    names = prior.own | frozenset(found.names)
    return replace(prior, parameters=changed, correlations=correlations, own=names)


def _parts(
    bins: Sequence[Bin], prior: Profile, simulate: Simulated, before: Sequence[Mapping[str, float]]
) -> tuple[tuple[str, ...], Floats]:
    """(names, [phases, names] d seconds / d ln θ) of the candidates that move some phase."""
    names, columns = [], []
    step = np.mean([one.step_seconds for one in bins])
    for name in CANDIDATES:
        nudge = min(max(prior.high(name) / prior.value(name), LEAST_NUDGE), MOST_NUDGE)
        nudged = prior.with_values(**{name: prior.value(name) * nudge})
        moved = _flat([predicted(one, simulate(one, nudged)) for one in bins]) - _flat(before)
        if np.abs(moved).max() < MATTERS * step:
            continue
        names.append(name)
        columns.append(moved / ((nudge - 1) if moved.sum() >= 0 else (1 - 1 / nudge)))
    return tuple(names), np.stack(columns, axis=1) if columns else np.zeros((len(_flat(before)), 0))


def _most_likely(near: Surrogate, measured: Floats, weights: Floats, prior: _Prior) -> Floats:
    """θ at the least sum of squares."""

    def residuals(log_t: Floats) -> Floats:
        z = prior.scores(log_t)
        soft = np.sign(z) * np.sqrt(2 * (np.sqrt(1 + z * z) - 1))
        return np.concatenate([(near(np.exp(log_t)) - measured) * weights, soft])

    return np.asarray(np.exp(least_squares(residuals, np.log(near.here)).x))


def _weights(bins: Sequence[Bin]) -> Floats:
    """1/σ of every phase of every bin."""
    found = []
    for one in bins:
        for name, seconds in one.seconds.items():
            steps = one.noise[name] / math.sqrt(one.steps) if one.steps > 2 else 0.1 * seconds / math.sqrt(one.steps)
            found.append(1.0 / math.hypot(MODEL_ERROR * seconds, STEP_ERROR * one.step_seconds, steps))
    return np.array(found)


def _errors(parts: Floats, weights: Floats, theta: Floats, prior: _Prior) -> tuple[Floats, Floats]:
    """Standard errors and correlations of ln θ: inverse of the curvature of the data and of the soft prior."""
    if not prior.names:
        return np.zeros(0), np.zeros((0, 0))
    z = prior.scores(np.log(theta))
    stiffness = 1.0 / (prior.widths(np.log(theta)) ** 2 * np.sqrt(1 + z * z))
    jacobian = parts * weights[:, None]
    covariance = np.linalg.inv(jacobian.T @ jacobian + np.diag(stiffness))
    errors = np.sqrt(np.diag(covariance))
    return errors, covariance / np.outer(errors, errors)


def _flat(bins: Sequence[Mapping[str, float]]) -> Floats:
    return np.array([seconds for one in bins for seconds in one.values()])
