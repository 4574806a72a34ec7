"""Micro-batches: every token once, budgets kept, ranks balanced."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rlsim.costs.training_packing import TILE, Rules, deal, even_parts, micro_batches, packs, padded_groups

LENGTHS = st.lists(st.integers(1, 5000), min_size=8, max_size=120).map(lambda x: np.array(x, dtype=np.int64))
RULES = Rules(ranks=4, budget=8192, size=None)


@settings(max_examples=60, deadline=None)
@given(LENGTHS, st.sampled_from(["balanced", "first-fit", "global"]), st.booleans())
def test_every_token_runs_once(lengths: np.ndarray, method: str, balance: bool) -> None:
    batch = micro_batches(lengths, replace(RULES, method=method, balance=balance), [None])
    assert batch.tokens.sum() == lengths.sum()
    half = lengths.astype(float) ** 2 / 2 + lengths * TILE / 2
    assert batch.pairs[None].sum() == pytest.approx(half.sum())


@settings(max_examples=60, deadline=None)
@given(LENGTHS, st.sampled_from(["first-fit", "global"]))
def test_packs_keep_the_budget(lengths: np.ndarray, method: str) -> None:
    assert micro_batches(lengths, replace(RULES, method=method), [None]).tokens.max() <= 8192


def test_packs_fill_well() -> None:
    rng = np.random.default_rng(0)
    lengths = rng.integers(100, 4000, 1000)
    used = packs(lengths, 16384, 1)
    assert used.max() + 1 <= np.ceil(lengths.sum() / 16384) * 1.02 + 1


def test_packs_come_in_multiples() -> None:
    batch = micro_batches(np.full(40, 3000), replace(RULES, method="global"), [None])
    # 40 samples, two in a pack of 8,192: 20 packs, 5 for each of 4 ranks.
    assert batch.count == 5
    assert (batch.tokens == 6000).all()


def test_a_sample_above_the_budget_runs_alone() -> None:
    batch = micro_batches(np.array([20000, 100, 100, 100]), replace(RULES, ranks=1), [None])
    assert batch.tokens.max() == 20000


def test_even_parts_differ_by_little() -> None:
    rng = np.random.default_rng(1)
    lengths = rng.integers(100, 4000, 500)
    totals = np.bincount(even_parts(lengths, 10), weights=lengths)
    assert totals.max() - totals.min() < 200


def test_dealing_balances_tokens_with_equal_counts() -> None:
    rng = np.random.default_rng(2)
    lengths = np.minimum(rng.lognormal(8, 0.6, 4096), 32768).astype(np.int64)
    rank = deal(lengths, 16)
    totals = np.bincount(rank, weights=lengths)
    assert (np.bincount(rank) == 256).all()
    assert totals.max() / totals.mean() < 1.002
    contiguous = lengths.reshape(16, 256).sum(axis=1)
    assert totals.max() < contiguous.max()


def test_sizes_count_samples() -> None:
    batch = micro_batches(np.full(16, 1000), replace(RULES, budget=None, size=2), [None])
    assert batch.count == 2
    assert (batch.tokens == 2000).all()


def test_without_packing_samples_are_padded_to_the_longest() -> None:
    rules = Rules(ranks=1, budget=None, size=2, packing=False, balance=False)
    batch = micro_batches(np.array([100, 300, 50, 50]), rules, [None])
    assert batch.tokens.tolist() == [[600.0, 100.0]]


def test_padded_groups_count_times_longest_stays_in_budget() -> None:
    rng = np.random.default_rng(3)
    lengths = rng.integers(10, 3000, 200)
    group = padded_groups(lengths, 8000)
    for g in range(group.max() + 1):
        mine = lengths[group == g]
        assert len(mine) * mine.max() <= 8000 or len(mine) == 1


def test_the_pipeline_of_nemo_rl_runs_every_pack_at_the_longest() -> None:
    lengths = np.array([5000, 5000, 700, 700])
    rules = Rules(ranks=1, budget=6000, size=None, longest_pack=True)
    batch = micro_batches(lengths, rules, [None])
    assert set(batch.tokens.ravel().tolist()) == {float(batch.tokens.max())}


def test_a_window_limits_the_pairs() -> None:
    batch = micro_batches(np.array([1000]), Rules(ranks=1, budget=4096, size=None), [None, 100])
    # 100·1000 - 100²/2 pairs and half a tile for each token, against 1000²/2.
    assert batch.pairs[100].sum() == 100 * 1000 - 5000 + 1000 * 64
    assert batch.pairs[None].sum() == 500_000 + 1000 * 64


def test_context_parallel_pads_each_sample() -> None:
    batch = micro_batches(np.array([1001]), Rules(ranks=1, budget=4096, size=None, align=16), [None])
    assert batch.tokens.sum() == 1008
