"""Contexts that a rank's prefix cache keeps after their sequences have left: evictable, least recently used first."""

from __future__ import annotations


class Kept:
    """KV blocks by sample, in the order in which they were left. Blocks are evicted from the end of a context on.

    blocks     their number; what runs never waits for them
    contexts   sample -> blocks of the beginning of its context that are still there

    Each context counts whole, also the prompt that samples of a group have in common.
    """

    __slots__ = ("blocks", "contexts")

    def __init__(self) -> None:
        self.blocks = 0
        self.contexts: dict[int, int] = {}

    def leave(self, id: int, blocks: int) -> None:
        """The context of a sample stays, as the one used last."""
        self.take(id)
        if blocks:
            self.contexts[id] = blocks
            self.blocks += blocks

    def take(self, id: int) -> None:
        """The sample is back and holds its blocks itself, or they are not wanted any more."""
        self.blocks -= self.contexts.pop(id, 0)

    def shrink(self, room: int) -> None:
        """Evict until at most `room` (not negative) blocks are left."""
        contexts = self.contexts
        while self.blocks > room:
            id, blocks = next(iter(contexts.items()))
            excess = self.blocks - room
            if blocks > excess:
                contexts[id] = blocks - excess
                self.blocks -= excess
            else:
                del contexts[id]
                self.blocks -= blocks

    def clear(self) -> None:
        self.blocks = 0
        self.contexts.clear()
