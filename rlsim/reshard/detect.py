"""The silent-error detector: which tensors of somebody's conversion are wrong, and what mistake would make them so.

Given are a checkpoint before (Hugging Face names) and after the conversion there and back, or after loading into an
engine and reading out. Every usual mistake is carried out on the tensors before; the one whose result is the tensor
after is the likely one.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from rlsim.model import ModelSpec

if TYPE_CHECKING:
    import torch

    State = Mapping[str, torch.Tensor]

WIDTHS = (2, 3, 4, 5, 6, 7, 8, 12, 16, 32, 64)
"""Tensor-parallel sizes that are tried for mistakes that depend on one."""
ROUNDING = 2.0**-7
"""Relative difference that rounding to bf16 may make (eight bits of mantissa)."""
STALE = 0.9
"""Cosine of the weights before and after from which a difference looks like training steps, not like a mix-up."""


class Finding(NamedTuple):
    """One tensor (or several of one family) and what happened to it: `right` only in precision, else wrong."""

    tensors: tuple[str, ...]
    mistake: str
    right: bool = False


@dataclass(frozen=True)
class Report:
    """All tensors compared; `findings` in the order of the checkpoint."""

    compared: int
    equal: int
    findings: tuple[Finding, ...]

    @property
    def wrong(self) -> tuple[Finding, ...]:
        return tuple(f for f in self.findings if not f.right)


def detect(before: State, after: State, m: ModelSpec, previous: State | None = None) -> Report:
    """Compare two checkpoints of a model; `previous` is that of an earlier version, if there is one."""
    compared = equal = 0
    suspects: dict[str, None] = {}
    findings: list[Finding] = []
    for name, x in before.items():
        compared += 1
        y = after.get(name)
        if y is None:
            findings.append(Finding((name,), "missing after the conversion"))
        elif _same(x, y):
            equal += 1
        elif x.shape == y.shape and _rounded(x, y):
            findings.append(Finding((name,), f"rounded: {_kind(x)} before, {_kind(y)} after", right=True))
        else:
            suspects[name] = None
    for name in after:
        if name not in before:
            findings.append(Finding((name,), "there is no such tensor before the conversion"))
    for family in _families(suspects, before, m):
        findings += _explain(family, before, after, m, previous)
    order = {name: i for i, name in enumerate([*before, *after])}
    findings.sort(key=lambda f: order[f.tensors[0]])
    return Report(compared, equal, tuple(findings))


def _kind(x: torch.Tensor) -> str:
    return str(x.dtype).removeprefix("torch.")


def _same(x: torch.Tensor, y: torch.Tensor) -> bool:
    import torch

    return x.shape == y.shape and x.dtype == y.dtype and torch.equal(_bits(x), _bits(y))


def _bits(x: torch.Tensor) -> torch.Tensor:
    import torch

    return x.contiguous().view(torch.uint8) if x.dtype.is_floating_point and x.element_size() == 1 else x


def _rounded(x: torch.Tensor, y: torch.Tensor) -> bool:
    import torch

    a, b = x.float(), y.float()
    return bool(torch.isfinite(b).all()) and bool((torch.abs(a - b) <= ROUNDING * torch.abs(a)).all())


def _near(x: torch.Tensor, y: torch.Tensor) -> bool:
    """Equal, or equal up to the rounding of a narrower dtype."""
    return x.shape == y.shape and (_same(x, y) or _rounded(x, y))


# Families: tensors that a conversion fuses ----------


class Family(NamedTuple):
    """Tensors that go through one fused tensor: kind `qkv`, `gated` or `single`."""

    kind: str
    names: tuple[str, ...]


def _families(suspects: Mapping[str, None], before: State, m: ModelSpec) -> Iterator[Family]:
    left = dict(suspects)
    for name in suspects:
        if name not in left:
            continue
        for kind, pattern, parts in (
            ("qkv", r"(.*self_attn\.)[qkv](_proj\..*)", ("q", "k", "v")),
            ("gated", r"(.*)(?:gate|up)(_proj\.weight)", ("gate", "up")),
            ("gated", r"(.*experts\.\d+\.)w[13](\.weight)", ("w1", "w3")),
        ):
            match = re.fullmatch(pattern, name)
            names = tuple(f"{match[1]}{part}{match[2]}" for part in parts) if match else ()
            if names and all(n in before for n in names) and (kind != "qkv" or m.attention.kind == "gqa"):
                for n in names:
                    left.pop(n, None)
                yield Family(kind, names)
                break
        else:
            left.pop(name)
            yield Family("single", (name,))


def _explain(family: Family, before: State, after: State, m: ModelSpec, previous: State | None) -> list[Finding]:
    names = tuple(n for n in family.names if n in after)
    x, y = [before[n] for n in family.names], [after.get(n) for n in family.names]
    if len(names) == len(family.names) and all(a.shape == b.shape for a, b in zip(x, y, strict=True) if b is not None):
        results = [b for b in y if b is not None]
        for mistake, made in MISTAKES[family.kind](x, m):
            if all(_near(a, b) for a, b in zip(made, results, strict=True)):
                wrong = tuple(n for n, a, b in zip(names, x, results, strict=True) if not _near(a, b))
                return [Finding(wrong, mistake)]
    return [
        Finding((n,), _single(n, before[n], after[n], before, m, previous))
        for n in names
        if not _near(before[n], after[n])
    ]


# Mistakes, carried out ----------

Made = Iterator[tuple[str, "list[torch.Tensor]"]]


def _qkv_mistakes(x: list[torch.Tensor], m: ModelSpec) -> Made:
    """q, k, v after a conversion through one fused tensor that went wrong."""
    import torch

    groups, sizes = m.attention.kv_heads, [len(t) for t in x]
    interleaved = torch.cat([torch.cat(g) for g in zip(*(t.chunk(groups) for t in x), strict=True)])
    stacked = torch.cat(x)
    yield (
        "interleave forgotten: Megatron's fused QKV holds q, k and v of one group after another, and was split as "
        "[q | k | v]",
        list(_split(interleaved, sizes)),
    )
    for tp in WIDTHS:
        if any(n % tp for n in sizes):
            continue
        for fused, text in ((stacked, "[q | k | v]"), (interleaved, "the interleaved QKV")):
            shards = [_split(shard, [n // tp for n in sizes]) for shard in fused.chunk(tp)]
            yield (
                f"fused, then split: {text} was cut whole into TP = {tp} shards, each read as [q | k | v]",
                [torch.cat([shard[i] for shard in shards]) for i in range(3)],
            )
    per_group = [n // groups for n in sizes]
    regrouped = [_split(part, per_group) for part in stacked.chunk(groups)]
    yield (
        "interleave that is not there: [q | k | v] was taken apart as if q, k and v of every group stood together",
        [torch.cat([group[i] for group in regrouped]) for i in range(3)],
    )


def _split(x: torch.Tensor, sizes: list[int]) -> list[torch.Tensor]:
    """Rows of these sizes, one after another."""
    return [x.narrow(0, sum(sizes[:i]), n) for i, n in enumerate(sizes)]


def _gated_mistakes(x: list[torch.Tensor], m: ModelSpec) -> Made:
    """gate and up after a conversion through [gate; up] that went wrong."""
    import torch

    gate, up = x
    yield "gate and up swapped", [up, gate]
    rows = len(gate)
    for tp in WIDTHS:
        if rows % tp:
            continue
        fused = torch.cat([torch.cat(pair) for pair in zip(gate.chunk(tp), up.chunk(tp), strict=True)])
        yield (
            f"gate and up split whole: TP = {tp} shards [gate; up] were joined one after another and halved",
            list(fused.chunk(2)),
        )
        whole = torch.cat(x)
        if 2 * rows % tp == 0 and rows % tp == 0:
            shards = [shard.chunk(2) for shard in whole.chunk(tp)]
            yield (
                f"fused, then split: [gate; up] was cut whole into TP = {tp} shards, each read as [gate; up]",
                [torch.cat([s[i] for s in shards]) for i in range(2)],
            )


def _no_mistakes(x: list[torch.Tensor], m: ModelSpec) -> Made:
    return iter(())


MISTAKES: Mapping[str, Callable[[list[torch.Tensor], ModelSpec], Made]] = {
    "qkv": _qkv_mistakes,
    "gated": _gated_mistakes,
    "single": _no_mistakes,
}


# One tensor alone ----------


def _single(name: str, x: torch.Tensor, y: torch.Tensor, before: State, m: ModelSpec, previous: State | None) -> str:
    """What made x into y, tried from the surest sign to the vaguest."""
    if x.dim() == 2 and y.shape == x.T.shape and _near(x.T.contiguous(), y):
        return "transposed" if x.shape != y.shape else "transposed (the shape does not show it: the matrix is square)"
    if x.shape != y.shape:
        return f"shape {list(y.shape)} instead of {list(x.shape)}"
    if x.dim() == 2 and _near(x.T.reshape(x.shape), y):
        return "transposed: its memory was read in the other order"
    if previous is not None and name in previous and _near(previous[name], y):
        return "stale: it is the tensor of an earlier version"
    other = _other(name, y, before)
    if other is not None:
        return other
    for test in (_heads, _vocabulary, _columns, _scales):
        found = test(name, x, y, m)
        if found is not None:
            return found
    return _stale_or_unknown(x, y)


def _other(name: str, y: torch.Tensor, before: State) -> str | None:
    """The tensor of another layer, expert or projection."""
    for candidate, z in before.items():
        if candidate != name and z.shape == y.shape and z.flatten()[0] == y.flatten()[0] and _near(z, y):
            return f"it is {candidate}"
    return None


def _heads(name: str, x: torch.Tensor, y: torch.Tensor, m: ModelSpec) -> str | None:
    """Heads of q, k or v that stand elsewhere, or more than once."""
    match = re.search(r"self_attn\.([qkv])_proj\.", name)
    d = m.attention.head_dim
    if match is None or len(x) % d:
        return None
    a, b = x.reshape(-1, d, *x.shape[1:]), y.reshape(-1, d, *y.shape[1:])
    found = [next((i for i in range(len(a)) if _near(a[i], b[j])), None) for j in range(len(b))]
    if any(i is None for i in found):
        return None
    where = ", ".join(f"{j} ← {i}" for j, i in enumerate(found) if i != j)
    if match[1] == "q":
        return f"query heads in another order: {where}"
    return f"wrong KV replica: {match[1]} heads {where}"


def _vocabulary(name: str, x: torch.Tensor, y: torch.Tensor, m: ModelSpec) -> str | None:
    """Rows of the vocabulary that stand a constant number of rows away: padding inside was not dropped."""
    if len(x) != m.vocab or x.dim() != 2:
        return None
    first = next((i for i in range(len(x)) if not _near(x[i], y[i])), None)
    if first is None:
        return None
    for shift in range(1, len(x) - first):
        if _near(x[first : first + 1], y[first + shift : first + shift + 1]):
            return f"vocabulary shifted by {shift} rows from row {first} on: padding of a shard was kept"
        if _near(x[first + shift : first + shift + 1], y[first : first + 1]):
            return f"vocabulary shifted by -{shift} rows from row {first} on: rows of a shard were dropped"
    return None


def _columns(name: str, x: torch.Tensor, y: torch.Tensor, m: ModelSpec) -> str | None:
    """Row-parallel weights whose shards were joined along the wrong dimension or in the wrong order."""
    import torch

    if x.dim() != 2:
        return None
    for tp in WIDTHS:
        if x.shape[1] % tp == 0:
            shards = x.chunk(tp, dim=1)
            if _near(torch.cat(shards, dim=0).reshape(x.shape), y):
                return f"row-parallel shards of TP = {tp} joined along the rows instead of the columns"
            if _near(torch.cat(list(reversed(shards)), dim=1), y):
                return f"row-parallel shards of TP = {tp} joined in reverse order"
        if x.shape[0] % tp == 0 and _near(torch.cat(list(reversed(x.chunk(tp))), dim=0), y):
            return f"column-parallel shards of TP = {tp} joined in reverse order"
    return None


def _scales(name: str, x: torch.Tensor, y: torch.Tensor, m: ModelSpec) -> str | None:
    """After ÷ before is one number within each block of 128 x 128, but not one everywhere."""
    import torch

    from rlsim.reshard.fp8 import BLOCK

    if x.dim() != 2 or min(x.shape) < BLOCK:
        return None
    a, b = x.float(), y.float()
    ratio = torch.where(a != 0, b / a, torch.full_like(a, torch.nan))  # 0 has no scale
    for rows in range(0, BLOCK, 32):
        part = ratio[rows : rows + (len(ratio) - rows) // BLOCK * BLOCK, : ratio.shape[1] // BLOCK * BLOCK]
        if not part.numel():
            continue
        cells = part.reshape(-1, BLOCK, part.shape[1] // BLOCK, BLOCK).permute(0, 2, 1, 3).flatten(2)
        middle = cells.nanmedian(dim=2).values
        off = torch.nan_to_num((cells - middle[..., None]).abs()).amax(dim=2) / middle.abs().clamp(min=1e-12)
        wrong = int(((middle - 1).abs() > 0.01).sum())
        if (off < 0.15).float().mean() > 0.9 and wrong:
            return f"FP8 scale misaligned: {wrong} of {middle.numel()} blocks of 128 x 128 have another block's scale"
    return None


def _stale_or_unknown(x: torch.Tensor, y: torch.Tensor) -> str:
    import torch

    a, b = x.float().flatten(), y.float().flatten()
    if not torch.isfinite(b).all():
        return "values that are not finite"
    if not b.any():
        return "all zeros: never written"
    cosine = float(torch.dot(a, b) / (a.norm() * b.norm()).clamp(min=1e-30))
    if cosine > STALE:
        return f"probably stale: close to what it should be everywhere (cosine {cosine:.4f}) and equal nowhere near"
    same = float((x == y).float().mean())
    return f"wrong, of no known kind: {same:.0%} of its elements are right, cosine {cosine:.2f}"
