"""Continuous batching changes nothing but the time; log-probs are those of the model."""

from __future__ import annotations

import numpy as np
import torch

from validation.minigrpo.engine import Engine, one_by_one, token_logprobs
from validation.minigrpo.model import Config, Packed
from validation.minigrpo.task import END, Request, Sample

torch.set_num_threads(1)  # such small tensors are slower on several
SMALL = Config(vocab=16, hidden=32, layers=2, heads=4, kv_heads=2, ffn=48)
REQUESTS = [Request(i, tuple(range(1, 3 + i % 4)), 2 + 3 * i % 17, 100 + i) for i in range(20)]


def engine(slots: int = 5) -> Engine:
    torch.manual_seed(0)
    return Engine(SMALL, slots, max_tokens=32)


def together(one: Engine) -> tuple[list[Sample], int]:
    """Samples in the order of their numbers, and the iterations they took."""
    found, iterations = [], 0
    while one.busy:
        found += one.step()
        iterations += 1
    return sorted(found, key=lambda sample: sample.id), iterations


def test_continuous_batching_gives_the_tokens_of_one_by_one() -> None:
    alone = one_by_one(engine(), REQUESTS)
    batched = engine()
    batched.submit(REQUESTS)
    found, iterations = together(batched)
    assert [s.response for s in found] == [s.response for s in alone]
    for a, b in zip(found, alone, strict=True):
        np.testing.assert_allclose(a.logprobs, b.logprobs, atol=1e-5)
    # as many at a time as there are slots: fewer iterations than tokens, and no fewer than they need
    tokens = sum(request.length for request in REQUESTS)
    assert tokens / 5 <= iterations < tokens / 3


def test_lengths_are_those_drawn_and_log_probs_those_of_a_whole_forward() -> None:
    one = engine()
    one.submit(REQUESTS)
    for sample, request in zip(together(one)[0], REQUESTS, strict=True):
        assert len(sample.response) == request.length
        assert sample.response[-1] == END
        assert END not in sample.response[:-1]
        logits = one.model(torch.tensor(sample.tokens), Packed([len(sample.tokens)]))
        whole = token_logprobs(logits)[len(sample.prompt) - 1 : -2]
        wanted = whole.gather(1, torch.tensor(sample.response[:-1])[:, None])[:, 0]
        np.testing.assert_allclose(sample.logprobs, wanted.numpy(), atol=1e-5)


def test_an_interrupted_sample_goes_on_under_the_new_weights() -> None:
    plain, cut = engine(), engine()
    plain.submit(REQUESTS)
    cut.submit(REQUESTS)
    found = []
    for _ in range(6):
        found += cut.step()
    weights = dict(cut.model.named_parameters())
    cut.load({name: p.clone() for name, p in weights.items()}, 1)  # the same weights: the same tokens
    cut.interrupt()
    rest, _ = together(cut)
    wanted, _ = together(plain)
    assert sorted(s.id for s in found + rest) == [s.id for s in wanted]
    assert {s.id: s.response for s in found + rest} == {s.id: s.response for s in wanted}
    spans = {s.versions for s in rest}
    assert {(0, 1), (1, 1)} <= spans  # cut in the middle; begun after


def test_a_sleeping_engine_has_no_cache_and_wakes_empty() -> None:
    one = engine()
    one.submit(REQUESTS[:3])
    before, _ = together(one)
    one.sleep()
    assert one.cache is None
    one.wake()
    one.submit(REQUESTS[:3])
    assert [s.response for s in together(one)[0]] == [s.response for s in before]
