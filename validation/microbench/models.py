"""The small transformer at work: training steps under FSDP2, log-probs, prefill, decode steps."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.nn import functional

from validation.microbench.setting import Setting
from validation.minigrpo.model import Cache, Config, Packed, Transformer

TINY = (Config(hidden=64, layers=2, ffn=128),)
CPU = (Config(hidden=128, layers=2), Config(vocab=1024, hidden=256, layers=4, heads=8, kv_heads=4, ffn=768))
GPU = (
    Config(vocab=32768, hidden=2048, layers=8, heads=16, kv_heads=8, ffn=8192),
    Config(vocab=32768, hidden=4096, layers=4, heads=32, kv_heads=8, ffn=14336),
)


def train_step(setting: Setting) -> Iterator[dict[str, Any]]:
    """Seconds of one optimizer step of one micro-batch: forward, backward, AdamW, under FSDP2 over all ranks."""
    mesh = init_device_mesh(setting.device.type, (setting.world,))
    for c in _configs(setting):
        for recompute in (False, True):
            model = Transformer(c, recompute).to(setting.dtype).train()
            for layer in model.model.layers:
                fully_shard(layer, mesh=mesh)
            fully_shard(model, mesh=mesh)
            optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
            for batch, sequence in _batches(setting):
                tokens, packed = torch.randint(c.vocab, (batch * sequence,)), Packed((sequence,) * batch)

                def step(model: Any = model, o: Any = optimizer, t: Any = tokens, p: Any = packed) -> None:
                    functional.cross_entropy(model(t, p).float(), t).backward()
                    o.step()
                    o.zero_grad(set_to_none=True)

                case = f"train-{c.parameters}-b{batch}-s{sequence}{'-recompute' if recompute else ''}-w{setting.world}"
                yield from setting.rows(
                    "train_step", case, setting.timed(step, together=True),
                    recompute=recompute, **_sizes(setting, c, batch, sequence),
                )  # fmt: skip


def logprob(setting: Setting) -> Iterator[dict[str, Any]]:
    """Seconds of one forward pass with the log-probabilities of the tokens."""
    for c in _configs(setting):
        model = Transformer(c).to(setting.dtype).eval()
        for batch, sequence in _batches(setting):
            tokens, packed = torch.randint(c.vocab, (batch * sequence,)), Packed((sequence,) * batch)

            @torch.no_grad()
            def work(model: Any = model, t: Any = tokens, p: Any = packed) -> None:
                model(t, p).float().log_softmax(-1).gather(-1, t[:, None])

            case = f"logprob-{c.parameters}-b{batch}-s{sequence}"
            yield from setting.rows("logprob", case, setting.timed(work), **_sizes(setting, c, batch, sequence))


def prefill(setting: Setting) -> Iterator[dict[str, Any]]:
    """Seconds to take in `batch` prompts of `sequence` tokens and keep their keys and values."""
    for c in _configs(setting):
        model = Transformer(c).to(setting.dtype).eval()
        for batch, sequence in _batches(setting):
            cache = Cache(c, batch, sequence + 1, setting.dtype)
            tokens, packed = (
                torch.randint(c.vocab, (batch * sequence,)),
                Packed((sequence,) * batch, cache, range(batch)),
            )

            @torch.no_grad()
            def work(model: Any = model, t: Any = tokens, p: Any = packed) -> None:
                model(t, p, last=True)

            sizes = {k: v for k, v in _sizes(setting, c, batch, sequence).items() if k != "micro_batch"}
            case = f"prefill-{c.parameters}-b{batch}-s{sequence}"
            yield from setting.rows("prefill", case, setting.timed(work), batch=batch, **sizes)


def decode(setting: Setting) -> Iterator[dict[str, Any]]:
    """Seconds of one decode step of `batch` running sequences with `context` tokens each."""
    for c in _configs(setting):
        model = Transformer(c).to(setting.dtype).eval()
        contexts = setting.choose((32, 128), (32, 128, 512), (512, 4096, 16384))
        for batch in setting.choose((1, 8), (1, 2, 4, 8, 16, 32), (1, 8, 32)):
            cache = Cache(c, batch, max(contexts), setting.dtype)
            tokens = torch.randint(c.vocab, (batch,))
            for context in contexts:
                at, slots = [context - 1] * batch, list(range(batch))
                seconds = setting.timed(
                    lambda model=model, t=tokens, at=at, s=slots, cache=cache: model.decode(t, at, s, cache)
                )
                case = f"decode-{c.parameters}-b{batch}-c{context}"
                yield from setting.rows(
                    "decode", case, seconds, batch=batch, context=context, **_model(setting, c)
                )  # fmt: skip


def _configs(setting: Setting) -> tuple[Config, ...]:
    found: tuple[Config, ...] = setting.choose(TINY, CPU, GPU)
    return found


def _batches(setting: Setting) -> tuple[tuple[int, int], ...]:
    """(sequences, tokens of each) of one micro-batch."""
    found: tuple[tuple[int, int], ...] = setting.choose(
        ((2, 32),), ((1, 32), (4, 32), (8, 64), (16, 64), (4, 256), (16, 128)), ((1, 2048), (8, 2048), (1, 8192))
    )
    return found


def _model(setting: Setting, c: Config) -> dict[str, Any]:
    return {
        "parameters": c.parameters, "layers": c.layers, "hidden": c.hidden, "heads": c.heads, "kv_heads": c.kv_heads,
        "ffn": c.ffn, "vocab": c.vocab, "dtype": str(setting.dtype).removeprefix("torch."),
    }  # fmt: skip


def _sizes(setting: Setting, c: Config, batch: int, sequence: int) -> dict[str, Any]:
    return {"micro_batch": batch, "sequence": sequence, "tokens": batch * sequence, **_model(setting, c)}
