"""One attention-DP rank of an engine: its queue, its running sequences, its KV blocks, its line on the surface.

With the batch fixed, a sequence's context grows by one per iteration. So nothing that runs is touched between batch
changes: in iteration k a sequence has context `k + request.context`, the rank's contexts sum to `b·k + contexts`, and a
sequence takes a new KV block in the iterations in which `(k + context) mod block_size` is 1 (a histogram of the offsets
modulo the block size says how many do).
"""

from __future__ import annotations

from collections import deque

from rlsim.sim.request import NOT_RUNNING, Request

NEVER = 1 << 62


class Rank:
    """State of one rank. Everything counted is an integer.

    running      all that hold a slot, in the order of admission, those being prefilled too
    prefilling   the ones with prompt tokens to do, in order
    b            sequences that decode
    contexts     sum of their `context`
    offsets      how many of them have context = i modulo the block size
    used, used_at  KV blocks held before iteration `used_at`
    members      per group: how many of its samples hold a slot (they share the prompt's full blocks)
    blocked      whether the head of the queue found no room when it was last looked at
    alpha, slope, knot  the rank's seconds in iteration k are alpha + slope·k, until iteration `knot`
    """

    __slots__ = (
        "alpha",
        "b",
        "blocked",
        "block",
        "capacity",
        "contexts",
        "knot",
        "members",
        "offsets",
        "prefilling",
        "running",
        "slope",
        "slots",
        "used",
        "used_at",
        "waiting",
    )

    def __init__(self, slots: int, capacity_tokens: int, block: int) -> None:
        self.slots = slots
        self.block = block
        self.capacity = capacity_tokens // block
        self.waiting: deque[Request] = deque()
        self.running: dict[int, Request] = {}
        self.prefilling: list[Request] = []
        self.b = 0
        self.contexts = 0
        self.offsets = [0] * block
        self.used = 0
        self.used_at = 0
        self.members: dict[int, int] = {}
        self.blocked = False
        self.alpha = -1.0
        self.slope = 0.0
        self.knot = NEVER

    @property
    def load(self) -> int:
        """Samples that wait or run here."""
        return len(self.waiting) + len(self.running)

    def clear(self, k: int) -> None:
        """Nothing runs here any more; counters stand at iteration k."""
        self.running.clear()
        self.members.clear()
        self.b = self.contexts = self.used = 0
        self.offsets = [0] * self.block
        self.used_at = k

    # --- KV blocks ----------------------------------------------------------------------------------------------------

    def need(self, k: int) -> int:
        """New blocks that the decodes of iteration k take."""
        return self.offsets[(1 - k) % self.block]

    def grow_to(self, k: int) -> None:
        """Bring `used` up to just before iteration k: every whole turn of `block` iterations takes b blocks."""
        turns, rest = divmod(k - self.used_at, self.block)
        if turns or rest:
            self.used += turns * self.b
            for i in range(k - rest, k):
                self.used += self.offsets[(1 - i) % self.block]
            self.used_at = k

    def safe_until(self, k: int) -> int:
        """An iteration up to which the decodes' growth fits for sure: whole turns of b blocks. `used` stands at k."""
        return k + (self.capacity - self.used) // self.b * self.block if self.b else NEVER

    def exhausted_at(self, k: int) -> int:
        """The first iteration from k on whose growth does not fit. `used` must stand at k, b > 0."""
        turns, free = divmod(self.capacity - self.used, self.b)
        at = k + turns * self.block
        while (need := self.offsets[(1 - at) % self.block]) <= free:
            free -= need
            at += 1
        return at

    # --- sequences come and go ------------------------------------------------------------------------------------------

    def admit(self, k: int, budget: int, now: float, share: bool) -> None:
        """Admit from the queue while there are slots, KV blocks and prompt tokens left in this iteration's budget.

        Room is left for the blocks that this iteration's decodes take.
        """
        waiting, running, block = self.waiting, self.running, self.block
        free = self.capacity - self.used - self.need(k)
        while waiting and len(running) < self.slots and budget > 0:
            request = waiting[0]
            tokens = request.prompt + request.done
            shared = request.prompt // block if share else 0
            cached = shared if request.group in self.members else 0
            blocks = -(-tokens // block) - cached
            if blocks > free:
                break
            waiting.popleft()
            free -= blocks
            self.used += blocks
            # at least the last block is computed afresh: its logits give the next token
            request.todo = tokens - min(cached, (tokens - 1) // block) * block
            request.shared = shared
            if request.start != request.start:
                request.start = now
            running[request.id] = request
            self.prefilling.append(request)
            if share:
                self.members[request.group] = self.members.get(request.group, 0) + 1
            budget -= min(budget, request.todo)
        self.blocked = bool(waiting)

    def begin_decode(self, request: Request, k: int) -> None:
        """The prompt is done and has given a token; decoding starts with iteration k."""
        request.done += 1
        request.prefilled = True
        request.context = request.prompt + request.done - k
        request.finish = k + request.response - request.done
        self.b += 1
        self.contexts += request.context
        self.offsets[request.context % self.block] += 1

    def end_decode(self, request: Request, k: int) -> None:
        """Take a decoding sequence out of the batch before iteration k; its KV is freed. `used` must stand at k."""
        request.done = request.response - (request.finish - k)
        self.b -= 1
        self.contexts -= request.context
        self.offsets[request.context % self.block] -= 1
        request.finish = NOT_RUNNING
        # its last iteration was k-1, with a context of k - 1 + context tokens
        self._release(request, k - 1 + request.context)

    def end_prefill(self, request: Request) -> None:
        """Take out a sequence whose prompt was being prefilled (or finished with it)."""
        self._release(request, request.prompt + request.done)

    def _release(self, request: Request, tokens: int) -> None:
        blocks = -(-tokens // self.block)
        if request.shared or request.group in self.members:
            left = self.members[request.group] - 1
            if left:
                self.members[request.group] = left
                blocks -= request.shared
            else:
                del self.members[request.group]
        self.used -= blocks
        del self.running[request.id]

    def take_out(self, request: Request, k: int) -> None:
        """Take a sample that holds a slot out of the batch before iteration k; its KV is lost."""
        if request.finish == NOT_RUNNING:
            self.prefilling.remove(request)
            self.end_prefill(request)
        else:
            self.end_decode(request, k)

    def preempt(self, k: int) -> None:
        """Move the youngest to the front of the queue; its KV is recomputed when it comes back."""
        request = next(reversed(self.running.values()))
        self.take_out(request, k)
        self.waiting.appendleft(request)
