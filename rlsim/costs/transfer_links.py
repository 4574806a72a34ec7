"""What a weight sync puts on the links between pools: thin lines between sites, which all GPUs of a pool share."""

from __future__ import annotations

from collections.abc import Callable

from rlsim.costs.transfer_case import Crossing, Receiver, SyncCase


def once(case: SyncCase, size: float) -> float:
    """Seconds for `size` bytes to cross to every pool once (multicast): all kinds of engines there share the copy.

    size / (link rate · share of it that transfers reach), links to different pools at the same time.
    """
    efficiency = case.profile.value("sync_nic_efficiency")
    return max((size / (line.bandwidth * efficiency) for line in _crossed(case)), default=0.0)


def each(case: SyncCase, bytes_of: Callable[[Receiver], float]) -> float:
    """Seconds where every kind of engine draws its own `bytes_of` over the link to its pool."""
    efficiency = case.profile.value("sync_nic_efficiency")
    seconds = [
        sum(bytes_of(r) for r in case.receivers if r.crossing == line) / (line.bandwidth * efficiency)
        for line in _crossed(case)
    ]
    return max(seconds, default=0.0)


def crossing_floor(case: SyncCase, size: float) -> float:
    """The same as `once` at the full rate of the link."""
    return max((size / line.bandwidth for line in _crossed(case)), default=0.0)


def round_trip(case: SyncCase) -> float:
    """Seconds from sending to the acknowledgement, over the longest link."""
    return 2.0 * max((line.latency for line in _crossed(case)), default=0.0)


def behind(case: SyncCase, bandwidth: float) -> SyncCase:
    """The same sync with all engines behind one link of that many bytes/s, its latency as it is."""
    line = Crossing("engines", bandwidth, round_trip(case) / 2.0)
    return SyncCase(**{**vars(case), "receivers": tuple(_moved(r, line) for r in case.receivers)})


def _moved(receiver: Receiver, line: Crossing) -> Receiver:
    return Receiver(**{**vars(receiver), "crossing": line})


def _crossed(case: SyncCase) -> list[Crossing]:
    return list(dict.fromkeys(r.crossing for r in case.receivers if r.crossing is not None))
