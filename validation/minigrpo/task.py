"""The task: every next token is the previous one plus 1. Lengths are drawn, so that the tail is under control."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

END = 0
"""Token that ends a response: never sampled, forced at the drawn length."""


@dataclass(frozen=True)
class Request:
    """A sample to generate: `length` response tokens, the end token included; `seed` of its own random stream."""

    id: int
    prompt: tuple[int, ...]
    length: int
    seed: int


@dataclass(frozen=True)
class Sample:
    """A finished sample.

    logprobs  float32[length - 1] as the engine had them, of all response tokens but the forced end
    versions  of the weights under which it began and ended
    """

    id: int
    prompt: tuple[int, ...]
    response: tuple[int, ...]
    logprobs: np.ndarray[tuple[int], np.dtype[np.float32]]
    versions: tuple[int, int]

    @property
    def tokens(self) -> tuple[int, ...]:
        return self.prompt + self.response


def prompt(number: int, length: int, vocab: int, seed: int) -> tuple[int, ...]:
    """Prompt of a number: tokens 1 to vocab - 1 at random."""
    draw = np.random.default_rng([seed, number]).integers(1, vocab, length)
    return tuple(int(token) for token in draw)


def reward(prompt: Sequence[int], response: Sequence[int], vocab: int) -> float:
    """Share of the response's tokens, the end left out, that are the previous one plus 1 (after the last: 1)."""
    previous = np.array([prompt[-1], *response[:-2]])
    return float(np.mean(np.array(response[:-1]) == previous % (vocab - 1) + 1))
