"""All rollout engines together: routing, one clock, one heap of next boundaries. No simpy.

The fleet plays until a given time or until the first completion that somebody may react to, whichever is first; no
engine is ever played past it. While nobody reacts, engines are independent and run alone (`drain`).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import fields
from heapq import heappop, heappush, heapify
from math import inf

import numpy as np
import numpy.typing as npt

from rlsim.sim.engine import TOLERANCE, Engine, Rows, Stats
from rlsim.sim.request import Completion, Request
from rlsim.sim.router import ROUTERS
from rlsim.sim.runout import can_run_out, run_out
from rlsim.sim.surface import Surface

Counters = dict[str, npt.NDArray[np.generic]]


class Fleet:
    """Engines of one or several kinds. A place is (rank of its engine, engine); new samples see engines in turn first.

    now        every boundary up to now has been played
    in_flight  samples that wait or run
    """

    def __init__(
        self, kinds: Sequence[tuple[Surface, int]], router: str = "least-loaded", share_prompts: bool = True
    ) -> None:
        self.engines: list[Engine] = []
        for surface, count in kinds:
            rows = Rows(surface)
            self.engines += [Engine(rows, share_prompts) for _ in range(count)]
        widest = max(len(engine.ranks) for engine in self.engines)
        self._places = [
            (number, index)
            for index in range(widest)
            for number, engine in enumerate(self.engines)
            if index < len(engine.ranks)
        ]
        self._route = ROUTERS[router]
        self.now = 0.0
        self.in_flight = 0
        self._paused = False
        self._heap: list[tuple[float, int]] = []
        self._early: list[Completion] = []

    # --- work comes in ----------------------------------------------------------------------------------------------------

    def submit(self, requests: Iterable[Request], now: float) -> None:
        """Route samples to their places; each engine sees them at its next boundary."""
        new = list(requests)
        if not new:
            return
        self._advance(now)
        loads = [self.engines[number].ranks[index].load for number, index in self._places]
        touched = set()
        for request, place in zip(new, self._route(new, loads), strict=True):
            number, index = self._places[place]
            self.engines[number].submit(index, request)
            touched.add(number)
        self.in_flight += len(new)
        if self._paused:
            return
        for number in sorted(touched):
            engine = self.engines[number]
            before = engine.end
            engine.notice(now)
            if engine.end != before:
                self._push(number)

    # --- time passes --------------------------------------------------------------------------------------------------------

    def play(self, until: float, stop_at_completion: bool) -> list[Completion]:
        """Play to `until`, or to the first completions (all of that moment), in the order of time and engine."""
        done, self._early = self._early, []
        if done and stop_at_completion:
            return done
        engines, heap = self.engines, self._heap
        bound = until + TOLERANCE * abs(until) if until < inf else inf
        moment = -1.0
        while heap and heap[0][0] <= bound:
            time, number = heap[0]
            if moment >= 0.0 and time > moment:
                break
            heappop(heap)
            engine = engines[number]
            if engine.end != time:
                continue
            finished = engine.play()
            self.now = max(self.now, time)
            if finished:
                self.in_flight -= len(finished)
                done += [Completion(time, request) for request in _ordered(finished)]
                if stop_at_completion:
                    moment = time
            engine.plan()
            if engine.end < inf:
                heappush(heap, (engine.end, number))
        if moment < 0.0 and until < inf:
            self.now = max(self.now, until)
        return done

    def drain(self, now: float) -> list[Completion]:
        """Run everything in flight to its end, each engine alone; completions in the order of time and engine."""
        self._advance(now)
        done = [(c.time, -1, c.request.id, c) for c in self._early]
        self._early = []
        for number, engine in enumerate(self.engines):
            while engine.end < inf:
                if can_run_out(engine):
                    done += [(c.time, number, c.request.id, c) for c in run_out(engine)]
                    break
                time = engine.end
                done += [(time, number, request.id, Completion(time, request)) for request in engine.play()]
                engine.plan()
        self._heap = []
        self.in_flight = 0
        done.sort(key=lambda item: item[:3])
        if done:
            self.now = max(self.now, done[-1][0])
        return [item[3] for item in done]

    # --- the engines stand still ---------------------------------------------------------------------------------------------

    def pause(self, now: float) -> None:
        """All engines stop; the iteration under way is lost and repeated later."""
        self._stop(now)
        self._paused = True

    def resume(self, now: float) -> None:
        """Go on after a pause."""
        self.now = max(self.now, now)
        self._paused = False
        self._start(now)

    def interrupt(self, now: float, keep_kv: bool) -> None:
        """New weights at `now`: with `keep_kv` nothing else happens; else everything in flight is prefilled again."""
        if keep_kv:
            return
        self._stop(now)
        for engine in self.engines:
            engine.forget_kv()
        if not self._paused:
            self._start(now)

    def abort(self, ids: Iterable[int] | None, now: float) -> list[Request]:
        """Take samples out (None: all); their KV is freed. Returns them with the tokens they have."""
        self._stop(now)
        wanted = None if ids is None else set(ids)
        gone = [request for engine in self.engines for request in engine.remove(wanted)]
        self.in_flight -= len(gone)
        if not self._paused:
            self._start(now)
        return gone

    # --- figures ---------------------------------------------------------------------------------------------------------------

    @property
    def stats(self) -> Stats:
        """Cumulative figures of all engines, up to their last boundaries."""
        total = Stats()
        for field in fields(Stats):
            setattr(total, field.name, sum(getattr(engine.stats, field.name) for engine in self.engines))
        return total

    def counters(self) -> Counters:
        """Running sequences and KV tokens of the whole fleet at every batch change: time, running, kv_tokens."""
        times, running, tokens = [], [], []
        for engine in self.engines:
            line = engine.timeline
            times.append(np.array(line.time))
            running.append(np.diff(np.array(line.running), prepend=0))
            tokens.append(np.diff(np.array(line.kv_tokens), prepend=0))
        time = np.concatenate(times)
        order = np.argsort(time, kind="stable")
        return {
            "time": time[order],
            "running": np.cumsum(np.concatenate(running)[order]),
            "kv_tokens": np.cumsum(np.concatenate(tokens)[order]),
        }

    # --- inside -----------------------------------------------------------------------------------------------------------------

    def _advance(self, now: float) -> None:
        self._early = self.play(now, False)  # what was there is in what play returns

    def _stop(self, now: float) -> None:
        """Bring every engine to a standstill at `now`."""
        self._advance(now)
        for engine in self.engines:
            late = engine.stop(now)
            self.in_flight -= len(late)
            self._early += [Completion(now, request) for request in _ordered(late)]
        self._heap = []

    def _start(self, now: float) -> None:
        for engine in self.engines:
            engine.start(now)
        self._heap = [(engine.end, number) for number, engine in enumerate(self.engines) if engine.end < inf]
        heapify(self._heap)

    def _push(self, number: int) -> None:
        if self.engines[number].end < inf:
            heappush(self._heap, (self.engines[number].end, number))


def _ordered(requests: list[Request]) -> list[Request]:
    return requests if len(requests) < 2 else sorted(requests, key=lambda request: request.id)
