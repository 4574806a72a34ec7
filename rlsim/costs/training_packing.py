"""Micro-batches of one pass: which samples run together on which data-parallel rank.

Frameworks differ. `balanced`: samples to ranks by tokens, then each rank's samples into equally many micro-batches of
nearly equal tokens (verl's dynamic batch size, slime, OpenRLHF, ROLL). `first-fit`: samples to ranks by tokens, then
packs up to the budget, largest first. `global`: packs over the whole mini-batch first, their number a multiple of the
ranks, then packs dealt to ranks in turn (NeMo-RL).
"""

from __future__ import annotations

import heapq
from bisect import bisect_left, insort
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, TypeAlias

import numpy as np
import numpy.typing as npt

Floats: TypeAlias = npt.NDArray[np.float64]
Ints: TypeAlias = npt.NDArray[np.int64]
Method = Literal["balanced", "first-fit", "global"]

METHODS: Mapping[str, Method] = {
    "verl": "balanced",
    "slime": "balanced",
    "openrlhf": "balanced",
    "roll": "balanced",
    "nemo-rl": "global",
}
"""Packing method by framework; others pack first-fit (AReaL's and torch trainers' data loaders do)."""

PADS_TO_LONGEST_PACK = frozenset({"nemo-rl"})
"""Frameworks whose pipeline needs equal shapes: every pack of a rank is padded to the rank's longest one."""

GREEDY_ROWS = 64
"""First and last rounds in which ranks choose by their running total; those between go back and forth (snake)."""

TILE = 128
"""Query and key block of flash attention: the diagonal's blocks are computed whole."""


@dataclass(frozen=True)
class Rules:
    """How samples become micro-batches.

    `ranks`: data-parallel ranks; `budget`: tokens of one micro-batch, or `size`: samples of one; `packing`: without it
    samples are padded to the longest of their micro-batch; `align`: each sample is padded to a multiple of it (CP);
    `multiple`: micro-batches per rank come in multiples of it (interleaved pipeline); `longest_pack`: all packs of a
    rank run at its longest pack's length.
    """

    ranks: int
    budget: int | None
    size: int | None
    packing: bool = True
    balance: bool = True
    method: Method = "first-fit"
    align: int = 1
    multiple: int = 1
    longest_pack: bool = False


@dataclass(frozen=True)
class MicroBatches:
    """Arrays over [data-parallel rank, micro-batch]; empty micro-batches are zeros.

    `tokens` run through the layers, padding included. `pairs`: query-key pairs of causal attention for each sliding
    window (None = full), on the samples' own lengths, the diagonal's blocks whole.
    """

    tokens: Floats
    pairs: Mapping[int | None, Floats]

    @property
    def count(self) -> int:
        """Micro-batches that every rank runs."""
        return int(self.tokens.shape[1])


