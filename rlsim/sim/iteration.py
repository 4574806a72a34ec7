"""One iteration that is more than decodes: prompt tokens, or KV blocks that are swapped with the host."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from rlsim.sim.request import Request

if TYPE_CHECKING:
    from rlsim.sim.engine import Engine

UNLIMITED = 1 << 62


@dataclass(slots=True)
class Iteration:
    """What happens in it.

    seconds      how long it takes; of it prefill_seconds and swap_seconds are what prompt tokens and swaps add
    decodes      sequences that decode in it
    chunks       (sample, prompt tokens)
    tokens       prompt tokens, `again` of them had been prefilled before
    taken_over   whether the engine's state is already that of its end (but for the iteration count)
    """

    seconds: float
    prefill_seconds: float
    swap_seconds: float
    decodes: int
    chunks: list[tuple[Request, int]]
    tokens: int
    again: int
    taken_over: bool = False


def compose(engine: Engine, k: int) -> Iteration:
    """Iteration k: every rank's chunks beside its decodes, the slowest rank's time, and what all do together.

    Without chunked prefill decodes wait while there are prompts.
    """
    if engine.many is None and not engine.moving:
        return _on_one_rank(engine, k)
    rows, pace, many, surface = engine.rows, engine.pace, engine.many, engine.surface
    mixed = surface.chunked_prefill
    waits = not mixed and bool(engine.prefilling)
    plain = slowest = 0.0 if waits else pace.slowest(k)
    longest = 0.0  # with its swaps
    chunks: list[tuple[Request, int]] = []
    total = again = 0
    pair = surface.prefill_pair_seconds
    for rank in engine.prefilling:
        tokens, pairs, repeated = rank.chunk(engine.budget - rank.b if mixed else UNLIMITED, chunks)
        again += repeated
        if tokens:
            total += tokens
            seconds = rows.prefill(tokens) + pair * pairs
            if waits or not rank.b:
                seconds += surface.prefill_base
            else:
                seconds += many.of(rank, k) if many else plain
            if seconds > slowest:
                slowest = seconds
            if rank.moved:
                longest = max(longest, seconds + rank.moved * surface.swap_block_seconds)
    for rank in engine.moving:
        own = (many.of(rank, k) if many else plain) if rank.b and not waits else 0.0
        longest = max(longest, own + rank.moved * surface.swap_block_seconds)
    decodes = 0 if waits else engine.batch
    together = surface.joint_prefill(total, decodes) if many else 0.0
    swap = max(0.0, longest - slowest)
    return Iteration(
        slowest + swap + rows.joint[decodes] + together, slowest - plain + together, swap, decodes, chunks, total, again
    )


def _on_one_rank(engine: Engine, k: int) -> Iteration:
    """The same for a plain engine without swaps."""
    rank, surface = engine.prefilling[0], engine.surface
    mixed = surface.chunked_prefill
    decodes = rank.b if mixed else 0
    chunks: list[tuple[Request, int]] = []
    tokens, pairs, again = rank.chunk(engine.budget - decodes if mixed else UNLIMITED, chunks)
    added = engine.rows.prefill(tokens) + surface.prefill_pair_seconds * pairs
    if decodes:
        seconds = engine.pace.slowest(k) + added
    else:
        seconds = added = added + surface.prefill_base
    return Iteration(seconds + engine.rows.joint[decodes], added, 0.0, decodes, chunks, tokens, again)


def ends_all_prompts(engine: Engine, iteration: Iteration) -> bool:
    """Whether after it every sequence decodes, none is done yet, and no rank can admit another."""
    if engine.moving or iteration.tokens == 0:
        return False
    for request, n in iteration.chunks:
        if n < request.todo or request.done + 1 == request.response:
            return False
    prompts = 0
    for rank in engine.prefilling:
        if rank.waiting and len(rank.running) < rank.slots:
            return False
        prompts += len(rank.prefilling)
    return prompts == len(iteration.chunks)


def end_chunks(engine: Engine, iteration: Iteration, k: int) -> list[Request]:
    """The chunks of the iteration that just ended; sequences whose prompt is complete begin to decode."""
    done: list[Request] = []
    first_tokens = 0
    for request, n in iteration.chunks:
        request.todo -= n
        if request.todo:
            continue
        rank = request.rank
        del rank.prefilling[0]  # chunks are in its order, and only the last can be incomplete
        first_tokens += 1
        if request.done + 1 == request.response:
            rank.prune(k)
            rank.end_prefill(request)
            request.done += 1
            done.append(request)
            continue
        rank.begin_decode(request, k)
        engine.finishes.add(request)
    engine.stats.generated_tokens += first_tokens
    for rank in engine.prefilling:
        engine.touch(rank)
    return done


def take_over(engine: Engine, iteration: Iteration, k: int) -> None:
    """All chunks of the planned iteration, ahead of its end at boundary k: nothing else happens there."""
    for request, _ in iteration.chunks:
        request.todo = 0
        request.rank.begin_decode(request, k)
        engine.finishes.add(request)
    for rank in engine.prefilling:
        rank.prefilling.clear()
        engine.count(rank, rank.safe_until())
    engine.prefilling = []
    iteration.taken_over = True


def undo(engine: Engine, iteration: Iteration) -> None:
    """The planned iteration does not happen after all."""
    for request, n in iteration.chunks:
        rank = request.rank
        engine.finishes.drop(request)
        rank.undo_prefill(request, n)
        if rank not in engine.prefilling:
            engine.prefilling.append(rank)
    for rank in engine.prefilling:
        engine.count(rank, rank.safe_until())
