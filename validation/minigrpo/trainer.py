"""The trainer: FSDP2 over a group of processes, log-probs and clipped updates of packed micro-batches."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import DTensor

from validation.minigrpo.engine import token_logprobs
from validation.minigrpo.loss import clipped_loss, truncated_weights
from validation.minigrpo.model import Config, Packed, Transformer

Floats = np.ndarray[tuple[int], np.dtype[np.float32]]


@dataclass(frozen=True)
class Row:
    """A sample to train on; engine and old log-probs float32[length - 1], the end token has none."""

    tokens: tuple[int, ...]
    prompt: int
    advantage: float = 0.0
    engine: Floats | None = None
    old: Floats | None = None


@dataclass(frozen=True)
class Job:
    """One rank's part of an update: its micro-batches, and the response tokens of all ranks' together."""

    micro_batches: Sequence[Sequence[Row]]
    tokens: int


class Trainer:
    """State of one rank: its shards of weights (fp32), gradients and Adam's moments."""

    def __init__(self, config: Config, mesh: DeviceMesh, seed: int, lr: float) -> None:
        torch.manual_seed(seed)  # the same whole model on every rank, of which each keeps its shards
        self.model = Transformer(config)
        for layer in self.model.model.layers:
            fully_shard(layer, mesh=mesh)
        fully_shard(self.model, mesh=mesh)
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=lr, betas=(0.9, 0.95), weight_decay=0.0)
        self.ranks = mesh.size()
        self._host: list[Tensor] = []

    @torch.no_grad()
    def logprob(self, micro_batches: Sequence[Sequence[Row]]) -> list[list[Floats]]:
        """Log-probs of the response tokens by today's weights, row by row."""
        found = []
        for rows in micro_batches:
            sizes = [len(row.tokens) - row.prompt - 1 for row in rows]
            found.append([part.numpy() for part in self._logprobs(rows).split(sizes)])
        return found

    def update(self, job: Job) -> float:
        """Gradients of all micro-batches, clipped to norm 1, one step of Adam; returns this rank's part of the loss."""
        self.optimizer.zero_grad(set_to_none=True)
        total = 0.0
        for rows in job.micro_batches:
            new = self._logprobs(rows)
            engine, old = (torch.from_numpy(np.concatenate(part)) for part in _behaviour(rows))
            advantage = torch.cat([torch.full((len(row.tokens) - row.prompt - 1,), row.advantage) for row in rows])
            loss = clipped_loss(new, old, advantage, truncated_weights(old, engine)) / job.tokens
            (loss * self.ranks).backward()  # the reduce-scatter takes the mean over ranks
            total += float(loss.detach())
        torch.nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
        self.optimizer.step()
        return total

    def _logprobs(self, rows: Sequence[Row]) -> Tensor:
        """[response tokens of all rows, ends left out]"""
        lengths = [len(row.tokens) for row in rows]
        tokens = torch.tensor([token for row in rows for token in row.tokens])
        logits = self.model(tokens, Packed(lengths))
        starts = np.cumsum([0, *lengths[:-1]])
        at = torch.tensor(
            [s + i for s, row in zip(starts, rows, strict=True) for i in range(row.prompt - 1, len(row.tokens) - 2)]
        )
        return token_logprobs(logits[at]).gather(1, tokens[at + 1][:, None])[:, 0]

    def shards(self) -> dict[str, Tensor]:
        """This rank's rows of every weight, as they travel: bf16."""
        self.model.reshard()
        return {name: _local(p).detach().bfloat16() for name, p in self.model.named_parameters()}

    # Co-located: the device is the engine's while it generates ----------

    def _states(self) -> list[Tensor]:
        moments = (self.optimizer.state[p] for p in self.model.parameters() if p in self.optimizer.state)
        return [_local(state[key]) for state in moments for key in ("exp_avg", "exp_avg_sq")]

    def offload(self) -> None:
        """Adam's moments to host buffers, their own memory given back; gradients are dropped."""
        self.optimizer.zero_grad(set_to_none=True)
        states = self._states()
        if len(self._host) != len(states):
            self._host = [torch.empty_like(state) for state in states]
        for host, state in zip(self._host, states, strict=True):
            host.copy_(state)
            state.untyped_storage().resize_(0)

    def onload(self) -> None:
        for host, state in zip(self._host, self._states(), strict=False):
            state.untyped_storage().resize_(host.nbytes)
            state.copy_(host)


def _local(tensor: Tensor) -> Tensor:
    return tensor.to_local() if isinstance(tensor, DTensor) else tensor


def _behaviour(rows: Sequence[Row]) -> tuple[list[Floats], list[Floats]]:
    """Log-probs of the engine, and of the trainer before the first update."""
    engine = [row.engine for row in rows if row.engine is not None]
    old = [row.old for row in rows if row.old is not None]
    return engine, old
