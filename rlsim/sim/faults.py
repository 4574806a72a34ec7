"""What goes wrong, and when: faults at given moments or at a rate, the same for every variant of a seed.

A fault at a rate hits one of its places (engines, nodes) after exponential times: with n places of mean time between
faults M, one comes every M/n on average. Each entry of the scenario's list has a random stream of its own.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from math import inf

import numpy as np

ENGINE_CRASH, TRAINER_CRASH, SLOW_NODE, NIC = "engine-crash", "trainer-crash", "slow-node", "nic"
TRAINER, ROLLOUT = "trainer", "rollout"
STREAM = 7  # of the random streams of a seed


@dataclass(frozen=True)
class Fault:
    """One entry of the scenario's list.

    at, mtbf    moment (s), or mean time between faults of one place (s)
    places      engines or nodes that it may hit
    where       the one that it hits at `at`
    duration    until it is repaired, s
    factor      times of what is slow over normal ones
    engines     engine numbers on each place, for faults of rollout engines
    """

    kind: str
    side: str = ROLLOUT
    at: float | None = None
    mtbf: float | None = None
    places: int = 1
    where: int = 0
    duration: float = 0.0
    factor: float = 1.0
    engines: tuple[tuple[int, ...], ...] = ()

    def scaled(self, c: float) -> Fault:
        """All durations times c."""
        at = None if self.at is None else self.at * c
        mtbf = None if self.mtbf is None else self.mtbf * c
        return replace(self, at=at, mtbf=mtbf, duration=self.duration * c)

    def occurrences(self, seed: int, entry: int) -> Iterator[tuple[float, int]]:
        """(moment, place), ascending; `entry` is its number in the list."""
        if self.mtbf is None:
            yield self.at or 0.0, self.where
            return
        random = np.random.default_rng([seed, STREAM, entry])
        now = 0.0
        while True:
            now += float(random.standard_exponential()) * self.mtbf / self.places
            yield now, int(random.integers(self.places))


class Stream:
    """The occurrences of one fault, one after the other; `coming` is the next, None if there is none."""

    def __init__(self, fault: Fault, seed: int, entry: int) -> None:
        self.fault = fault
        self._moments = fault.occurrences(seed, entry)
        self.coming = next(self._moments, None)

    @property
    def moment(self) -> float:
        return inf if self.coming is None else self.coming[0]

    def advance(self) -> None:
        self.coming = next(self._moments, None)


class Windows:
    """The times in which something is slow: overlapping faults of one kind and side, the slowest counts.

    Work that would take s seconds takes `end(t, s) - t`: inside a window it goes 1/factor as fast.
    """

    def __init__(self, streams: list[Stream]) -> None:
        self._streams = streams
        self._known: list[tuple[float, float, float]] = []  # (start, end, factor)

    def end(self, start: float, seconds: float) -> float:
        """When work of so many seconds that begins at `start` is done."""
        now, left = start, seconds
        while True:
            factor, until = self._at(now)
            if now + left * factor <= until:
                return now + left * factor
            left -= (until - now) / factor
            now = until

    @property
    def known(self) -> list[tuple[float, float]]:
        """The windows that have begun, by their start."""
        return sorted((start, end) for start, end, _ in self._known)

    def _at(self, now: float) -> tuple[float, float]:
        """The factor in force, and the next moment at which it may change."""
        for stream in self._streams:
            while stream.moment <= now:
                fault = stream.fault
                self._known.append((stream.moment, stream.moment + fault.duration, fault.factor))
                stream.advance()
        changes = [stream.moment for stream in self._streams]
        changes += [moment for start, end, _ in self._known for moment in (start, end) if moment > now]
        in_force = [factor for start, end, factor in self._known if start <= now < end]
        return max(in_force, default=1.0), min(changes, default=inf)


class Weather:
    """Faults as the trainer meets them: when it crashes next, and how long its work takes meanwhile."""

    def __init__(self, faults: tuple[Fault, ...], seed: int) -> None:
        streams = [Stream(fault, seed, entry) for entry, fault in enumerate(faults)]
        self._slow = Windows([s for s in streams if s.fault.kind == SLOW_NODE and s.fault.side == TRAINER])
        self._nic = Windows([s for s in streams if s.fault.kind == NIC])  # a sync is on both sides' NICs: the slower
        self._crashes = [s for s in streams if s.fault.kind == TRAINER_CRASH]

    @property
    def crash(self) -> float:
        """When the trainer crashes next."""
        return min((stream.moment for stream in self._crashes), default=inf)

    def restart(self) -> float:
        """The next crash happens: when the trainer is up again. What fails while it is down changes nothing."""
        crash = self.crash
        up = max(crash + stream.fault.duration for stream in self._crashes if stream.moment == crash)
        for stream in self._crashes:
            while stream.moment < up:
                stream.advance()
        return up

    def slow_spans(self) -> list[tuple[str, float, float]]:
        """What was slow so far: (track, start, end) without overlaps."""
        found: list[tuple[str, float, float]] = []
        for track, windows in (("trainer node", self._slow), ("network", self._nic)):
            last = 0.0
            for start, end in windows.known:
                found.append((track, max(start, last), end))
                last = max(last, end)
        return found

    def compute_end(self, start: float, seconds: float) -> float:
        """When a pass of the trainer is done: a step waits for its slowest node."""
        return self._slow.end(start, seconds)

    def sync_end(self, start: float, seconds: float, wire: float) -> float:
        """When a weight sync is done of which the last `wire` seconds are on the network."""
        if self._nic.end(start, seconds) == start + seconds:
            return start + seconds
        wire = min(wire, seconds)
        return self._nic.end(start + (seconds - wire), wire)
