"""What a plan puts on each link: bytes by NIC and by NVLink, in and out, of every GPU; kept between runs."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from rlsim.grids import EngineLayout, TrainLayout
from rlsim.model import ModelSpec
from rlsim.reshard.plan import plan_between

FORMAT = 1
"""Raise it when plans change: older files are not found any more."""
BIG = 1 << 18
"""Pairs of ranks from which a plan takes long enough to be kept on disk."""
Floats = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Totals:
    """Bytes that a plan moves between GPUs: float64[trainer ranks] out, float64[engine ranks] in."""

    out_nic: Floats
    out_nvlink: Floats
    in_nic: Floats
    in_nvlink: Floats


@lru_cache(maxsize=64)
def plan_totals(
    m: ModelSpec, trainer: TrainLayout, engine: EngineLayout, wire_bytes: float, first_engine_gpu: int
) -> Totals:
    """Totals of the plan between two layouts; GPUs of one node talk over NVLink, others over their NICs."""
    big = trainer.gpus * engine.gpus >= BIG
    file = _folder() / f"{_key(m, trainer, engine, wire_bytes, first_engine_gpu)}.npz"
    if big and (found := _read(file)) is not None:
        return found
    plan = plan_between(m, trainer, engine, wire_bytes=wire_bytes, first_engine_gpu=first_engine_gpu)
    totals = Totals(*(np.zeros(n) for n in (trainer.gpus, trainer.gpus, engine.gpus, engine.gpus)))
    for layers in plan.kinds:
        (block,) = plan.blocks(layers[:1])
        source, target = block.runs.src_rank, block.runs.dst_rank
        gpu = target + first_engine_gpu
        near = source // trainer.gpus_per_node == gpu // engine.gpus_per_node
        moved = np.where(source == gpu, 0.0, len(layers) * block.runs.bytes)
        for kind, out, into in ((~near, totals.out_nic, totals.in_nic), (near, totals.out_nvlink, totals.in_nvlink)):
            out += np.bincount(source, moved * kind, minlength=trainer.gpus)
            into += np.bincount(target, moved * kind, minlength=engine.gpus)
    if big:
        _write(file, totals)
    return totals


def _key(*facts: object) -> str:
    return "plan-" + hashlib.sha256(repr((FORMAT, *facts)).encode()).hexdigest()[:20]


def _folder() -> Path:
    import platformdirs

    return Path(platformdirs.user_cache_dir("rlsim"))


def _read(file: Path) -> Totals | None:
    try:
        with np.load(file) as stored:
            return Totals(*(stored[name] for name in Totals.__dataclass_fields__))
    except (OSError, ValueError, KeyError):
        return None


def _write(file: Path, totals: Totals) -> None:
    """Written aside and renamed, so that nobody reads half a file; a folder that cannot be written is no error."""
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        aside = file.with_suffix(f".{np.random.default_rng().integers(1 << 62)}.npz")
        np.savez(aside, **{name: getattr(totals, name) for name in Totals.__dataclass_fields__})
        aside.replace(file)
    except OSError:
        return
