"""Buckets on their way: sent while the next one is made, taken while the one before is passed on and unpacked."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

import torch
import torch.distributed as dist

from rlsim.reshard.world import World


def send(messages: Iterable[torch.Tensor], targets: Sequence[int]) -> None:
    """Each message to all the targets at once; the next one is made meanwhile, so two are held."""
    under_way: Sent | None = None
    for message in messages:
        sent = Sent(message, targets)
        if under_way is not None:
            under_way.wait()
        under_way = sent
    if under_way is not None:
        under_way.wait()


def take(
    world: World,
    lengths: Sequence[int],
    source: int,
    targets: Sequence[int],
    keep: Callable[[torch.Tensor], object],
) -> None:
    """Messages of these lengths from the source, each passed on to the targets and then kept.

    The next one is asked for before this one is there: gloo sends nothing that nobody has asked for. Three are held:
    coming in, going out, and the one before that may still be going out.
    """
    asked = Asked(world.message(lengths[0]), source) if lengths else None
    under_way: Sent | None = None
    for number in range(len(lengths)):
        assert asked is not None
        arrived = asked
        asked = Asked(world.message(lengths[number + 1]), source) if number + 1 < len(lengths) else None
        message = arrived.wait()
        sent = Sent(message, targets)
        if under_way is not None:
            under_way.wait()
        under_way = sent
        keep(message)
    if under_way is not None:
        under_way.wait()


class Sent:
    """A message under way; its bytes have to stay until it is."""

    def __init__(self, message: torch.Tensor, targets: Sequence[int]) -> None:
        self._message = message
        self._works = [_known(dist.isend(message, target)) for target in targets]

    def wait(self) -> None:
        for work in self._works:
            work.wait()


class Asked:
    """A message that is being received."""

    def __init__(self, message: torch.Tensor, source: int) -> None:
        self._message = message
        self._work = _known(dist.irecv(message, source))

    def wait(self) -> torch.Tensor:
        self._work.wait()
        return self._message


def _known(work: dist.Work | None) -> dist.Work:
    assert work is not None  # None only outside the group
    return work
