"""All rollout engines together: routing, one clock, one heap of next boundaries. No simpy.

The fleet plays until a given time or until the first completion that somebody may react to, whichever is first; no
engine is ever played past it. While nobody reacts, engines are independent and run alone (`drain`).

What happens at T (new samples, a pause) comes after the boundaries at T and before the next iterations begin: engines
that reached the present are planned only when time goes on.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, fields
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
from rlsim.sim.router import Loads, Router, router
from rlsim.sim.surface import Surface

Counters = dict[str, npt.NDArray[np.generic]]
MIXED, PREFILL, DECODE = "mixed", "prefill", "decode"
TYPICAL_CONTEXT = 2048.0
"""Mean context, in tokens, at which engines of unlike speed are compared."""


@dataclass(frozen=True)
class Side:
    """Places that take the same work: their router, what lies there, and their numbers in the fleet."""

    route: Router
    loads: Loads
    places: tuple[int, ...]


class Fleet:
    """Engines of one or several kinds. A place is (rank of its engine, engine); new samples see engines in turn first.

    now        every boundary up to now has been played
    in_flight  samples that wait or run
    in_service engines that samples go to; while there are none, samples wait for one
    """

    def __init__(
        self,
        kinds: Sequence[tuple[Surface, int]],
        routing: str = "least-loaded",
        share_prompts: bool = True,
        roles: Sequence[str] = (),
        weighted: bool = False,
    ) -> None:
        """`roles`: of the kinds; prefill engines take samples without KV, decode engines those that bring theirs.

        `weighted`: what lies at a place counts over the place's speed, else all places count alike.
        """
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
        self._sides = self._split(kinds, routing, roles, weighted)
        self._side: list[Side] = [self._sides[0]] * len(self._places)
        self._local = [0] * len(self._places)
        for side in self._sides:
            for local, place in enumerate(side.places):
                self._side[place], self._local[place] = side, local
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
        engines, due = self.engines, self._due
        eager: dict[int, None] = {}
        for request, place in self._routed(new):
            number, rank = self._places[place]
            if engines[number].submit(request, rank) and number not in due:
                eager[number] = None
        if eager and not self._paused:
            for number in eager:
                self._notice(number, now)

    def _routed(self, new: list[Request]) -> Iterable[tuple[Request, int]]:
        """Samples with their places; those that no place in service takes wait for one."""
        if len(self._sides) == 1:
            return self._to_side(self._sides[0], new)
        prefill, decode = self._sides
        fresh = self._to_side(prefill, [request for request in new if not request.kv_ready])
        return [*fresh, *self._to_side(decode, [request for request in new if request.kv_ready])]

    def _to_side(self, side: Side, new: list[Request]) -> Iterable[tuple[Request, int]]:
        if not any(self._places[place][0] in self.in_service for place in side.places[: len(self.engines)]):
            self._stranded += new
            return ()
        sticky = [request for request in new if self._stays(side, request)]
        if not sticky:
            return zip(new, [side.places[local] for local in side.route(new, side.loads)], strict=True)
        found: dict[int, int] = {}
        for request in sticky:
            assert request.place is not None
            side.loads.add(self._local[request.place], request)
            found[request.id] = request.place
        rest = [request for request in new if request.id not in found]
        found.update(zip((r.id for r in rest), (side.places[n] for n in side.route(rest, side.loads)), strict=True))
        return [(request, found[request.id]) for request in new]

    def _stays(self, side: Side, request: Request) -> bool:
        """Whether the sample goes where its KV lies: that place is in service and takes its kind of work."""
        place = request.place
        return place is not None and self._side[place] is side and side.loads.is_open(self._local[place])

    def _split(
        self, kinds: Sequence[tuple[Surface, int]], routing: str, roles: Sequence[str], weighted: bool
    ) -> list[Side]:
        """One side for all places, or prefill and decode apart."""
        of_kind = zip(kinds, roles or [MIXED] * len(kinds), strict=True)
        of_engine = [role for (_, count), role in of_kind for _ in range(count)]
        names = [MIXED] if PREFILL not in of_engine else [PREFILL, DECODE]
        if not set(of_engine) <= set(names):
            raise ValueError(f"engines with roles {sorted(set(of_engine))} in one fleet")
        sides = []
        for name in names:
            places = [place for place, (number, _) in enumerate(self._places) if of_engine[number] == name]
            surfaces = [self.engines[self._places[place][0]].surface for place in places]
            weights = [speed(surface, name) if weighted else 1.0 for surface in surfaces]
            route, loads = router(routing, weights)
            sides.append(Side(route, loads, tuple(places)))
        return sides

    def _gone(self, request: Request) -> None:
        place = request.rank.place
        self._side[place].loads.gone(self._local[place], request)

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
            self._gone(request)
        if until < inf:
            self.now = max(self.now, until)
        return done + new

    def drain(self, now: float) -> list[Completion]:
        """Run everything in flight to its end; completions in the order of time and engine."""
        self._advance(now)
        if self._paused and self.in_flight:
            raise RuntimeError("the engines stand still: resume before draining them")
        done = self._play_alone(inf)
        for side in self._sides:
            side.loads.clear()
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
            self._gone(request)
        stranded = [request for request in self._stranded if wanted is None or request.id in wanted]
        if stranded:
            out = {request.id for request in stranded}
            self._stranded = [request for request in self._stranded if request.id not in out]
        self.in_flight -= len(gone) + len(stranded)
        self._start(holders)
        return gone + stranded

    # --- engines come and go ----------------------------------------------------------------------

    def take_down(self, engines: Iterable[int], now: float) -> list[Request]:
        """Engines out of service: their samples come back with the tokens they have, their KV is lost."""
        numbers = sorted(self.in_service.intersection(engines))
        self._stop(numbers, now)
        gone = [request for number in numbers for request in self.engines[number].remove(None)]
        for request in gone:
            self._gone(request)
        self.in_flight -= len(gone)
        self.in_service.difference_update(numbers)
        for number in numbers:
            self.engines[number].flush_cache()
            for rank in self.engines[number].ranks:
                self._side[rank.place].loads.close(self._local[rank.place])
        return gone

    def bring_up(self, engines: Iterable[int], now: float) -> None:
        """Engines back in service, with nothing on them."""
        self._advance(now)
        for number in sorted(set(engines) - self.in_service):
            self.in_service.add(number)
            self.engines[number].t = now
            for rank in self.engines[number].ranks:
                self._side[rank.place].loads.open(self._local[rank.place])
        stranded, self._stranded = self._stranded, []
        self.in_flight -= len(stranded)
        self.submit(stranded, now)

    def reprice(self, number: int, rows: Rows, now: float) -> None:
        """An engine becomes slower or faster; it loses the iteration under way and begins it again."""
        self._stop([number], now)
        self.engines[number].reprice(rows)
        self._start([number])

    @property
    def decoders(self) -> set[int]:
        """Engines in service that decode: all but those that only prefill."""
        return {self._places[place][0] for place in self._sides[-1].places} & self.in_service

    def migrate(self, now: float, keep: int) -> list[Request]:
        """Of those that decode only the `keep` engines with the most samples stay in service.

        Returns the others' samples, to be handed in again: with their tokens, but their contexts are prefilled again.
        """
        self._advance(now)
        for engine in self.engines:
            engine.settle()
        busiest = sorted(self.decoders, key=lambda number: (-self.engines[number].load, number))
        return self.take_down(busiest[keep:], now)

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
            self._gone(request)
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


def speed(surface: Surface, role: str) -> float:
    """Tokens per second of one attention rank at a quarter of its slots, or of its full prefill chunks."""
    if role == PREFILL:
        tokens = surface.max_num_batched_tokens
        return tokens / surface.mixed(0, 0.0, tokens, tokens * (tokens + 1) / 2)
    b = max(1, surface.max_num_seqs // 4)
    return b / (surface.row(b, TYPICAL_CONTEXT) + float(surface.joint[b * surface.ranks]))
