"""One set of weights, three paths: packed, prefill and decode give the same logits."""

from __future__ import annotations

import torch

from validation.minigrpo.model import Cache, Config, Packed, Transformer

torch.set_num_threads(1)  # such small tensors are slower on several
SMALL = Config(vocab=64, hidden=32, layers=2, heads=4, kv_heads=2, ffn=48)


def test_decode_after_prefill_gives_the_logits_of_a_whole_forward() -> None:
    torch.manual_seed(0)
    model = Transformer(SMALL)
    assert SMALL.parameters == sum(p.numel() for p in model.parameters())
    a, b = torch.randint(0, 64, (12,)), torch.randint(0, 64, (9,))
    with torch.no_grad():
        packed = model(torch.cat([a, b]), Packed([12, 9]))
        cache = Cache(SMALL, slots=4, max_tokens=16)
        first = model(torch.cat([a[:5], b[:3]]), Packed([5, 3], cache, [3, 1]), last=True)
        torch.testing.assert_close(first, packed[[4, 12 + 2]])
        for step in range(6):
            at = [5 + step, 3 + step]
            logits = model.decode(torch.stack([a[at[0]], b[at[1]]]), at, [3, 1], cache)
            torch.testing.assert_close(logits, packed[[at[0], 12 + at[1]]], atol=1e-5, rtol=1e-4)


def test_recompute_changes_no_gradient() -> None:
    torch.manual_seed(0)
    kept, again = Transformer(SMALL), Transformer(SMALL, recompute=True)
    again.load_state_dict(kept.state_dict())
    tokens = torch.randint(0, 64, (10,))
    for model in (kept, again):
        model(tokens, Packed([6, 4])).square().mean().backward()
    for p, q in zip(kept.parameters(), again.parameters(), strict=True):
        torch.testing.assert_close(p.grad, q.grad)


def test_prompts_beside_running_sequences() -> None:
    torch.manual_seed(0)
    model = Transformer(SMALL)
    a, b = torch.randint(0, 64, (6,)), torch.randint(0, 64, (9,))
    with torch.no_grad():
        alone = model(torch.cat([a, b]), Packed([6, 9]))
        cache = Cache(SMALL, slots=2, max_tokens=16)
        model(a[:5], Packed([5], cache, [1]))
        both = model.decode(torch.cat([a[5:], b]), [5], [1], cache, Packed([9], cache, [0]))
    torch.testing.assert_close(both, alone[[5, 14]], atol=1e-5, rtol=1e-4)
