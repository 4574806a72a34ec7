"""Pipeline schedules against the textbook and against a slow list scheduler."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rlsim.costs.training_pipeline import forward_only, interleaved, one_forward_one_backward


def slow_1f1b(forward: np.ndarray, backward: np.ndarray) -> float:
    """One operation at a time, in each stage's own order, as soon as what it waits for has ended."""
    p, m = forward.shape
    queues = []
    for s in range(p):
        warm = min(m, p - 1 - s)
        queue = [("F", j) for j in range(warm)]
        for j in range(m - warm):
            queue += [("F", warm + j), ("B", j)]
        queues.append(queue + [("B", j) for j in range(m - warm, m)])
    end: dict[tuple[str, int, int], float] = {}
    free = [0.0] * p
    while any(queues):
        for s in range(p):
            while queues[s]:
                kind, j = queues[s][0]
                needs = {"F": ("F", s - 1, j), "B": ("B", s + 1, j) if s < p - 1 else ("F", s, j)}[kind]
                if needs[1] >= 0 and needs not in end:
                    break
                start = max(free[s], end.get(needs, 0.0))
                free[s] = start + float((forward if kind == "F" else backward)[s, j])
                end[kind, s, j] = free[s]
                queues[s].pop(0)
    return max(end.values())


@settings(max_examples=80, deadline=None)
@given(st.integers(1, 6), st.integers(1, 12), st.integers(0, 10_000))
def test_1f1b_is_the_longest_path(p: int, m: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    forward, backward = rng.random((p, m, 2)), 2 * rng.random((p, m, 2))
    fast = one_forward_one_backward(forward, backward)
    for r in range(2):
        assert fast[r] == pytest.approx(slow_1f1b(forward[:, :, r], backward[:, :, r]), rel=1e-12)


def test_equal_micro_batches_give_the_textbook() -> None:
    # (m + p - 1)·(f + b) = (8 + 3)·3
    ones = np.ones((4, 8, 1))
    assert one_forward_one_backward(ones, 2 * ones)[0] == pytest.approx(33)
    assert forward_only(ones)[0] == pytest.approx(8 + 3)


def test_a_slow_stage_paces_the_others() -> None:
    forward = np.ones((4, 16, 1))
    forward[2] *= 2
    # the slow stage works 16·(2 + 1) and waits at least for the two stages before it
    assert one_forward_one_backward(forward, np.ones((4, 16, 1)))[0] >= 16 * 3 + 2


@settings(max_examples=40, deadline=None)
@given(st.integers(1, 6), st.integers(1, 12), st.integers(0, 10_000))
def test_no_schedule_beats_its_busiest_stage(p: int, m: int, seed: int) -> None:
    forward = np.random.default_rng(seed).random((p, m, 3))
    assert (one_forward_one_backward(forward, forward) >= 2 * forward.sum(axis=1).max(axis=0) - 1e-12).all()
    assert (forward_only(forward) >= forward.sum(axis=1).max(axis=0) - 1e-12).all()


def test_interleaving_divides_the_bubble() -> None:
    assert interleaved(np.array([33.0]), np.array([24.0]), 3)[0] == pytest.approx(24 + 3)


def test_empty_micro_batches_take_no_time() -> None:
    forward = np.ones((3, 5, 1))
    forward[:, 3:] = 0.0
    assert one_forward_one_backward(forward, forward)[0] == pytest.approx((3 + 2) * 2)
