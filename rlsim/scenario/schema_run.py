"""Blocks `run` and `faults`: the simulation itself, and what goes wrong in it."""

from __future__ import annotations

from typing import Annotated, Literal, Self

from pydantic import model_validator

from rlsim.scenario.block import Block, Bytes, Listed, Rate, Seconds, block, item, needed
from rlsim.scenario.quantity import MistakeError


class Evaluation(Block):
    """Evaluation passes during training."""

    every: int = needed("steps between evaluations", unit="steps", ge=1)
    prompts: int = needed("prompts of an evaluation", unit="prompts", ge=1)
    samples: int = item(1, "samples per prompt of an evaluation", unit="samples", ge=1)


class Checkpoint(Block):
    """How a checkpoint is written (run.checkpoint_every says when)."""

    mode: Literal["sync", "async"] = item(
        "sync", "checkpoint mode: sync (the trainer waits for the storage) or async (it waits for the copy to the host)"
    )
    storage: Rate | None = item(None, "storage bandwidth: all writers together; default the profile's", gt=0)
    node_storage: Rate | None = item(None, "storage bandwidth of one node; default the profile's", gt=0)
    state: Bytes | None = item(None, "checkpoint size: default weights, master copy and moments of the model", gt=0)


class Run(Block):
    """The simulation itself."""

    steps: int = item(20, "measured steps", unit="steps", ge=1)
    seed: int = item(0, "random seed", ge=0)
    seeds: int = item(1, "seeds: independent repetitions", ge=1)
    checkpoint_every: int | None = item(None, "steps between checkpoints", unit="steps", ge=1)
    checkpoint: Checkpoint = block(Checkpoint, "checkpoint")
    eval: Evaluation | None = item(None, "evaluation")


class Fault(Block):
    """One thing that goes wrong, at a given moment or at a rate."""

    kind: Literal["engine-crash", "trainer-crash", "slow-node", "nic"] = needed(
        "fault: engine-crash (its samples start again elsewhere), trainer-crash (back to the last checkpoint), "
        "slow-node (straggler) or nic (degraded network)"
    )
    at: Seconds | None = item(None, "moment of the fault, from the start of the run", ge=0)
    mtbf: Seconds | None = item(
        None, "mean time between faults of one engine, one trainer node or one node; exponential", gt=0
    )
    where: int = item(0, "number of the engine or node that is hit (with `at`)", ge=0)
    side: Literal["trainer", "rollout"] = item("rollout", "side that a slow node or a degraded NIC is on")
    duration: Seconds | None = item(
        None,
        "repair time: restart of an engine or the trainer, or how long a node is slow; default the profile's",
        gt=0,
    )
    factor: float = item(2.0, "slow-down: times of a slow node or NIC over normal ones", gt=1)

    @model_validator(mode="after")
    def _when(self) -> Self:
        if (self.at is None) == (self.mtbf is None):
            raise MistakeError("a fault needs either `at` or `mtbf`", "at: 600 s, or mtbf: 500 h")
        return self


Faults = Annotated[tuple[Fault, ...], Listed]
