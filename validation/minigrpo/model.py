"""A small decoder-only transformer (GQA, RMSNorm, rotary, gated MLP) with Hugging Face's Llama names.

One set of weights, two uses: `forward` over packed sequences (training, log-probs, prefill) and `decode`, one token for
each of a batch of running sequences against a cache with static slots (continuous batching).
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.utils.checkpoint import checkpoint


@dataclass(frozen=True)
class Config:
    """Architecture; `head_dim` = hidden / heads."""

    vocab: int = 64
    hidden: int = 128
    layers: int = 2
    heads: int = 4
    kv_heads: int = 2
    ffn: int = 256
    rope_theta: float = 10000.0
    eps: float = 1e-6

    @property
    def head_dim(self) -> int:
        return self.hidden // self.heads

    @property
    def parameters(self) -> int:
        """Weights, the untied head and the norms included."""
        attention = self.hidden * self.head_dim * 2 * (self.heads + self.kv_heads)
        layer = attention + 3 * self.hidden * self.ffn + 2 * self.hidden
        return self.layers * layer + 2 * self.vocab * self.hidden + self.hidden

    def hf(self) -> dict[str, object]:
        """The same as a Hugging Face config.json of a Llama."""
        return {
            "architectures": ["LlamaForCausalLM"],
            "model_type": "llama",
            "vocab_size": self.vocab,
            "hidden_size": self.hidden,
            "num_hidden_layers": self.layers,
            "num_attention_heads": self.heads,
            "num_key_value_heads": self.kv_heads,
            "head_dim": self.head_dim,
            "intermediate_size": self.ffn,
            "hidden_act": "silu",
            "max_position_embeddings": 4096,
            "rms_norm_eps": self.eps,
            "rope_theta": self.rope_theta,
            "tie_word_embeddings": False,
            "torch_dtype": "bfloat16",
        }


def config_of(file: Path | str) -> Config:
    """From a Hugging Face config.json of a Llama."""
    c = json.loads(Path(file).read_text())
    return Config(
        vocab=c["vocab_size"],
        hidden=c["hidden_size"],
        layers=c["num_hidden_layers"],
        heads=c["num_attention_heads"],
        kv_heads=c["num_key_value_heads"],
        ffn=c["intermediate_size"],
        rope_theta=c["rope_theta"],
        eps=c["rms_norm_eps"],
    )


class Cache:
    """Keys and values of the sequences in the slots: Tensor[layers, slots, kv_heads, max_tokens, head_dim] each."""

    def __init__(self, config: Config, slots: int, max_tokens: int, dtype: torch.dtype = torch.float32) -> None:
        shape = (config.layers, slots, config.kv_heads, max_tokens, config.head_dim)
        self.keys, self.values = torch.zeros(shape, dtype=dtype), torch.zeros(shape, dtype=dtype)

    @property
    def nbytes(self) -> int:
        return 2 * self.keys.nbytes


@dataclass(frozen=True)
class Packed:
    """Which sequences stand one after another in a forward pass, and where prefill keeps their keys and values."""

    lengths: Sequence[int]
    cache: Cache | None = None
    slots: Sequence[int] = ()


@dataclass(frozen=True)
class Batch:
    """One iteration of an engine: positions and slots of the running sequences, and prompts beside them."""

    at: Sequence[int]
    slots: Sequence[int]
    cache: Cache
    prompts: Packed | None = None


class RMSNorm(nn.Module):
    def __init__(self, size: int, eps: float) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(size))
        self.eps = eps

    def forward(self, x: Tensor) -> Tensor:
        return functional.rms_norm(x, self.weight.shape, self.weight, self.eps)


class Attention(nn.Module):
    def __init__(self, c: Config, layer: int) -> None:
        super().__init__()
        self.c, self.layer = c, layer
        self.q_proj = nn.Linear(c.hidden, c.heads * c.head_dim, bias=False)
        self.k_proj = nn.Linear(c.hidden, c.kv_heads * c.head_dim, bias=False)
        self.v_proj = nn.Linear(c.hidden, c.kv_heads * c.head_dim, bias=False)
        self.o_proj = nn.Linear(c.heads * c.head_dim, c.hidden, bias=False)

    def _qkv(self, x: Tensor, turn: tuple[Tensor, Tensor]) -> tuple[Tensor, Tensor, Tensor]:
        """[tokens, heads, head_dim] each, queries and keys turned."""
        n, d = len(x), self.c.head_dim
        q, k = self.q_proj(x).view(n, -1, d), self.k_proj(x).view(n, -1, d)
        return rotate(q, turn), rotate(k, turn), self.v_proj(x).view(n, -1, d)

    def forward(self, x: Tensor, turn: tuple[Tensor, Tensor], packed: Packed) -> Tensor:
        return self.o_proj(self._whole(*self._qkv(x, turn), packed))

    def decode(self, x: Tensor, turn: tuple[Tensor, Tensor], batch: Batch) -> Tensor:
        """x: [tokens, hidden], the running sequences' tokens first, then those of the prompts."""
        q, k, v = self._qkv(x, turn)
        b = len(batch.slots)
        found = [self._newest(q[:b], k[:b], v[:b], batch)] if b else []
        if batch.prompts is not None:
            found.append(self._whole(q[b:], k[b:], v[b:], batch.prompts))
        return self.o_proj(torch.cat(found))

    def _whole(self, q: Tensor, k: Tensor, v: Tensor, packed: Packed) -> Tensor:
        """Causal attention of packed sequences among themselves, [tokens, heads · head_dim]."""
        found, at = [], 0
        for i, n in enumerate(packed.lengths):
            part = [t[at : at + n].transpose(0, 1).unsqueeze(0) for t in (q, k, v)]  # [1, heads, n, head_dim]
            if packed.cache is not None:
                packed.cache.keys[self.layer, packed.slots[i], :, :n] = part[1][0]
                packed.cache.values[self.layer, packed.slots[i], :, :n] = part[2][0]
            out = functional.scaled_dot_product_attention(*part, is_causal=True, enable_gqa=True)
            found.append(out[0].transpose(0, 1).reshape(n, -1))
            at += n
        return torch.cat(found)

    def _newest(self, q: Tensor, k: Tensor, v: Tensor, batch: Batch) -> Tensor:
        """Attention of each running sequence's newest token to its own context, [batch, heads · head_dim]."""
        groups = self.c.heads // self.c.kv_heads
        q = q.view(len(q), self.c.kv_heads, groups, self.c.head_dim) * self.c.head_dim**-0.5
        keys, values = batch.cache.keys[self.layer], batch.cache.values[self.layer]
        found = torch.empty_like(q)
        # one sequence after another: the work is that of its own context, whatever the others have
        for i, (slot, n) in enumerate(zip(batch.slots, batch.at, strict=True)):
            keys[slot, :, n], values[slot, :, n] = k[i], v[i]
            score = torch.bmm(q[i], keys[slot, :, : n + 1].transpose(1, 2)).softmax(-1)
            torch.bmm(score, values[slot, :, : n + 1], out=found[i])
        return found.view(len(q), -1)


