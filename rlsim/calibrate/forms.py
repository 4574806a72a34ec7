"""What each benchmark's seconds are a sum of: physically named terms, and how much of each a row has.

    gemm         launch_s + 2mnk / rate + bytes / memory rate
    attention    launch_s + pairs·heads·… / rate
    copy, ipc, dcp, reshard   latency_s + bytes / rate
    collective   alpha · steps(world) + traffic(world, bytes) / beta; ring, tree, or all ranks on one host's memory
    weight_sync  fixed_s + receiver_s·R + traffic(R, bytes, bucket) / (nic · efficiency) + bytes / rate
    decode, prefill, train, logprob   the terms of a profile's measured roles

A benchmark with several candidate forms takes the one that leaves least; in a draw the first.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from rlsim.calibrate.least_squares import Floats

if TYPE_CHECKING:
    import pandas as pd

Amount = Callable[["pd.DataFrame"], Floats]
WIDTH = {"bf16": 2, "fp16": 2, "fp32": 4, "fp64": 8, "fp8": 1, "float32": 4, "bfloat16": 2, "float16": 2}


@dataclass(frozen=True)
class Term:
    """A named coefficient: seconds per unit of `amount`. `per`: what it scales with from model to model."""

    name: str
    unit: str
    amount: Amount
    per: Amount | None = None


@dataclass(frozen=True)
class Form:
    """One candidate: its name, its terms, the column whose values are sizes."""

    name: str
    terms: tuple[Term, ...]


def column(frame: pd.DataFrame, name: str, default: float = 1.0) -> Floats:
    """A numeric column; `default` where it is not given."""
    import pandas as pd

    if name not in frame.columns:
        return np.full(len(frame), default)
    return np.asarray(pd.to_numeric(frame[name], errors="coerce").fillna(default).to_numpy(), dtype=np.float64)


def ones(frame: pd.DataFrame) -> Floats:
    return np.ones(len(frame))


def _width(frame: pd.DataFrame) -> Floats:
    if "dtype" not in frame.columns:
        return np.full(len(frame), 4.0)
    return np.array([float(WIDTH.get(str(d).removeprefix("torch."), 4)) for d in frame["dtype"]])


def _gemm_flops(f: pd.DataFrame) -> Floats:
    return 2.0 * column(f, "m") * column(f, "n") * column(f, "k")


def _gemm_bytes(f: pd.DataFrame) -> Floats:
    m, n, k = (column(f, c) for c in "mnk")
    return (m * k + k * n + m * n) * _width(f)


def _pairs(f: pd.DataFrame) -> Floats:
    """Causal pairs of all sequences as the simulation counts them: s²/2 + 64·s each."""
    s = column(f, "sequence")
    return column(f, "micro_batch", 1.0) * (s * s / 2 + 64 * s) * column(f, "batch", 1.0)


def _attention_flops(f: pd.DataFrame) -> Floats:
    """4 FLOPs per pair and channel: QKᵀ and PV."""
    return 4.0 * _pairs(f) * column(f, "hidden", 1.0)


def _prompt_pairs(f: pd.DataFrame) -> Floats:
    prompts = column(f, "batch", 1.0)
    tokens = column(f, "tokens", 0.0)
    return tokens * tokens / prompts / 2 + tokens * column(f, "context", 0.0)


def _step_tokens(f: pd.DataFrame) -> Floats:
    whole = column(f, "micro_batch", 1.0) * column(f, "sequence", 1.0)
    return np.maximum(column(f, "tokens", 0.0), whole)


def _micro_batches(f: pd.DataFrame) -> Floats:
    whole = column(f, "micro_batch", 1.0) * column(f, "sequence", 1.0)
    return np.maximum(1.0, np.round(_step_tokens(f) / whole))


def _step_pairs(f: pd.DataFrame) -> Floats:
    s = column(f, "sequence")
    return _step_tokens(f) / s * (s * s / 2 + 64 * s)


def _parameters(f: pd.DataFrame) -> Floats:
    return column(f, "parameters")


def _layers(f: pd.DataFrame) -> Floats:
    return column(f, "layers")


def _channels(f: pd.DataFrame) -> Floats:
    return column(f, "layers") * column(f, "hidden")


def _bytes(f: pd.DataFrame) -> Floats:
    return column(f, "bytes", 0.0)


def _copy(name: str) -> tuple[Form, ...]:
    return (Form(name, (Term("latency_s", "s", ones), Term("byte_s", "s/B", _bytes))),)


def _pass() -> tuple[Form, ...]:
    return (
        Form(
            "pass",
            (
                Term("fixed_s", "s", ones),
                Term("fixed_s", "s", ones, _parameters),
                Term("micro_batch_s", "s", _micro_batches, _layers),
                Term("token_s", "s/token", _step_tokens, _parameters),
                Term("pair_s", "s/pair", _step_pairs, _channels),
            ),
        ),
    )


def _collective() -> tuple[Form, ...]:
    """Steps and per-rank traffic as functions of the world; bytes are the message of one rank."""

    def world(f: pd.DataFrame) -> Floats:
        return column(f, "world", 2.0)

    def log_world(f: pd.DataFrame) -> Floats:
        return np.ceil(np.log2(np.maximum(world(f), 2.0)))

    def form(name: str, steps: Amount, share: Amount) -> Form:
        return Form(name, (Term("alpha_s", "s/step", steps), Term("byte_s", "s/B", lambda f: _bytes(f) * share(f))))

    def around(f: pd.DataFrame) -> Floats:
        return world(f) - 1

    return (
        form("ring of shards", around, around),
        form("ring of a whole", around, lambda f: around(f) / world(f)),
        form("tree", log_world, log_world),
        form("pipeline", around, ones),
        form("shards through one host's memory", around, lambda f: around(f) * world(f)),
        form("a whole through one host's memory", around, world),
        form("two halves of a ring", around, lambda f: 2 * around(f) / world(f)),
    )


def _weight_sync() -> tuple[Form, ...]:
    """Traffic over the busiest NIC, by how the strategy spreads it. efficiency = 1 / coefficient of `wire`."""

    def receivers(f: pd.DataFrame) -> Floats:
        return column(f, "receivers")

    def nic(f: pd.DataFrame) -> Floats:
        return column(f, "nic", 1.0)

    def buckets(f: pd.DataFrame) -> Floats:
        size = column(f, "bucket", 0.0)
        return np.where(size > 0, np.ceil(_bytes(f) / np.maximum(size, 1.0)), 1.0)

    def trainers(f: pd.DataFrame) -> Floats:
        return column(f, "trainers")

    def form(name: str, traffic: Amount) -> Form:
        return Form(
            name,
            (
                # first: of terms that the points cannot tell apart, the first is kept
                Term("wire", "1/efficiency", lambda f: traffic(f) / nic(f)),
                Term("fixed_s", "s", ones),
                Term("receiver_s", "s/receiver", receivers),
                Term("bucket_s", "s/bucket", lambda f: buckets(f) * receivers(f)),
                Term("byte_s", "s/B", _bytes),
            ),
        )

    def bucket(f: pd.DataFrame) -> Floats:
        return np.minimum(column(f, "bucket", 0.0), _bytes(f))

    def pipelined(f: pd.DataFrame) -> Floats:
        return _bytes(f) + (receivers(f) - 1) * bucket(f)

    def from_shares(f: pd.DataFrame) -> Floats:
        """Every trainer's NIC sends its share to all; every receiver's NIC takes a whole copy."""
        return _bytes(f) * np.maximum(1.0, receivers(f) / trainers(f))

    def first_then_peers(f: pd.DataFrame) -> Floats:
        return np.where(receivers(f) > 1, 2 * _bytes(f) + (receivers(f) - 2) * bucket(f), _bytes(f))

    def tree(f: pd.DataFrame) -> Floats:
        """Copies out of the root: one per level of a binomial tree over trainers and receivers."""
        return _bytes(f) * np.ceil(np.log2(receivers(f) + trainers(f)))

    return (
        form("one copy to all", _bytes),
        form("a copy to each", lambda f: _bytes(f) * receivers(f)),
        form("shares to each", from_shares),
        form("pipelined buckets", pipelined),
        form("to one, then along its peers", first_then_peers),
        form("tree", tree),
        form("a share to each", lambda f: _bytes(f) / receivers(f)),
    )


FORMS: Mapping[str, tuple[Form, ...]] = {
    "gemm": (
        Form(
            "launch, arithmetic, memory",
            (
                Term("launch_s", "s", ones),
                Term("flop_s", "s/FLOP", _gemm_flops),
                Term("byte_s", "s/B", _gemm_bytes),
            ),
        ),
    ),
    "attention": (
        Form(
            "launch, pairs, rows",
            (
                Term("launch_s", "s", ones),
                Term("flop_s", "s/FLOP", _attention_flops),
                Term("row_s", "s/row", lambda f: column(f, "sequence") * column(f, "batch")),
            ),
        ),
    ),
    "copy": _copy("copy"),
    "ipc": _copy("hand-over"),
    "dcp": _copy("checkpoint"),
    "reshard": _collective(),
    "collective": _collective(),
    "weight_sync": _weight_sync(),
    "decode": (
        Form(
            "decode",
            (
                Term("fixed_s", "s", ones),
                Term("fixed_s", "s", ones, _parameters),
                Term("sequence_s", "s/sequence", lambda f: column(f, "batch"), _parameters),
                Term("context_token_s", "s/token", lambda f: column(f, "batch") * column(f, "context", 0.0), _channels),
            ),
        ),
    ),
    "prefill": (
        Form(
            "prefill",
            (
                Term("fixed_s", "s", ones),
                Term("fixed_s", "s", ones, _parameters),
                Term("token_s", "s/token", lambda f: column(f, "tokens"), _parameters),
                Term("pair_s", "s/pair", _prompt_pairs, _channels),
            ),
        ),
    ),
    "train_step": _pass(),
    "logprob": _pass(),
}
"""Candidate forms by benchmark."""
APART = ("op", "strategy", "direction", "pinned", "dtype", "recompute", "backend", "device")
"""Columns whose values are fitted apart from each other."""
SIZES: Mapping[str, tuple[str, ...]] = {
    "gemm": ("m",),
    "attention": ("sequence",),
    "decode": ("batch", "context"),
    "prefill": ("tokens",),
    "train_step": ("sequence",),
    "logprob": ("sequence",),
}
"""Columns that `--hold-out size` goes by; the others by `bytes`."""
