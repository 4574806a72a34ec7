"""Contexts kept in a prefix cache: evicted from the end of the one left longest ago."""

from __future__ import annotations

from rlsim.sim.kept import Kept


def cache() -> Kept:
    kept = Kept()
    for id, blocks in ((1, 4), (2, 3), (3, 5)):
        kept.leave(id, blocks)
    return kept


def test_the_oldest_goes_first_and_from_its_end() -> None:
    kept = cache()
    kept.shrink(20)
    assert kept.contexts == {1: 4, 2: 3, 3: 5}
    kept.shrink(10)
    assert kept.contexts == {1: 2, 2: 3, 3: 5}
    kept.shrink(6)
    assert (kept.contexts, kept.blocks) == ({2: 1, 3: 5}, 6)
    kept.shrink(0)
    assert (kept.contexts, kept.blocks) == ({}, 0)


def test_leaving_again_makes_it_the_youngest() -> None:
    kept = cache()
    kept.leave(1, 6)
    kept.shrink(12)
    assert kept.contexts == {2: 1, 3: 5, 1: 6}
    kept.take(3)
    kept.take(9)
    assert (kept.contexts, kept.blocks) == ({2: 1, 1: 6}, 7)
