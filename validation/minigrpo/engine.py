"""The rollout engine: KV cache in slots, continuous batching, log-probs of what it sampled.

An iteration is one forward pass: a token of every running sequence, and the prompts of those that were just admitted.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import torch
from torch import Tensor

from validation.minigrpo.model import Cache, Config, Packed, Transformer
from validation.minigrpo.task import END, Request, Sample


@dataclass
class UnderWay:
    """A sample under way: what it has so far, and the random numbers of its whole length, [length, vocab]."""

    request: Request
    noise: Tensor
    began: int
    slot: int = -1
    response: list[int] = field(default_factory=list)
    logprobs: list[float] = field(default_factory=list)

    @property
    def tokens(self) -> tuple[int, ...]:
        return (*self.request.prompt, *self.response)


class Engine:
    """State of one engine. `version` counts the weights it was given."""

    def __init__(self, config: Config, slots: int, max_tokens: int) -> None:
        self.config, self.slots, self.max_tokens = config, slots, max_tokens
        self.model = Transformer(config).requires_grad_(False)
        self.version = 0
        self.waiting: deque[UnderWay] = deque()
        self.running: list[UnderWay] = []
        self.wake()

    def wake(self) -> None:
        """Memory for the cache."""
        self.cache: Cache | None = Cache(self.config, self.slots, self.max_tokens)
        self._free = list(range(self.slots))[::-1]

    def sleep(self) -> None:
        """Nothing runs: the cache is given back."""
        assert not self.running, "an engine with running sequences can't sleep"
        self.cache = None

    @property
    def busy(self) -> bool:
        return bool(self.waiting or self.running)

    def submit(self, requests: Iterable[Request]) -> None:
        for request in requests:
            stream = torch.Generator().manual_seed(request.seed)
            noise = torch.empty(request.length, self.config.vocab).exponential_(generator=stream).log()
            self.waiting.append(UnderWay(request, noise, -1))

    def load(self, weights: Mapping[str, Tensor], version: int) -> None:
        """New weights by Hugging Face names, in whatever dtype they travelled; computing is in fp32."""
        for name, parameter in self.model.named_parameters():
            parameter.copy_(weights[name])
        self.version = version

    def interrupt(self) -> None:
        """All that runs goes back to the head of the queue with what it generated; its cache is forgotten."""
        for one in reversed(self.running):
            self._free.append(one.slot)
            self.waiting.appendleft(one)
        self.running = []

    def step(self) -> list[Sample]:
        """One iteration; returns the samples that it finished."""
        assert self.cache is not None, "the engine sleeps"
        running, admitted = self.running, self._admit()
        tokens = [one.response[-1] for one in running]
        at = [len(one.request.prompt) + len(one.response) - 1 for one in running]
        contexts = [one.tokens for one in admitted]
        prompts = None
        if admitted:
            tokens += [token for context in contexts for token in context]
            prompts = Packed([len(c) for c in contexts], self.cache, [one.slot for one in admitted])
        slots = [one.slot for one in running]
        logits = self.model.decode(torch.tensor(tokens), at, slots, self.cache, prompts)
        self.running = [*running, *admitted]
        self._sample(logits)
        return self._finished()

    def _admit(self) -> list[UnderWay]:
        admitted = []
        while self.waiting and self._free:
            one = self.waiting.popleft()
            one.slot = self._free.pop()
            if one.began < 0:
                one.began = self.version
            admitted.append(one)
        return admitted

    def _sample(self, logits: Tensor) -> None:
        """The Gumbel trick on each sequence's own numbers: what runs beside it makes no difference."""
        logp = token_logprobs(logits)
        noise = torch.stack([one.noise[len(one.response)] for one in self.running])
        chosen = (logp - noise).argmax(1)
        found = logp.gather(1, chosen[:, None])[:, 0]
        for one, token, value in zip(self.running, chosen.tolist(), found.tolist(), strict=True):
            if len(one.response) + 1 == one.request.length:
                one.response.append(END)
            else:
                one.response.append(token)
                one.logprobs.append(value)

    def _finished(self) -> list[Sample]:
        done = [one for one in self.running if len(one.response) == one.request.length]
        if done:
            self.running = [one for one in self.running if len(one.response) < one.request.length]
            self._free += [one.slot for one in done]
        return [self._sampled(one) for one in done]

    def _sampled(self, one: UnderWay) -> Sample:
        logprobs = np.array(one.logprobs, np.float32)
        return Sample(one.request.id, one.request.prompt, tuple(one.response), logprobs, (one.began, self.version))


def token_logprobs(logits: Tensor) -> Tensor:
    """Log-probabilities [n, vocab] of a policy that never ends a response by itself."""
    logits = logits.clone()
    logits[:, END] = -torch.inf
    return logits.log_softmax(-1)


def one_by_one(engine: Engine, requests: Sequence[Request]) -> list[Sample]:
    """Every request alone, one after another."""
    found = []
    for request in requests:
        engine.submit([request])
        while engine.busy:
            found += engine.step()
    return found
