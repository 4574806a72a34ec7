"""The single controller: what the driver costs when it calls worker groups and passes the batch."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from rlsim.costs.measured import controller as measured_controller

if TYPE_CHECKING:
    from rlsim.system import System


@dataclass(frozen=True)
class ControllerCosts:
    """Seconds of the driver.

    dispatch_seconds    one call to the largest worker group
    step_fixed_seconds  once per step: metrics, logging, data preparation
    bytes_per_token     of the batch, one way through the driver
    bytes_rate          bytes/s through the driver or its object store
    sample_seconds      per sample and pass: padding, concatenation, in an asynchronous run also its
                        collection
    """

    dispatch_seconds: float
    step_fixed_seconds: float
    bytes_per_token: float
    bytes_rate: float
    sample_seconds: float

    def batch_bytes(self, tokens: float) -> float:
        """Bytes of a batch that pass through the driver: 80e6 tokens at 20 B are 1.6 GB."""
        return tokens * self.bytes_per_token

    def batch_seconds(self, tokens: float, samples: float) -> float:
        """Seconds for one pass of a batch through the driver: bytes / rate + samples * cost per sample."""
        return self.batch_bytes(tokens) / self.bytes_rate + samples * self.sample_seconds

    def scaled(self, factor: float) -> ControllerCosts:
        """The same driver with all its durations multiplied."""
        return replace(
            self,
            dispatch_seconds=self.dispatch_seconds * factor,
            step_fixed_seconds=self.step_fixed_seconds * factor,
            bytes_rate=self.bytes_rate / factor,
            sample_seconds=self.sample_seconds * factor,
        )


def controller_costs(system: System) -> ControllerCosts:
    """Driver costs of a system from its profile.

    dispatch = call + workers * submission, over the ranks of the larger role: one process per GPU, as Ray-based
    frameworks have it. One-step-off and asynchronous schedules have their own fixed cost and a cost per
    sample, which more GPUs don't shorten.
    """
    measured = measured_controller(system.profile)
    if measured is not None:
        return measured
    value = system.profile.value
    asynchronous = system.scenario.schedule == "async"
    sample = value("controller_sample_s") + (value("async_sample_overhead_s") if asynchronous else 0.0)
    workers = max(system.trainer.gpus, sum(part.layout.gpus for part in system.rollout))
    return ControllerCosts(
        dispatch_seconds=value("controller_call_s") + workers * value("controller_worker_s"),
        step_fixed_seconds=value("step_fixed_s" if system.scenario.schedule == "sync" else "async_step_fixed_s"),
        bytes_per_token=value("controller_bytes_per_token"),
        bytes_rate=value("controller_bytes_rate"),
        sample_seconds=sample,
    )
