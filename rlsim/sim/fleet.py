"""All rollout engines together: routing, one clock, one heap of next boundaries. No simpy.

The fleet plays until a given time or until the first completion that somebody may react to, whichever is first; no
engine is ever played past it. While nobody reacts, engines are independent and run alone (`drain`).

What happens at T (new samples, a pause) comes after the boundaries at T and before the next iterations begin: engines
that reached the present are planned only when time goes on.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import fields
from heapq import heappop, heappush, heapreplace
from math import inf
from operator import attrgetter, itemgetter

import numpy as np
import numpy.typing as npt

from rlsim.sim.engine import TOLERANCE, Engine
from rlsim.sim.pace import Rows
from rlsim.sim.rank import Rank
from rlsim.sim.records import Stats
from rlsim.sim.request import Completion, Request
from rlsim.sim.router import ROUTERS, Loads
from rlsim.sim.surface import Surface

Counters = dict[str, npt.NDArray[np.generic]]


class Fleet:
    """Engines of one or several kinds. A place is (rank of its engine, engine); new samples see engines in turn first.

    now        every boundary up to now has been played
    in_flight  samples that wait or run
    in_service engines that samples go to; while there are none, samples wait for one
    """

    def __init__(
        self, kinds: Sequence[tuple[Surface, int]], router: str = "least-loaded", share_prompts: bool = True
    ) -> None:
        self.engines: list[Engine] = []
        for surface, count in kinds:
            rows = Rows(surface)
            self.engines += [Engine(rows, share_prompts) for _ in range(count)]
        widest = max(len(engine.ranks) for engine in self.engines)
        self._places: list[tuple[int, Rank]] = [
            (number, engine.ranks[index])
            for index in range(widest)
            for number, engine in enumerate(self.engines)
            if index < len(engine.ranks)
        ]
        for place, (_, rank) in enumerate(self._places):
            rank.place = place
        self._loads = Loads(len(self._places))
        self._route = ROUTERS[router]
        self.now = 0.0
        self.in_flight = 0
        self.in_service = set(range(len(self.engines)))
        self._stranded: list[Request] = []
        self._paused = False
        self._heap: list[tuple[float, int]] = []
        self._due: dict[int, None] = {}  # engines that stand at a boundary, to be planned when time goes on
        self._early: list[Completion] = []

    # --- work comes in ----------------------------------------------------------------------------

    def submit(self, requests: Iterable[Request], now: float) -> None:
        """Route samples to their places; each engine sees them at its next boundary."""
        self._advance(now)
        new = list(requests)
        self.in_flight += len(new)
        if not self.in_service:
            self._stranded += new
            return
        places, engines, due = self._places, self.engines, self._due
        eager: dict[int, None] = {}
        for request, place in zip(new, self._route(new, self._loads), strict=True):
            number, rank = places[place]
            if engines[number].submit(request, rank) and number not in due:
                eager[number] = None
        if eager and not self._paused:
            for number in eager:
                self._notice(number, now)

    def _notice(self, number: int, now: float) -> None:
        """An engine has something to admit: an idle one plans now, a busy one at its next boundary."""
        engine = self.engines[number]
        if engine.end == inf:
            engine.t = now
            self._due[number] = None
        elif engine.t >= now - TOLERANCE * abs(now):
            engine.drop_plan()
            self._due[number] = None
        else:
            before = engine.end
            engine.stop_after(now)
            if engine.end != before:
                heappush(self._heap, (engine.end, number))

    # --- time passes ------------------------------------------------------------------------------

    def play(self, until: float, stop_at_completion: bool) -> list[Completion]:
        """Play to `until`, or to the first completions (all of that moment), in the order of time and engine."""
        if not stop_at_completion:
            return self._play_alone(until)
        done, self._early = self._early, []
        if done:
            return done
        engines, heap, due = self.engines, self._heap, self._due
        if due and until > self.now:
            self._plan_due()
        last = present = until
        if until < inf:
            slack = TOLERANCE * abs(until)
            last, present = until + slack, until - slack
        now = self.now
        while heap:
            time, number = heap[0]
            if time > last:
                break
            engine = engines[number]
            if engine.end == time:
                now = time
                finished = engine.play()
                if finished:
                    done += self._completed(time, finished)
                    if last > time:
                        last = present = time
                if time < present:
                    engine.plan()
                    if engine.end < inf:
                        heapreplace(heap, (engine.end, number))
                        continue
                else:
                    due[number] = None
            heappop(heap)
        if until < inf and not done:
            now = max(now, until)
        if now > self.now:
            self.now = now
        return done

    def _play_alone(self, until: float) -> list[Completion]:
        """Play to `until` while nobody reacts to a completion: each engine runs by itself, then they are merged."""
        done, self._early = self._early, []
        if self._due and until > self.now:
            self._plan_due()
        last = present = until
        if until < inf:
            slack = TOLERANCE * abs(until)
            last, present = until + slack, until - slack
        heap = self._heap
        played: set[int] = set()
        while heap and heap[0][0] <= last:
            time, number = heappop(heap)
            if self.engines[number].end == time:
                played.add(number)
        new: list[Completion] = []
        for number in sorted(played):
            engine = self.engines[number]
            new += engine.run(last, present)
            if engine.end < inf:
                heappush(heap, (engine.end, number))
            elif engine.t >= present:
                self._due[number] = None
            self.now = max(self.now, engine.t)
        new.sort(key=itemgetter(0))
        self.in_flight -= len(new)
        for _, request in new:
            self._loads.gone(request.rank.place)
        if until < inf:
            self.now = max(self.now, until)
        return done + new

    def drain(self, now: float) -> list[Completion]:
        """Run everything in flight to its end; completions in the order of time and engine."""
        self._advance(now)
        if self._paused and self.in_flight:
            raise RuntimeError("the engines stand still: resume before draining them")
        done = self._play_alone(inf)
        self._loads.clear()
        return done

    # --- the engines stand still ------------------------------------------------------------------

    def pause(self, now: float) -> None:
        """All engines stop; the iteration under way is lost and repeated later."""
        self._stop(range(len(self.engines)), now)
        self._paused = True

    def resume(self, now: float) -> None:
        """Go on after a pause."""
        self.now = max(self.now, now)
        self._paused = False
        for engine in self.engines:
            engine.t = now
        self._start(range(len(self.engines)))

    def interrupt(self, now: float, keep_kv: bool) -> None:
        """New weights at `now`: with `keep_kv` nothing else happens; else everything in flight is prefilled again."""
        if keep_kv:
            return
        self._stop(range(len(self.engines)), now)
        for engine in self.engines:
            engine.forget_kv()
        self._start(range(len(self.engines)))

    def flush_cache(self, now: float) -> None:
        """Prefix caches are emptied: contexts kept for samples that may come back are prefilled afresh."""
        self._advance(now)
        for engine in self.engines:
            engine.flush_cache()

    def abort(self, ids: Iterable[int] | None, now: float) -> list[Request]:
        """Take samples out (None: all); their KV is freed. Returns them with the tokens they have.

        Engines that hold one of them lose the iteration under way and begin it again.
        """
        self._advance(now)
        wanted = None if ids is None else set(ids)
        holders = [number for number, engine in enumerate(self.engines) if engine.holds(wanted)]
        self._stop(holders, now)
        gone = [request for number in holders for request in self.engines[number].remove(wanted)]
        for request in gone:
            self._loads.gone(request.rank.place)
        self.in_flight -= len(gone)
        self._start(holders)
        return gone

    # --- engines come and go ----------------------------------------------------------------------

    def take_down(self, engines: Iterable[int], now: float) -> list[Request]:
        """Engines out of service: their samples come back with the tokens they have, their KV is lost."""
        numbers = sorted(self.in_service.intersection(engines))
        self._stop(numbers, now)
        gone = [request for number in numbers for request in self.engines[number].remove(None)]
        for request in gone:
            self._loads.gone(request.rank.place)
        self.in_flight -= len(gone)
        self.in_service.difference_update(numbers)
        for number in numbers:
            self.engines[number].flush_cache()
            for rank in self.engines[number].ranks:
                self._loads.close(rank.place)
        return gone

    def bring_up(self, engines: Iterable[int], now: float) -> None:
        """Engines back in service, with nothing on them."""
        self._advance(now)
        for number in sorted(set(engines) - self.in_service):
            self.in_service.add(number)
            self.engines[number].t = now
            for rank in self.engines[number].ranks:
                self._loads.open(rank.place)
        stranded, self._stranded = self._stranded, []
        self.in_flight -= len(stranded)
        self.submit(stranded, now)

    def migrate(self, now: float, keep: int) -> list[Request]:
        """Only the `keep` engines with the most samples stay in service; the others' samples go on there.

        Returns the samples that moved: with their tokens, but their contexts are prefilled again.
        """
        self._advance(now)
        for engine in self.engines:
            engine.settle()
        busiest = sorted(self.in_service, key=lambda number: (-self.engines[number].load, number))
        moved = self.take_down(busiest[keep:], now)
        self.submit(moved, now)
        return moved

    # --- figures ----------------------------------------------------------------------------------

    @property
    def stats(self) -> Stats:
        """Cumulative figures of all engines, up to their last boundaries."""
        total = Stats()
        for engine in self.engines:
            engine.settle()
        for field in fields(Stats):
            setattr(total, field.name, sum(getattr(engine.stats, field.name) for engine in self.engines))
        return total

    def counters(self) -> Counters:
        """Running sequences and KV tokens of the whole fleet from every batch change on: time, running, kv_tokens."""
        times, running, tokens = [], [], []
        for engine in self.engines:
            engine.record()
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

    # --- inside -----------------------------------------------------------------------------------

    def _advance(self, now: float) -> None:
        if now > self.now:
            self._early = self.play(now, False)

    def _plan_due(self) -> None:
        for number in self._due:
            engine = self.engines[number]
            engine.plan()
            if engine.end < inf:
                heappush(self._heap, (engine.end, number))
        self._due.clear()

    def _completed(self, time: float, finished: list[Request]) -> list[Completion]:
        self.in_flight -= len(finished)
        if len(finished) > 1:
            finished.sort(key=attrgetter("id"))
        done = []
        for request in finished:
            self._loads.gone(request.rank.place)
            done.append(Completion(time, request))
        return done

    def _stop(self, numbers: Iterable[int], now: float) -> None:
        """Bring engines to a standstill at `now`."""
        self._advance(now)
        for number in numbers:
            self.engines[number].stop(now)
            self._due.pop(number, None)

    def _start(self, numbers: Iterable[int]) -> None:
        """Let engines that stand still go on, unless all stand still."""
        if not self._paused:
            for number in numbers:
                if self.engines[number].load:
                    self._due[number] = None
