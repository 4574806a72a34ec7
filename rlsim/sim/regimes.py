"""The regimes that wait for whole batches: synchronous (co-located or disaggregated) and one-step-off."""

from __future__ import annotations

from rlsim.sim.batches import Batches
from rlsim.sim.loop import Loop
from rlsim.sim.trainer import Process


def synchronous(loop: Loop, batches: Batches, steps: int) -> Process:
    """[offload] -> weight sync -> rollout -> rest of the reward -> [critic, onload] -> log-probs -> updates.

    On two pools it is the same without what is in brackets. Step time = the sum.
    """
    trainer = loop.trainer
    switch = loop.costs.switch if loop.settings.colocated else None
    while loop.done < steps:
        if switch:
            yield from trainer.stage("offload", switch.offload_seconds)
        yield from loop.blocking_sync()
        batches.begin()
        batch = batches.take()
        yield from trainer.wait("rollout", batch.ended)
        yield from trainer.wait("reward", batch.scored)
        yield from trainer.train(batch.ids, batch.early)
        yield from loop.close_step(batch.tail)


def one_step_off(loop: Loop, batches: Batches, steps: int) -> Process:
    """The rollout of step k+1 runs beside the training of step k; both meet at the weight sync.

    Steady state: step time = max(rollout, trainer) + sync. Every sample is trained one version after it
    began; only the first batch, in the warm-up, has nothing to be late for.
    """
    trainer = loop.trainer
    loop.catch_up = batches.catch_up
    batches.begin()
    first = True
    while loop.done < steps:
        batch = batches.take()
        yield from trainer.wait("wait_rollout", batch.free)
        if not first:
            yield from loop.blocking_sync()
        first = False
        batches.begin()
        yield from trainer.wait("wait_rollout", batch.scored)
        yield from trainer.train(batch.ids)
        batches.catch_up()
        yield from loop.close_step(batch.tail)
