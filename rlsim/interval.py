"""The prediction interval: how far the step time moves when its parts are as wrong as their profile says."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import numpy.typing as npt

from rlsim.catalog.profile_file import Z90

Spread = tuple[float, float]
Multipliers = npt.NDArray[np.float64]

DRAWS = 4096
SEED = 20240901
DEFAULT: Spread = (0.8, 1.25)  # a phase whose profile gives no range: the shipped priors' own accuracy
SOFTWARE = "software"  # moves all phases together: they are one software stack
SLACK_FADES = 0.05  # share of the step that the trainer waits, from which the rollout pool has no slack
OVERLAPPED = ("one-step-off", "async")
TRAINER_PATH = ("logprob", "reference", "train", "other")
ROLLOUT_PATH = ("generate", "prefill", "reprefill", "idle")


def prediction_interval(
    phases: Mapping[str, float],
    rollout_pool: Mapping[str, float],
    regime: str,
    spreads: Mapping[str, Spread | Multipliers],
) -> tuple[float, float]:
    """10th and 90th percentile of the step time, seconds.

    Every component has its multipliers: drawn from the parameters it rests on (`rlsim.costs.spreads`), or, where only
    a range is given, independent and lognormal with median 1 on either side: exp(z·σ), σ = ln(p90)/1.28 above and
    -ln(p10)/1.28 below. They compose as the regime composes them:

    sync         Σ phase · m
    overlapped   max(Σ rollout path · m, Σ trainer path · m) + sync · m + what the mean step has beyond that
                 (each step's own maximum is above the maximum of the means)

    The spread named `software`, if there is one, multiplies the whole step. The prediction is the median: a profile's
    values were calibrated together, and ranges that reach further up than down say how far, not that all are too low.
    """
    draws = Draws(spreads)
    if regime not in OVERLAPPED:
        total = draws.sum(phases)
    else:
        trainer = {name: phases[name] for name in TRAINER_PATH}
        rollout = {"rollout": sum(rollout_pool[name] for name in ROLLOUT_PATH)}
        sync = {"weight_sync": phases["weight_sync"]}
        step = sum(phases.values())
        base = max(sum(trainer.values()), sum(rollout.values())) + phases["weight_sync"]
        total = np.maximum(draws.sum(trainer), draws.sum(rollout)) + draws.sum(sync) + (step - base)
    if SOFTWARE in spreads:
        total = total * draws.multiplier(SOFTWARE)
    low, middle, high = np.quantile(total, (0.1, 0.5, 0.9))
    centre = sum(phases.values()) / middle if middle > 0 else 1.0
    return float(low * centre), float(high * centre)


def needed(phases: Mapping[str, float], rollout_pool: Mapping[str, float], in_engine: float) -> dict[str, float]:
    """The rollout pool's account with the slack of asynchronous rollout shown as waiting.

    An asynchronous pool is never idle, but while samples wait for a trainer that never waits for them, it need not
    be as fast as it is. `in_engine` is the share of a sample's age, when it is trained, that it spent in the pool;
    the rest is slack. It fades as the trainer comes to wait (over 5% of the step: none).
    """
    slack = (1 - in_engine) * max(0.0, 1 - phases["wait_rollout"] / (SLACK_FADES * sum(phases.values())))
    account = {name: s * (1 - slack) if name in ROLLOUT_PATH else s for name, s in rollout_pool.items()}
    account["wait_trainer"] += sum(rollout_pool.values()) - sum(account.values())
    return account


class Draws:
    """One stream of standard normals per component name, the same in every run."""

    def __init__(self, spreads: Mapping[str, Spread | Multipliers]) -> None:
        self.spreads = spreads

    def multiplier(self, name: str) -> Multipliers:
        given = self.spreads.get(name, DEFAULT)
        if isinstance(given, np.ndarray):
            return given
        low, high = given
        z = np.random.default_rng([SEED, *name.encode()]).standard_normal(DRAWS)
        sigma = np.where(z < 0, -np.log(low), np.log(high)) / Z90
        return np.asarray(np.exp(z * sigma))

    def sum(self, parts: Mapping[str, float]) -> Multipliers:
        total = np.zeros(DRAWS)
        for name, seconds in parts.items():
            if seconds > 0:
                total += seconds * self.multiplier(name)
        return total
