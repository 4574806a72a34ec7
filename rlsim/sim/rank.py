"""One attention-DP rank of an engine: its queue, its running sequences, its KV blocks.

With the batch fixed, a sequence's context grows by one per iteration. So nothing that runs is touched between batch
changes: in iteration k a sequence has context `k + request.context`, the rank's contexts sum to `b·k + contexts`, and
the KV blocks held are a function of k: with o the `context` of a sequence, it holds ceil((k-1 + o) / block) of them
before iteration k, for which the sum of o and a histogram of o modulo the block size suffice.
"""

from __future__ import annotations

from collections import deque

from rlsim.sim.kept import Kept
from rlsim.sim.request import NOT_RUNNING, Request

NEVER = 1 << 62


class Rank:
    """State of one rank. Everything counted is an integer.

    index        number of the rank in its engine
    place        number of the rank among all that samples are routed to
    waiting      the queue
    running      all that hold a slot, in the order of admission, those being prefilled too
    prefilling   the ones with prompt tokens to do, in order
    b            sequences that decode
    contexts     sum of their `context`
    lengths      sum of their prompt and response tokens
    offsets      how many of them have `context` modulo block = i
    fixed        KV blocks of those being prefilled, less what groups save by sharing their prompts
    members      per group: how many of its samples hold a slot (they share the prompt's full blocks)
    kept         contexts in the prefix cache, in the blocks that nothing else holds; cut to them by `prune` at latest
                 before blocks are freed
    host         KV blocks that can be swapped to the host; `swapped` of them are in use
    moved        KV blocks swapped, either way, since the last iteration
    reused, evicted  prompt tokens found in `kept`, and not found there, since the engine last asked
    safe         before this iteration the decodes' growth surely fits
    touched      whether something changed since the engine last decided about it
    blocked      whether the head of the queue found no room when it was last looked at
    counted      (b, contexts, running) as the engine's totals have them
    alpha, slope, knot  its seconds in iteration k are alpha + slope·k, until iteration `knot` (see `pace`)
    """

    __slots__ = (
        "alpha",
        "b",
        "block",
        "blocked",
        "capacity",
        "contexts",
        "counted",
        "evicted",
        "fixed",
        "host",
        "index",
        "kept",
        "knot",
        "lengths",
        "members",
        "moved",
        "offsets",
        "place",
        "prefilling",
        "reused",
        "running",
        "safe",
        "slope",
        "slots",
        "swapped",
        "touched",
        "waiting",
    )

    def __init__(self, slots: int, capacity_tokens: int, block: int, index: int = 0, host_tokens: int = 0) -> None:
        self.index = index
        self.place = 0
        self.slots = slots
        self.block = block
        self.capacity = capacity_tokens // block
        self.host = host_tokens // block
        self.swapped = self.moved = self.reused = self.evicted = 0
        self.kept = Kept()
        self.waiting: deque[Request] = deque()
        self.touched = False
        self.blocked = False
        self.counted = (0, 0, 0)
        self.alpha = -1.0
        self.slope = 0.0
        self.knot = NEVER
        self.clear()

    def clear(self) -> None:
        """Nothing runs here any more."""
        self.running: dict[int, Request] = {}
        self.prefilling: list[Request] = []
        self.members: dict[int, int] = {}
        self.b = self.contexts = self.lengths = self.fixed = 0
        self.offsets = [0] * self.block
        self.safe = NEVER

    @property
    def load(self) -> int:
        """Samples that wait or run here."""
        return len(self.waiting) + len(self.running)

    # --- KV blocks --------------------------------------------------------------------------------

    def held(self, k: int) -> int:
        """KV blocks held before iteration k; those before k + 1 are what iteration k needs."""
        block, offsets = self.block, self.offsets
        turns, rest = divmod(k - 1, block)
        # with context = quotient·block + offset a sequence holds quotient + turns + 0, 1 or 2 blocks
        quotients = (self.contexts - sum([i * n for i, n in enumerate(offsets)])) // block
        twice = sum(offsets[1 - rest :]) if rest > 1 else 0
        none = 0 if rest else offsets[0]
        return self.fixed + quotients + self.b * (turns + 1) + twice - none

    def safe_until(self) -> int:
        """Before this iteration the growth surely fits: as if every last block were full but for one token."""
        b, block = self.b, self.block
        return (block * (self.capacity - self.fixed) - self.contexts) // b - block + 2 if b else NEVER

    def exhausted_at(self, k: int) -> int:
        """The first iteration from k on whose growth does not fit."""
        b, block, offsets = self.b, self.block, self.offsets
        if not b:
            return NEVER
        free = self.capacity - self.held(k)
        if free < 0:
            return k
        turns, free = divmod(free, b)
        at = k + turns * block
        while (need := offsets[(1 - at) % block]) <= free:
            free -= need
            at += 1
        return at

    # --- the prefix cache -------------------------------------------------------------------------

    def prune(self, k: int) -> None:
        """Kept contexts give way to what is held before iteration k."""
        if self.kept.blocks:
            self.kept.shrink(self.capacity - self.held(k))

    def keep(self, request: Request) -> None:
        """The context of a sample that is over stays, its full blocks (its last token never came to have KV)."""
        self.kept.leave(request.id, (request.prompt + request.response - 1) // self.block)

    def _afresh(self, request: Request) -> int:
        """Prompt tokens to prefill beside what is kept of its context; whole blocks, the last one always."""
        tokens, block = request.prompt + request.done, self.block
        found = min(request.cached // block, self.kept.contexts.get(request.id, 0))
        return tokens - min(found, -(-tokens // block) - 1) * block

    def _note_reuse(self, request: Request, spared: int) -> None:
        """A sample with an earlier turn was admitted: `spared` tokens were found beyond what its group shares."""
        self.reused += spared
        if not request.prefilled:
            block = self.block
            found = min(request.cached // block, self.kept.contexts.get(request.id, 0))
            self.evicted += (request.cached // block - found) * block

    # --- sequences come and go --------------------------------------------------------------------

    def admit(self, k: int, budget: int, now: float, share: bool, whole: bool = False) -> list[Request]:
        """Admit from the queue while there are slots, KV blocks and prompt tokens left in this iteration's budget.

        Room is left for the blocks that this iteration's decodes take. `whole`: a prompt that exceeds what is left of
        the budget waits, unless it is the first. Returns the samples whose KV is there: they decode from now on.
        """
        waiting, running, members, block, kept = self.waiting, self.running, self.members, self.block, self.kept
        free = self.capacity - self.fixed - (self.b * (k + block - 1) + self.contexts) // block
        exact = False
        if kept.blocks:
            self.prune(k)
            free, exact = self.capacity - self.held(k + 1), True
        taken = fixed = others = 0
        ready: list[Request] = []
        slots = self.slots - len(running)
        while waiting and slots and budget > 0:
            request = waiting[0]
            tokens = todo = request.prompt + request.done
            blocks = -(-tokens // block)
            common = 0
            if share:
                others = members.get(request.group, 0)
                if others:
                    # at least the last block is computed afresh: its logits give the next token
                    common = request.common // block
                    todo -= min(common, blocks - 1) * block
                    blocks -= common
            if taken + blocks > free:
                if not exact:
                    free, exact = self.capacity - self.held(k + 1), True
                if taken + blocks > free:
                    break
            there = request.swapped or request.kv_ready
            spared = 0
            if request.cached and share and not there:
                spared = max(0, todo - self._afresh(request))
                todo -= spared
            if whole and todo > budget and self.prefilling and not there:
                break
            waiting.popleft()
            taken += blocks
            if request.cached and share and not there:
                self._note_reuse(request, spared)
            if kept.blocks:
                kept.take(request.id)
                kept.shrink(free - taken)
            if request.start != request.start:
                request.start = now
            running[request.id] = request
            if share:
                members[request.group] = others + 1
            slots -= 1
            if there:
                budget -= not whole
                fixed -= common  # the rest counts by its context
                self.moved += max(0, request.swapped - common)
                self.swapped -= request.swapped
                request.swapped, request.kv_ready = 0, False
                ready.append(request)
            else:
                budget -= todo
                fixed += blocks
                request.todo = todo
                self.prefilling.append(request)
        self.fixed += fixed
        self.blocked = bool(waiting)
        for request in ready:
            self._decode(request, k)
        return ready

    def chunk(self, budget: int, chunks: list[tuple[Request, int]]) -> tuple[int, int, int]:
        """Add this iteration's prompt tokens, at most `budget`, to `chunks`.

        Returns the tokens, their token-context pairs, and how many of them had been prefilled before.
        """
        tokens = pairs = again = 0
        for request in self.prefilling:
            n = todo = request.todo
            if n > budget:
                n = budget
                if n <= 0:
                    break
            # token i of the chunk attends to what lies before the chunk and to the chunk up to itself
            pairs += n * (request.prompt + request.done - todo) + n * (n + 1) // 2
            tokens += n
            budget -= n
            if request.prefilled:
                again += n
            chunks.append((request, n))
        return tokens, pairs, again

    def begin_decode(self, request: Request, k: int) -> None:
        """The prompt is done and has given a token; decoding starts with iteration k."""
        self.fixed -= -(-(request.prompt + request.done) // self.block)
        request.done += 1
        self._decode(request, k)

    def _decode(self, request: Request, k: int) -> None:
        """A sample with the KV of all its tokens but the latest decodes from iteration k on."""
        prompt, done, response = request.prompt, request.done, request.response
        context = request.context = prompt + done - k
        request.finish = k + response - done
        self.b += 1
        self.contexts += context
        self.lengths += prompt + response
        self.offsets[context % self.block] += 1

    def undo_prefill(self, request: Request, todo: int) -> None:
        """As `begin_decode` had not been: `todo` tokens of its prompt are still to do."""
        self._end_decode(request)
        request.done -= 1
        request.todo = todo
        self.fixed += -(-(request.prompt + request.done) // self.block)
        self.prefilling.append(request)

    def end_decode(self, request: Request) -> None:
        """Take a decoding sequence out of the batch; its KV is freed."""
        self._end_decode(request)
        self._leave(request)

    def _end_decode(self, request: Request) -> None:
        context = request.context
        request.finish = NOT_RUNNING
        self.b -= 1
        self.contexts -= context
        self.lengths -= request.prompt + request.response
        self.offsets[context % self.block] -= 1

    def end_prefill(self, request: Request) -> None:
        """Take out a sequence whose prompt was being prefilled, or that is over with it."""
        self.fixed += -(request.prompt + request.done) // self.block
        self._leave(request)

    def _leave(self, request: Request) -> None:
        del self.running[request.id]
        members, group = self.members, request.group
        holders = members.get(group, 0)
        if holders > 1:
            members[group] = holders - 1
            self.fixed += request.common // self.block
        elif holders:
            del members[group]

    def take_out(self, request: Request, k: int) -> None:
        """Take a sample that holds a slot out of the batch before iteration k; its KV is lost."""
        if request.finish == NOT_RUNNING:
            self.prefilling.remove(request)
            self.end_prefill(request)
        else:
            request.done = request.response - (request.finish - k)
            request.prefilled = True
            self.end_decode(request)

    def preempt(self, request: Request, k: int) -> int:
        """Take it out and to the front of the queue. Returns the tokens whose KV goes to the host.

        A sample that decodes is swapped, all its blocks, if the host has room for them.
        """
        decodes = request.finish != NOT_RUNNING
        self.take_out(request, k)
        self.waiting.appendleft(request)
        tokens = request.prompt + request.done - 1
        blocks = -(-tokens // self.block)
        if not decodes or self.swapped + blocks > self.host:
            return 0
        request.swapped = blocks
        self.swapped += blocks
        self.moved += blocks
        return tokens

    def unswap(self, request: Request) -> None:
        """A sample that waits loses what it has at the host."""
        self.swapped -= request.swapped
        request.swapped = 0

    def forget(self, k: int) -> None:
        """All that holds a slot loses its KV before iteration k, and goes to the front of the queue, oldest first."""
        for request in self.waiting:
            self.unswap(request)
        self.moved = 0
        self.kept.clear()
        for request in self.running.values():
            if request.finish != NOT_RUNNING:
                request.done = request.response - (request.finish - k)
                request.finish = NOT_RUNNING
                request.prefilled = True
        self.waiting.extendleft(reversed(self.running.values()))
        self.clear()