def micro_batches(lengths: Ints, rules: Rules, windows: Sequence[int | None]) -> MicroBatches:
    """Assign samples to ranks and micro-batches, and add up what each micro-batch holds.

    `lengths`: int64[n] prompt + response tokens. Pairs of a sample of s tokens under a window w:
    r·s - r²/2 + s·TILE/2 with r = min(s, w).
    """
    s = -(-np.asarray(lengths, dtype=np.int64) // rules.align) * rules.align
    rank, micro = _assign(s, rules)
    m = int(micro.max()) + 1 if len(micro) else 0
    m = -(-m // rules.multiple) * rules.multiple
    slots = rules.ranks * m
    slot = rank * m + micro
    if rules.packing:
        held = s.astype(np.float64)
    else:
        longest = np.zeros(slots)
        np.maximum.at(longest, slot, s.astype(np.float64))
        held = longest[slot]
    tokens: Floats = np.bincount(slot, weights=held, minlength=slots).astype(np.float64).reshape(rules.ranks, m)
    if rules.longest_pack and rules.packing:
        tokens = np.where(tokens > 0, tokens.max(axis=1, keepdims=True), 0.0)
    pairs: dict[int | None, Floats] = {}
    for window in windows:
        reach = held if window is None else np.minimum(held, window)
        each = reach * held - reach * reach / 2 + held * (TILE / 2)
        summed = np.bincount(slot, weights=each, minlength=slots).astype(np.float64)
        pairs[window] = summed.reshape(rules.ranks, m)
    return MicroBatches(tokens, pairs)


def _assign(s: Ints, rules: Rules) -> tuple[Ints, Ints]:
    """(rank, micro-batch) of every sample."""
    if rules.method == "global" and rules.packing and rules.budget is not None:
        pack = packs(s, rules.budget, rules.ranks * rules.multiple)
        return pack % rules.ranks, pack // rules.ranks
    rank = deal(s, rules.ranks) if rules.balance else contiguous(len(s), rules.ranks)
    if rules.size is not None:
        return rank, _position(rank, rules.ranks) // rules.size
    budget = rules.budget or int(s.sum())
    micro = np.zeros(len(s), dtype=np.int64)
    members = [np.flatnonzero(rank == r) for r in range(rules.ranks)]
    if not rules.packing:
        for mine in members:
            micro[mine] = padded_groups(s[mine], budget)
        return rank, micro
    if rules.method == "first-fit":
        for mine in members:
            micro[mine] = packs(s[mine], budget, 1)
        return rank, micro
    needed = max(int(-(-s[mine].sum() // budget)) for mine in members)
    needed = max(1, -(-needed // rules.multiple) * rules.multiple)
    for mine in members:
        micro[mine] = even_parts(s[mine], needed)
    return rank, micro


def contiguous(n: int, ranks: int) -> Ints:
    """Samples to ranks in the order they come, the first ones to rank 0."""
    return np.arange(n, dtype=np.int64) * ranks // max(n, 1)


def deal(s: Ints, ranks: int) -> Ints:
    """Samples to ranks by tokens, equally many each: rows of `ranks` samples in falling order of length.

    In the first and last GREEDY_ROWS rows the rank with the fewest tokens takes the longest sample; between them, where
    samples of a row differ little, the rows go back and forth.
    """
    n = len(s)
    if ranks == 1:
        return np.zeros(n, dtype=np.int64)
    rows = -(-n // ranks)
    order = np.argsort(-s, kind="stable")
    padded = np.concatenate([s[order], np.zeros(rows * ranks - n, dtype=np.int64)]).reshape(rows, ranks)
    to = np.tile(np.arange(ranks), (rows, 1))
    to[1::2] = to[1::2, ::-1]
    total = np.zeros(ranks, dtype=np.int64)
    plain = range(GREEDY_ROWS, rows - GREEDY_ROWS)
    for row in (r for r in range(rows) if r not in plain):
        if row == plain.stop and plain:
            np.add.at(total, to[plain.start : plain.stop].ravel(), padded[plain.start : plain.stop].ravel())
        to[row] = np.argsort(total, kind="stable")
        total[to[row]] += padded[row]
    rank = np.empty(n, dtype=np.int64)
    rank[order] = to.ravel()[:n]
    return rank


def even_parts(s: Ints, parts: int) -> Ints:
    """Samples into `parts` micro-batches of nearly equal tokens: longest first to the emptiest (LPT)."""
    heap = list(range(parts))  # total·parts + part
    order = np.argsort(-s, kind="stable")
    chosen: list[int] = []
    for added in (s[order] * parts).tolist():
        least = heap[0]
        chosen.append(least)
        heapq.heapreplace(heap, least + added)
    out = np.empty(len(s), dtype=np.int64)
    out[order] = np.array(chosen, dtype=np.int64) % parts
    return out


def packs(s: Ints, budget: int, multiple: int) -> Ints:
    """Packs of at most `budget` tokens, longest sample first into the fullest pack that still takes it.

    (Best fit; first-fit decreasing needs the same number of packs to within one on such lengths.) A sample above the
    budget is a pack of its own. The number of packs is a multiple of `multiple`: more packs are open from the start.
    """
    n = len(s)
    out = np.zeros(n, dtype=np.int64)
    if n == 0:
        return out
    least = max(1, int(-(-int(s.sum()) // budget)))
    count = min(-(-least // multiple) * multiple, max(n, multiple)) if multiple > 1 else 0
    shift = n + multiple
    rooms = [budget * shift + i for i in range(count)]
    order = np.argsort(-s, kind="stable")
    chosen: list[int] = []
    for size in s[order].tolist():
        at = bisect_left(rooms, size * shift)
        if at < len(rooms):
            room, pack = divmod(rooms.pop(at), shift)
        else:
            room, pack = max(budget, size), count
            count += 1
        chosen.append(pack)
        if room > size:
            insort(rooms, (room - size) * shift + pack)
    out[order] = chosen
    return out


def padded_groups(s: Ints, budget: int) -> Ints:
    """Groups of samples in falling order such that count x longest stays within the budget (dynamic batching)."""
    order = np.argsort(-s, kind="stable")
    out = np.zeros(len(s), dtype=np.int64)
    start = group = 0
    while start < len(s):
        take = max(1, budget // max(1, int(s[order[start]])))
        out[order[start : start + take]] = group
        start += take
        group += 1
    return out


def _position(rank: Ints, ranks: int) -> Ints:
    """Place of every sample among those of its rank, in the order they come."""
    out = np.zeros(len(rank), dtype=np.int64)
    for r in range(ranks):
        mine = np.flatnonzero(rank == r)
        out[mine] = np.arange(len(mine))
    return out