class MLP(nn.Module):
    def __init__(self, c: Config) -> None:
        super().__init__()
        self.gate_proj = nn.Linear(c.hidden, c.ffn, bias=False)
        self.up_proj = nn.Linear(c.hidden, c.ffn, bias=False)
        self.down_proj = nn.Linear(c.ffn, c.hidden, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        return self.down_proj(functional.silu(self.gate_proj(x)) * self.up_proj(x))


class Layer(nn.Module):
    def __init__(self, c: Config, layer: int) -> None:
        super().__init__()
        self.input_layernorm = RMSNorm(c.hidden, c.eps)
        self.self_attn = Attention(c, layer)
        self.post_attention_layernorm = RMSNorm(c.hidden, c.eps)
        self.mlp = MLP(c)

    def forward(self, x: Tensor, turn: tuple[Tensor, Tensor], packed: Packed) -> Tensor:
        x = x + self.self_attn(self.input_layernorm(x), turn, packed)
        return x + self.mlp(self.post_attention_layernorm(x))

    def decode(self, x: Tensor, turn: tuple[Tensor, Tensor], batch: Batch) -> Tensor:
        x = x + self.self_attn.decode(self.input_layernorm(x), turn, batch)
        return x + self.mlp(self.post_attention_layernorm(x))


class Decoder(nn.Module):
    """What Hugging Face calls `model`: everything but the head."""

    def __init__(self, c: Config) -> None:
        super().__init__()
        self.embed_tokens = nn.Embedding(c.vocab, c.hidden)
        self.layers = nn.ModuleList(Layer(c, i) for i in range(c.layers))
        self.norm = RMSNorm(c.hidden, c.eps)


class Transformer(nn.Module):
    """Tokens to logits. `recompute` keeps only the layers' inputs for the backward pass."""

    def __init__(self, config: Config, recompute: bool = False) -> None:
        super().__init__()
        self.config, self.recompute = config, recompute
        self.model = Decoder(config)
        self.lm_head = nn.Linear(config.hidden, config.vocab, bias=False)

    def forward(self, tokens: Tensor, packed: Packed, last: bool = False) -> Tensor:
        """Logits [tokens, vocab] of packed sequences (int64[sum of lengths]); `last`: of each one's last token only.

        A cache in `packed` takes the keys and values: prefill.
        """
        at = torch.cat([torch.arange(n) for n in packed.lengths])
        turn = angles(at, self.config)
        x = self.model.embed_tokens(tokens)
        for layer in self.model.layers:
            if self.recompute and self.training and torch.is_grad_enabled():
                x = checkpoint(layer, x, turn, packed, use_reentrant=False)
            else:
                x = layer(x, turn, packed)
        if last:
            x = x[torch.tensor(packed.lengths).cumsum(0) - 1]
        return self.lm_head(self.model.norm(x))

    @torch.no_grad()
    def decode(
        self,
        tokens: Tensor,
        at: Sequence[int],
        slots: Sequence[int],
        cache: Cache,
        prompts: Packed | None = None,
    ) -> Tensor:
        """Logits [batch + prompts, vocab] after one more token for each running sequence, and after each prompt.

        tokens   int64[batch + prompt tokens]: the newest token of each, not yet in the cache; then the prompts'
        at       its position; slots: where each sequence lives
        prompts  sequences that are prefilled in the same pass
        """
        places = [torch.tensor(at, dtype=torch.int64)]
        if prompts is not None:
            places += [torch.arange(n) for n in prompts.lengths]
        turn = angles(torch.cat(places), self.config)
        batch = Batch(at, slots, cache, prompts)
        x = self.model.embed_tokens(tokens)
        for layer in self.model.layers:
            x = layer.decode(x, turn, batch)
        if prompts is not None:
            ends = len(slots) + torch.tensor(prompts.lengths).cumsum(0) - 1
            x = torch.cat([x[: len(slots)], x[ends]])
        return self.lm_head(self.model.norm(x))


def angles(at: Tensor, c: Config) -> tuple[Tensor, Tensor]:
    """(cosines, sines) [tokens, 1, head_dim / 2] of the positions."""
    rate = c.rope_theta ** (-torch.arange(0, c.head_dim, 2) / c.head_dim)
    angle = at[:, None, None] * rate
    return angle.cos(), angle.sin()


def rotate(x: Tensor, turn: tuple[Tensor, Tensor]) -> Tensor:
    """Rotary embedding, halves as Hugging Face pairs them; x [tokens, heads, head_dim]."""
    a, b = x.chunk(2, -1)
    cos, sin = turn
    return torch.cat((a * cos - b * sin, b * cos + a * sin), -1).to(x.dtype)
