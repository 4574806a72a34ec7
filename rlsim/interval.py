"""The prediction interval: how far the step time moves when its parts are as wrong as their profile says."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import numpy.typing as npt

Spread = tuple[float, float]
Multipliers = npt.NDArray[np.float64]

DRAWS = 4096
SEED = 20240901
Z90 = 1.2815515655446004  # 90th percentile of the standard normal
DEFAULT: Spread = (0.8, 1.25)  # a phase whose profile gives no range: the shipped priors' own accuracy
SOFTWARE = "software"  # moves all phases together: they are one software stack
OVERLAPPED = ("one-step-off", "async")
TRAINER_PATH = ("logprob", "reference", "train", "other")
ROLLOUT_PATH = ("generate", "prefill", "reprefill", "idle")


def prediction_interval(
    phases: Mapping[str, float],
    rollout_pool: Mapping[str, float],
    regime: str,
    spreads: Mapping[str, Spread],
) -> tuple[float, float]:
    """10th and 90th percentile of the step time, seconds.

    Every component gets its own independent multiplier, lognormal with median 1 on either side: exp(z·σ),
    σ = ln(p90)/1.28 above and -ln(p10)/1.28 below. They compose as the regime composes them:

    sync         Σ phase · m
    overlapped   max(Σ rollout path · m, Σ trainer path · m) + sync · m + what the mean step has beyond that
                 (each step's own maximum is above the maximum of the means)

    The spread named `software`, if there is one, multiplies the whole step.
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
    low, high = np.quantile(total, (0.1, 0.9))
    return float(low), float(high)


class Draws:
    """One stream of standard normals per component name, the same in every run."""

    def __init__(self, spreads: Mapping[str, Spread]) -> None:
        self.spreads = spreads

    def multiplier(self, name: str) -> Multipliers:
        low, high = self.spreads.get(name, DEFAULT)
        z = np.random.default_rng([SEED, *name.encode()]).standard_normal(DRAWS)
        sigma = np.where(z < 0, -np.log(low), np.log(high)) / Z90
        return np.asarray(np.exp(z * sigma))

    def sum(self, parts: Mapping[str, float]) -> Multipliers:
        total = np.zeros(DRAWS)
        for name, seconds in parts.items():
            if seconds > 0:
                total += seconds * self.multiplier(name)
        return total
