"""The regimes that wait for whole batches: synchronous (co-located or disaggregated) and one-step-off."""

from __future__ import annotations

from rlsim.sim.loop import Loop
from rlsim.sim.trainer import Process


def synchronous(loop: Loop, steps: int) -> Process:
    """[offload] -> weight sync -> rollout -> rest of the reward -> [onload] -> log-probs -> updates.

    On two pools it is the same without what is in brackets. Step time = the sum.
    """
    pool, trainer, ledger = loop.pool, loop.trainer, loop.ledger
    switch = loop.costs.switch if loop.settings.colocated else None
    for _ in range(steps):
        if switch:
            yield from trainer.stage("offload", switch.offload_seconds)
        yield from loop.blocking_sync()
        ids = loop.groups(batch := loop.work.batch())
        pool.submit(batch, loop.versions.current)
        yield from trainer.wait("rollout", pool.drain())
        yield from trainer.wait("reward", float(ledger["scored"][ids].max()))
        if switch:
            yield from trainer.stage("onload", switch.onload_seconds)
        yield from trainer.train(ids)
        loop.end_step(ids)


def one_step_off(loop: Loop, steps: int) -> Process:
    """The rollout of step k+1 runs beside the training of step k; both meet at the weight sync.

    Steady state: step time = max(rollout, trainer) + sync. Every sample is trained one version after it
    began; only the first batch, in the warm-up, has nothing to be late for.
    """
    pool, trainer, ledger = loop.pool, loop.trainer, loop.ledger
    pool.submit(coming := loop.work.batch(), loop.versions.current)
    for step in range(steps):
        batch = coming
        yield from trainer.wait("wait_rollout", pool.drain())
        if step > 0:
            yield from loop.blocking_sync()
        pool.submit(coming := loop.work.batch(), loop.versions.current)
        ids = loop.groups(batch)
        yield from trainer.wait("wait_rollout", float(ledger["scored"][ids].max()))
        yield from trainer.train(ids)
        pool.note(pool.advance())
        loop.end_step(ids)
