"""Faults of rollout engines: events on the engines' agenda, so that every regime has them.

crash   the engine's samples are lost there and start again elsewhere from their prompt (of several turns: the turn
        under way); their tokens are wasted. Nothing is routed to it until it is back with an empty KV cache
slow    the engine's iterations take `factor` times as long; the one under way begins again
"""

from __future__ import annotations

from functools import partial
from math import nan

from rlsim.sim.faults import SLOW_NODE, Fault, Stream
from rlsim.sim.pace import Rows
from rlsim.sim.recorder import Recorder
from rlsim.sim.rollout import RolloutPool


class EngineFaults:
    """State: what is down until when, and what makes which engine slow."""

    def __init__(self, pool: RolloutPool, recorder: Recorder, faults: tuple[Fault, ...], seed: int) -> None:
        self.pool = pool
        self.recorder = recorder
        self._slow: dict[int, list[float]] = {}  # factors in force by engine
        self._rows: dict[tuple[int, float], Rows] = {}
        self._normal = [engine.rows for engine in pool.fleet.engines]
        self._drawn: dict[str, float] = {}
        for entry, fault in enumerate(faults):
            if fault.engines:
                self._await(Stream(fault, seed, entry))

    def _await(self, stream: Stream) -> None:
        if stream.coming is not None:
            self.pool.engines.at(stream.moment, partial(self._strike, stream))

    def _strike(self, stream: Stream, now: float) -> None:
        """A fault occurs."""
        if stream.coming is None:
            return
        engines = stream.fault.engines[stream.coming[1]]
        stream.advance()
        self._await(stream)
        if stream.fault.kind == SLOW_NODE:
            self._slow_down(engines, stream.fault, now)
        else:
            self._crash(engines, stream.fault.duration, now)

    # --- crash --------------------------------------------------------------------------------------

    def _crash(self, engines: tuple[int, ...], duration: float, now: float) -> None:
        pool, step = self.pool, self.recorder.step
        fresh = tuple(n for n in engines if n not in pool.down)
        if not fresh:
            return
        pool.down.update(fresh)
        lost = pool.take_down(fresh, now)
        step.wasted += sum(request.done for request in lost)
        step.aborted += sum(1 for request in lost if request.done)
        for request in lost:
            request.done, request.cached, request.prefilled = 0, 0, False
            if not request.earlier:
                request.start = nan
        pool.resubmit(sorted(lost, key=lambda request: request.id), now)
        self._draw("down", fresh, now, duration)
        pool.engines.at(now + duration, partial(self._repair, fresh))

    def _repair(self, engines: tuple[int, ...], now: float) -> None:
        self.pool.down.difference_update(engines)
        self.pool.bring_up(engines, now)

    # --- slow ---------------------------------------------------------------------------------------

    def _slow_down(self, engines: tuple[int, ...], fault: Fault, now: float) -> None:
        for number in engines:
            self._slow.setdefault(number, []).append(fault.factor)
        self._reprice(engines, now)
        self._draw("slow", engines, now, fault.duration)
        self.pool.engines.at(now + fault.duration, partial(self._speed_up, engines, fault.factor))

    def _speed_up(self, engines: tuple[int, ...], factor: float, now: float) -> None:
        for number in engines:
            self._slow[number].remove(factor)
        self._reprice(engines, now)

    def _reprice(self, engines: tuple[int, ...], now: float) -> None:
        """The slowest of the faults of an engine counts."""
        for number in engines:
            factor = max(self._slow[number], default=1.0)
            self.pool.fleet.reprice(number, self._at(self._normal[number], factor), now)

    def _at(self, normal: Rows, factor: float) -> Rows:
        if factor == 1.0:
            return normal
        key = (id(normal), factor)
        if key not in self._rows:
            self._rows[key] = Rows(normal.surface.scaled(factor))
        return self._rows[key]

    # --- timeline -------------------------------------------------------------------------------------

    def _draw(self, name: str, engines: tuple[int, ...], now: float, duration: float) -> None:
        for number in engines:
            track = f"engine {number}"
            self.recorder.span(name, track, max(now, self._drawn.get(track, 0.0)), now + duration)
            self._drawn[track] = max(now + duration, self._drawn.get(track, 0.0))
