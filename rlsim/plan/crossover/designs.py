"""How each regime is laid out on so many GPUs: layouts are the file's, the split is the best of a few.

Co-located, both roles have all GPUs. Disaggregated, the shares of `rlsim plan` and the file's own are tried, in whole
units of the trainer's layout, wherever engines of the file's size fill the rest.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import lcm

from rlsim import api, catalog
from rlsim.errors import UserError
from rlsim.grids import expert_tensor_parallel
from rlsim.plan.case import Setting, Study
from rlsim.plan.crossover.axes import GPUS
from rlsim.plan.search.space import SHARES
from rlsim.scenario.load import loads_scenario
from rlsim.scenario.schema import Scenario

COLOCATED = "colocated-sync"
AGAINST = ("disaggregated-sync", "one-step-off", "async")
MULTIPLES = (1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128, 192, 256, 384, 512)
SPLITS = 8
"""Splits of one regime on one number of GPUs at most."""


@dataclass(frozen=True)
class Split:
    """GPUs of either role; co-located, both are all of them."""

    trainer: int
    rollout: int


@dataclass(frozen=True)
class Regime:
    """A regime as the file has it (`scenario`: its variant), or as its base becomes with `settings`."""

    name: str
    scenario: Scenario
    settings: tuple[Setting, ...]

    @property
    def colocated(self) -> bool:
        return self.name == COLOCATED

    @property
    def gpus(self) -> int:
        """GPUs that the file gives it."""
        t, r = self.scenario.trainer.gpus, sum(one.gpus for one in self.scenario.rollout)
        if self.settings:
            return self.scenario.cluster.gpus
        return t if self.colocated else t + r

    @property
    def own(self) -> Split:
        """The file's split; where the file has none, even."""
        if self.settings:
            return Split(self.gpus, self.gpus) if self.colocated else Split(self.gpus // 2, self.gpus - self.gpus // 2)
        return Split(self.scenario.trainer.gpus, self.scenario.rollout[0].gpus)


def regime(loaded: Sequence[Scenario], name: str) -> Regime:
    """The first variant of that placement and schedule; without one, the base with both set."""
    placement = "colocated" if name == COLOCATED else "disaggregated"
    schedule = "sync" if name.endswith("-sync") else name
    for scenario in loaded:
        if (scenario.placement, scenario.schedule) == (placement, schedule):
            return Regime(name, scenario, ())
    return Regime(name, loaded[0], (("placement", placement), ("schedule", schedule)))


def sized(one: Regime, split: Split) -> tuple[Setting, ...]:
    """What puts a regime on so many GPUs."""
    total = split.trainer if one.colocated else split.trainer + split.rollout
    gpus = (("trainer.gpus", str(split.trainer)), ("rollout[0].gpus", str(split.rollout)))
    return (*one.settings, (GPUS, str(total)), *gpus)


def unit(scenario: Scenario) -> int:
    """GPUs that the trainer's layout comes in: one data-parallel rank, whole expert groups, whole shard groups."""
    t = scenario.trainer
    size = t.tp * t.pp * t.cp * t.ulysses
    if t.backend == "megatron":
        return lcm(size, expert_tensor_parallel(t, catalog.model(scenario.model.base)) * t.ep * t.pp)
    return lcm(size, t.fsdp_size or 1)


def splits(study: Study, one: Regime, gpus: int) -> tuple[Split, ...]:
    """Splits of so many GPUs whose layouts divide, the file's share first; none where nothing divides."""
    if one.colocated:
        found = [Split(gpus, gpus)]
    else:
        node, step = one.scenario.cluster.gpus_per_node, unit(one.scenario)
        step = lcm(step, node) if gpus >= 2 * node else step
        engine = one.scenario.rollout[0].gpus_per_engine
        own = one.own.trainer / (one.own.trainer + one.own.rollout)
        shares = (own, *SHARES)
        trainers = dict.fromkeys(round(share * gpus / step) * step for share in shares)
        found = [Split(n, gpus - n) for n in trainers if 0 < n < gpus and (gpus - n) % engine == 0]
    return tuple(split for split in found if _divides(study, one, split))[:SPLITS]


def _divides(study: Study, one: Regime, split: Split) -> bool:
    sets = [f"{key}={value}" for key, value in sized(one, split)]
    try:
        loaded = loads_scenario(study.text, study.file, [*study.sets, *sets], one.scenario.variant, study.folder)
        api.check(loaded.variants[0])
    except UserError:
        return False
    return True


def counts(own: int, steps: Sequence[int], low: float, high: float) -> list[int]:
    """Numbers of GPUs to look at: the file's, and whole units of the layouts times 1, 2, 3, 4, 6, 8, …."""
    step = lcm(*steps)
    return sorted({own, *(step * n for n in MULTIPLES if low <= step * n <= high)})
