"""One run: build the loop, start its processes, play the warm-up and the measured steps."""

from __future__ import annotations

import gc
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from rlsim.sim import regimes
from rlsim.sim.asynchronous import Asynchronous
from rlsim.sim.batches import Batches, WholeBatches
from rlsim.sim.collector import WatchedBatches
from rlsim.sim.ledger import TRAINED, Ledger
from rlsim.sim.loop import Loop
from rlsim.sim.prices import Costs
from rlsim.sim.recorder import Spans, Step
from rlsim.sim.settings import ASYNC, ONE_STEP_OFF, Settings
from rlsim.sim.work import Draw


@dataclass(frozen=True)
class Run:
    """What one seed recorded, the `warmup` first steps included.

    counters   columns time, running, kv_tokens of the whole rollout pool
    """

    seed: int
    warmup: int
    history: tuple[Step, ...]
    ledger: Ledger
    spans: Spans
    counters: Mapping[str, npt.NDArray[np.generic]]

    @property
    def steps(self) -> tuple[Step, ...]:
        """The measured steps."""
        return self.history[self.warmup :]

    def measured_samples(self) -> npt.NDArray[np.int64]:
        """Numbers of the samples that the measured steps trained on."""
        return np.flatnonzero((self.ledger["fate"] == TRAINED) & (self.ledger["step"] >= self.warmup))


@contextmanager
def uncollected() -> Iterator[None]:
    """No cyclic garbage collection meanwhile: a run makes hardly any cycles; looking for them takes a tenth of it."""
    running = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if running:
            gc.enable()


def play(settings: Settings, costs: Costs, draw: Draw, steps: int, seed: int) -> Run:
    """Simulate `steps` steps after the regime's warm-up. Same arguments, same run, to the last bit."""
    loop = Loop(settings, costs, draw, seed)
    total = settings.warmup + steps
    if settings.schedule == ASYNC:
        stream = Asynchronous(loop)
        main = loop.clock.process(stream.trainer(total))
        loop.clock.process(stream.engines())
    elif settings.schedule == ONE_STEP_OFF:
        main = loop.clock.process(regimes.one_step_off(loop, _batches(loop), total))
    else:
        main = loop.clock.process(regimes.synchronous(loop, _batches(loop), total))
    with uncollected():
        loop.clock.run(until=main)
    for track, start, end in loop.trainer.weather.slow_spans():
        loop.recorder.span("slow", track, start, end)
    return Run(
        seed=seed,
        warmup=settings.warmup,
        history=tuple(loop.recorder.steps),
        ledger=loop.ledger,
        spans=loop.recorder.spans,
        counters=loop.pool.counters(),
    )


def _batches(loop: Loop) -> Batches:
    return WatchedBatches(loop) if loop.settings.remedies.any else WholeBatches(loop)
