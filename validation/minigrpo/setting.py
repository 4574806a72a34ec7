"""What the system runs: one variant of a scenario file, the same that rlsim simulates."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np

from rlsim.inputs import Inputs, inputs_of
from rlsim.memory import check_memory
from rlsim.reshard.plan import Plan, plan_between
from rlsim.scenario import load_scenario
from rlsim.scenario.schema import Scenario
from rlsim.system import System, resolve
from validation.minigrpo.model import Config, config_of
from validation.minigrpo.task import Request, prompt
from validation.minigrpo.worker import Member

SCENARIO = Path(__file__).parent / "scenario.yaml"
CONFIG = SCENARIO.with_name("config.json")
PLACEMENTS = ("colocated", "disaggregated", "one-step-off", "async")


@dataclass(frozen=True)
class Setting:
    """A variant, and what a scenario does not say: the learning rate, the way of the weights."""

    scenario: Scenario
    config: Config
    lr: float
    seed: int

    @cached_property
    def system(self) -> System:
        return resolve(self.scenario)

    @cached_property
    def inputs(self) -> Inputs:
        """Rules of the run and where its lengths come from, as the simulation has them."""
        return inputs_of(self.system, check_memory(self.system))

    @property
    def colocated(self) -> bool:
        return self.inputs.settings.colocated

    @property
    def trainers(self) -> int:
        return self.system.trainer.gpus

    @property
    def engines(self) -> int:
        return self.system.rollout[0].layout.engines

    @property
    def devices(self) -> int:
        return self.trainers if self.colocated else self.trainers + self.engines

    @property
    def micro_batch(self) -> int:
        """Samples of a micro-batch."""
        return int(self.scenario.trainer.micro_batch_size or 1)

    @cached_property
    def plan(self) -> Plan:
        return plan_between(self.system.model, self.system.trainer, self.system.rollout[0].layout, wire_bytes=2)

    @property
    def strategy(self) -> str:
        """Of the weights: through shared memory where trainer and engine share a device, else a broadcast."""
        return "shared-memory" if self.colocated else "broadcast"

    @property
    def max_tokens(self) -> int:
        workload = self.scenario.workload
        return int(workload.prompt_tokens.max or 0) + int(workload.response_tokens.max or 0)

    @property
    def member(self) -> Member:
        """What every process is told; rank, device and store are filled in when it is started."""
        slots = int(self.system.rollout[0].entry.max_num_seqs)
        return Member(0, None, "", self.plan, self.config, self.strategy, slots, self.max_tokens, self.lr, self.seed)

    def requests(self, batch: int) -> list[list[Request]]:
        """Groups of batch number `batch`: the lengths that the simulation draws for it."""
        drawn = self.inputs.draw(np.random.default_rng([self.seed, batch, 0]), batch)
        groups, size = drawn.response_tokens.shape
        found = []
        for g in range(groups):
            number = batch * groups + g
            text = prompt(number, int(drawn.prompt_tokens[g]), self.config.vocab, self.seed)
            first, lengths = number * size, drawn.response_tokens[g].tolist()
            found.append(
                [Request(first + i, text, max(2, n), self.seed * 1_000_003 + first + i) for i, n in enumerate(lengths)]
            )
        return found


def setting(placement: str, seed: int = 0, lr: float = 4e-3, file: Path = SCENARIO) -> Setting:
    """A variant of the scenario file by its name."""
    variants = {scenario.variant: scenario for scenario in load_scenario(file).variants}
    return Setting(variants[placement], config_of(file.with_name("config.json")), lr, seed)
