"""One rollout engine with continuous batching, played from batch change to batch change; exact, no simpy.

`plan` decides what happens at the boundary between two iterations (preempt, admit) and how far the engine can go
without another decision; `play` finishes that stretch. Iterations with prompt tokens are stepped singly; stretches of
pure decode are jumped in closed form (see `pace`). An engine that has been left alone for a while looks many finishes
ahead at once (see `schedule`); whoever wants something of it `settle`s that first.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import deque
from math import inf
from operator import attrgetter

from rlsim.sim.finishes import Finishes
from rlsim.sim.iteration import Iteration, compose, end_chunks, ends_all_prompts, take_over, undo
from rlsim.sim.pace import OneRank, Piece, Rows, SlowestRank, boundary, first_of, fitting_all
from rlsim.sim.rank import NEVER, Rank
from rlsim.sim.records import Stats, Timeline
from rlsim.sim.request import NOT_RUNNING, Completion, Request
from rlsim.sim.schedule import Schedule, account, can_run_out, end_played, look_ahead

TOLERANCE = 1e-12  # relative: a boundary at T counts as before T
QUIET = 16  # jumps with nothing between them, after which an engine looks ahead
NEAREST, FARTHEST = 32, 512  # finishes that it looks ahead, first and at most


class Engine:
    """State of one engine.

    t, k     the last boundary played, in seconds and in iterations
    end      the boundary planned next; inf: none is, the engine stands still until `plan`
    batch    sequences that decode; their contexts sum to batch·k + contexts
    running  sequences that hold a slot
    safe     before this iteration no rank's KV blocks run out
    finishes  the samples that decode, by the iteration at which they are done
    prefilling, moving  ranks with prompt tokens to do; with KV blocks swapped since the last iteration

    Iterations are counted by decodes: one in which they wait for prompts (without chunked prefill) leaves k as it is.
    """

    def __init__(self, rows: Rows, share_prompts: bool = True) -> None:
        surface = rows.surface
        self.rows = rows
        self.surface = surface
        self.share = share_prompts and surface.prefix_caching
        self.budget = surface.max_num_batched_tokens
        self.ranks = [
            Rank(
                surface.max_num_seqs,
                surface.kv_capacity_tokens,
                surface.block_size,
                index,
                surface.swap_capacity_tokens,
            )
            for index in range(surface.ranks)
        ]
        self.many = SlowestRank(rows, self.ranks) if surface.ranks > 1 else None
        self.pace = self.many or OneRank(rows, self.ranks[0])
        self.t = 0.0
        self.k = 0
        self.end = inf
        self.batch = self.contexts = self.running = 0
        self.stats = Stats()
        self.timeline = Timeline()
        self.prefilling: list[Rank] = []
        self.moving: list[Rank] = []
        self.keeps = False  # whether samples have come that leave their context
        self._touched: list[Rank] = []
        self.safe = NEVER
        self.finishes = Finishes()
        self._steps = 0
        self._pieces: list[Piece] = []
        self._iteration: Iteration | None = None  # None: decodes only
        self._schedule: Schedule | None = None
        self._quiet, self._ahead = 0, NEAREST

    # --- from outside -----------------------------------------------------------------------------

    def under_way(self, now: float) -> tuple[float, float, int]:
        """What of the planned stretch lies before `now`, whole iterations: (seconds, sequences · seconds, tokens)."""
        if self.end == inf:
            return 0.0, 0.0, 0
        self.settle()
        steps = fitting_all(self._pieces, now + TOLERANCE * abs(now))
        kept = first_of(self._pieces, steps)
        if not kept:
            return 0.0, 0.0, 0
        seconds, first, decodes = boundary(kept[-1], kept[-1][1]) - self.t, 0.0, 0
        if self._iteration:
            first, decodes, steps = self._iteration.seconds, self._iteration.decodes, steps - 1
        return seconds, first * decodes + (seconds - first) * self.batch, decodes + steps * self.batch

    def submit(self, request: Request, rank: Rank) -> bool:
        """Queue a request; whether it may be admitted at the next boundary, or surely not before something leaves."""
        if self._schedule:
            self.settle()
        request.rank = rank
        rank.waiting.append(request)
        if request.keep:
            self.keeps = self.share
        if self.end < inf and (rank.blocked or len(rank.running) >= rank.slots):
            return False
        self.touch(rank)
        return True

    def stop_after(self, now: float) -> None:
        """End the planned stretch at the first boundary from `now` on: something new waits."""
        self.settle()
        self._cut(min(self._steps, fitting_all(self._pieces, now - TOLERANCE * abs(now)) + 1))

    def stop(self, now: float) -> None:
        """Play the boundaries up to `now`, before `end`; drop the iteration under way; stand still."""
        self.settle()
        if self.end != inf:
            self._cut(min(self._steps - 1, fitting_all(self._pieces, now + TOLERANCE * abs(now))))
            if self._steps:
                self.play()
            else:
                self.drop_plan()
        self.t = now

    def reprice(self, rows: Rows) -> None:
        """Iterations take other times from now on. Only at a standstill."""
        self.rows, self.surface = rows, rows.surface
        self.pace.rows = rows
        self.pace.rewind()

    def drop_plan(self) -> None:
        """Nothing of the planned stretch happens: stand at the last boundary, to `plan` again."""
        self.settle()
        self.end = inf
        if self._iteration and self._iteration.taken_over:
            undo(self, self._iteration)
        self._iteration = None
        self.pace.rewind()
        for rank in self.prefilling:
            self.touch(rank)

    def forget_kv(self) -> None:
        """All that runs loses its KV and goes to the front of its queue, the oldest first. Only at a standstill.

        KV at the host and in the prefix cache is lost too.
        """
        self.finishes.clear()
        self.moving = []
        for rank in self.ranks:
            if rank.running or rank.swapped or rank.kept.blocks:
                rank.forget(self.k)
                self.count(rank, NEVER)
                self.touch(rank)
        self.record()

    def flush_cache(self) -> None:
        """Drop the contexts that are kept for samples that may come back."""
        if self.keeps:
            self.settle()
            for rank in self.ranks:
                rank.kept.clear()

    def holds(self, wanted: set[int] | None) -> bool:
        """Whether any of these samples (None: any at all) waits or runs here."""
        self.settle()
        if wanted is None:
            return self.load > 0
        return any(
            not wanted.isdisjoint(rank.running) or any(request.id in wanted for request in rank.waiting)
            for rank in self.ranks
        )

    def remove(self, wanted: set[int] | None) -> list[Request]:
        """Take samples out (None: all of them). Only at a standstill."""
        gone: list[Request] = []
        for rank in self.ranks:
            lost = [r for r in (*rank.running.values(), *rank.waiting) if wanted is None or r.id in wanted]
            if not lost:
                continue
            rank.prune(self.k)
            for request in lost:
                if request.id in rank.running:
                    self.finishes.drop(request)
                    rank.take_out(request, self.k)
                else:
                    rank.unswap(request)
            ids = {request.id for request in lost}
            rank.waiting = deque(request for request in rank.waiting if request.id not in ids)
            rank.blocked = False  # what blocked it may be gone
            self.count(rank, rank.safe_until())
            self.touch(rank)
            gone += lost
        self.record()
        return gone

    def clear(self) -> None:
        """Nothing runs on any rank any more."""
        self.finishes.clear()
        for rank in self.ranks:
            rank.clear()
            self.count(rank, NEVER)

    @property
    def load(self) -> int:
        """Samples that wait or run here."""
        return sum(rank.load for rank in self.ranks)

    def record(self) -> None:
        """Enter the present batch into the timeline."""
        self.settle()
        line = self.timeline
        if self._iteration and self._iteration.taken_over:
            line.add(self.t, self.running, line.kv_tokens[-1])
        else:
            line.add(self.t, self.running, self.batch * self.k + self.contexts)

    # --- decide -----------------------------------------------------------------------------------

    def plan(self, alone: bool = False) -> None:
        """At boundary k: preempt, admit, choose the next stretch. `alone`: nobody reacts to what is done."""
        schedule = self._schedule
        if schedule:
            if not self._touched and schedule.next < len(schedule.times):
                self.end = schedule.times[schedule.next]
                return
            if schedule.next == len(schedule.times):
                self._ahead = min(2 * self._ahead, FARTHEST)
            self.settle()
        k = self.k
        if self.safe <= k:
            self._check_kv(k + 1)
        if self._touched:
            touched, self._touched, self.prefilling = self._touched, [], []
            for rank in touched:
                self._decide(rank, k)
        line = self.timeline
        line.time.append(self.t)
        line.running.append(self.running)
        line.kv_tokens.append(self.batch * k + self.contexts)
        if self.prefilling or (self.moving and self.batch):
            self._plan_mixed(k)
        elif self.batch and not self._look_ahead(alone):
            self._steps = self._plan_jump(k, self.t)
            self._quiet += 1

    def touch(self, rank: Rank) -> None:
        if not rank.touched:
            rank.touched = True
            self._touched.append(rank)

    def _decide(self, rank: Rank, k: int) -> None:
        """A rank with changes, at boundary k: preempt the youngest until this iteration's growth fits; else admit."""
        rank.touched = preempted = False
        safe = rank.safe_until()
        if safe <= k:
            preempted = self._preempt(rank, k)
            safe = rank.safe_until()
        if rank.waiting and not preempted and len(rank.running) < rank.slots:
            chunked = self.surface.chunked_prefill
            budget = self.budget - rank.b if chunked else self.budget
            for request in rank.prefilling:
                budget -= request.todo
            ready = rank.admit(k, budget, self.t, self.share, not chunked)
            if not rank.running:
                raise RuntimeError(_too_long(rank.waiting[0], rank))
            if ready:
                for request in ready:
                    self.finishes.add(request)
                safe = rank.safe_until()
            if self.keeps:
                self.stats.reused_tokens += rank.reused
                self.stats.evicted_tokens += rank.evicted
                rank.reused = rank.evicted = 0
        if rank.prefilling:
            self.prefilling.append(rank)  # it is decided on again after the next iteration
        if rank.moved and rank not in self.moving:
            self.moving.append(rank)
        self.count(rank, safe)

    def _preempt(self, rank: Rank, k: int) -> bool:
        """Move the youngest to the front of the queue until this iteration's growth fits; whether that took any."""
        before = self.stats.preemptions
        while rank.held(k + 1) > rank.capacity:
            youngest = next(reversed(rank.running.values()))
            if len(rank.running) == 1:
                raise RuntimeError(_too_long(youngest, rank))
            rank.kept.clear()  # running sequences have taken its blocks
            self.finishes.drop(youngest)
            self.stats.swapped_tokens += rank.preempt(youngest, k)
            self.stats.preemptions += 1
        return self.stats.preemptions > before

    def count(self, rank: Rank, safe: int) -> None:
        """Take a rank's present batch into the engine's totals, its pace and its KV limit."""
        rank.safe = safe
        if self.many is None:
            self.batch, self.contexts, self.running, self.safe = rank.b, rank.contexts, len(rank.running), safe
            return
        if safe < self.safe:
            self.safe = safe
        b, contexts, running = rank.counted
        rank.counted = (rank.b, rank.contexts, len(rank.running))
        self.running += len(rank.running) - running
        if rank.contexts != contexts or rank.b != b:
            self.batch += rank.b - b
            self.contexts += rank.contexts - contexts
            self.many.changed(rank, self.k)

    def _check_kv(self, stop: int) -> None:
        """Find out which ranks' KV blocks run out before iteration `stop`, and touch those where they do now."""
        k = self.k
        for rank in self.ranks:
            if rank.safe < stop:
                rank.safe = rank.exhausted_at(k)
                if rank.safe <= k:
                    self.touch(rank)
        self.safe = min(rank.safe for rank in self.ranks)

    def _plan_mixed(self, k: int) -> None:
        """One iteration with prompt tokens or swaps; and the jump that follows if nothing is to be decided between."""
        self._quiet, self._ahead = 0, NEAREST
        iteration = self._iteration = compose(self, k)
        self._steps = 1
        first = (self.t, 1, iteration.seconds, 0.0)
        self.end = end = self.t + iteration.seconds
        if ends_all_prompts(self, iteration):
            after = k + 1 if iteration.decodes else k
            take_over(self, iteration, after)
            self._steps += self._plan_jump(after, end)
            self._pieces.insert(0, first)
            self._quiet = 1
        else:
            self._pieces = [first]

    def _plan_jump(self, start: int, t: float) -> int:
        """Pure decode from iteration `start` at time t until the next batch change: a finish, or KV blocks run out.

        Returns the iterations.
        """
        stop = self.finishes.first()
        if self.safe < stop:
            self._check_kv(stop)
            stop = min(stop, self.safe)
        if stop <= start:
            self._pieces = []
            return 0
        self._pieces, self.end = self.pace.pieces(start, stop, t, self.rows.joint[self.batch])
        return stop - start

    # --- many finishes ahead ----------------------------------------------------------------------

    def _look_ahead(self, alone: bool) -> bool:
        """Plan many finishes at once if nothing waits, all of them if nobody reacts; whether that was possible."""
        if alone and can_run_out(self):
            schedule = look_ahead(self)
        elif self._quiet < QUIET or any(rank.waiting for rank in self.ranks):
            return False
        else:
            schedule = look_ahead(self, self._ahead)
        if not schedule:
            return False
        self._schedule, self.end = schedule, schedule.times[0]
        return True

    def settle(self) -> None:
        """Take over what has been played of a schedule; what has not is planned as a plain jump."""
        schedule = self._schedule
        if not schedule:
            return
        self._schedule = None
        account(self, schedule)
        if schedule.next == len(self.finishes.at) and not self.keeps:
            for finished in schedule.finished:
                for request in finished:
                    request.finish = NOT_RUNNING
            self.clear()
            return
        end_played(self, schedule)
        if self.end < inf:
            self._steps = self._plan_jump(self.k, self.t)
            self.end = schedule.times[schedule.next]  # the fleet knows it by this

    # --- play -------------------------------------------------------------------------------------

    def run(self, last: float, present: float) -> list[Completion]:
        """Play all boundaries up to `last` and plan before `present`, while nobody reacts to what is done."""
        done: list[Completion] = []
        while self.end <= last and self.end < inf:
            schedule = self._schedule
            if schedule:
                begin, end = schedule.next, bisect_right(schedule.times, last)
                for time, finished in zip(schedule.times[begin:end], schedule.finished[begin:end], strict=True):
                    for request in finished:
                        request.done = request.response
                        done.append(Completion(time, request))
                schedule.next = end
                self.k, self.t, self.end = schedule.ends[end - 1], schedule.times[end - 1], inf
            else:
                finished = self.play()
                if len(finished) > 1:
                    finished.sort(key=attrgetter("id"))
                for request in finished:
                    done.append(Completion(self.t, request))
            if self.t < present:
                self.plan(alone=True)
        return done

    def play(self) -> list[Request]:
        """Finish the planned stretch; returns the samples that are done at its end. `plan` comes next."""
        schedule = self._schedule
        if schedule:
            i = schedule.next
            schedule.next = i + 1
            self.k, self.t, self.end = schedule.ends[i], schedule.times[i], inf
            for request in schedule.finished[i]:
                request.done = request.response
            return schedule.finished[i]
        n, end, batch, stats, iteration = self._steps, self.end, self.batch, self.stats, self._iteration
        if iteration:
            done = self._play_iteration(iteration, n)
            n -= 1
        else:
            done = []
        if n:
            seconds = end - self.t
            stats.iterations += n
            stats.busy_seconds += seconds
            stats.batch_seconds += batch * seconds
            stats.generated_tokens += batch * n
            self.k += n
        stats.jumps += 1
        self.t, self.end = end, inf
        k = self.k
        if self.batch and self.finishes.heap[0] <= k:
            for request in self.finishes.pop(k):
                rank = request.rank
                request.done = request.response
                if rank.kept.blocks:
                    rank.prune(k)
                rank.end_decode(request)
                if not rank.touched:
                    rank.touched = True
                    self._touched.append(rank)
                done.append(request)
        if self.keeps:
            self.keep(done, k)
        return done

    def _play_iteration(self, iteration: Iteration, n: int) -> list[Request]:
        """Finish the iteration that the planned stretch, of n, begins with; returns the samples that are done."""
        stats, decodes, seconds, before = self.stats, iteration.decodes, iteration.seconds, iteration.taken_over
        self.t += seconds
        stats.iterations += 1
        stats.busy_seconds += seconds
        stats.batch_seconds += decodes * seconds
        stats.prefill_tokens += iteration.tokens
        stats.prefill_seconds += iteration.prefill_seconds
        stats.generated_tokens += decodes + len(iteration.chunks) if before else decodes
        if iteration.again:
            stats.reprefilled_tokens += iteration.again
            stats.reprefill_seconds += iteration.prefill_seconds * (iteration.again / iteration.tokens)
        if self.moving:
            stats.swap_seconds += iteration.swap_seconds
            for rank in self.moving:
                rank.moved = 0
            self.moving = []
        if decodes:
            self.k += 1
        self._iteration = None
        if not before:
            return end_chunks(self, iteration, self.k)
        if n > 1:
            line = self.timeline
            line.time.append(self.t)
            line.running.append(self.running)
            line.kv_tokens.append(self.batch * self.k + self.contexts)
        return []

    # --- inside -----------------------------------------------------------------------------------

    def keep(self, done: list[Request], k: int) -> None:
        """Of samples that end at boundary k, the prefix caches keep the contexts that are to be kept."""
        left = sorted((request for request in done if request.keep), key=attrgetter("id"))
        for request in left:
            request.rank.keep(request)
        for request in left:
            request.rank.prune(k)

    def _cut(self, steps: int) -> None:
        """Plan the first iterations of the planned stretch only."""
        if steps < self._steps:
            kept = first_of(self._pieces, steps)
            self.end = boundary(kept[-1], kept[-1][1]) if kept else self.t
            if len(kept) < len(self._pieces):
                self.pace.rewind()
            self._pieces, self._steps = kept, steps


def _too_long(request: Request, rank: Rank) -> str:
    blocks = -(-(request.prompt + request.response) // rank.block)
    return (
        f"one sequence does not fit into the KV cache of its rank: sample {request.id} with {request.prompt} prompt "
        f"and {request.response} response tokens needs {blocks} blocks of {rank.block} tokens, it has {rank.capacity}"
    )
