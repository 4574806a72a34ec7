"""Sampled times of one engine's iterations: what is stored, on disk and in the package, and how it is built."""

from __future__ import annotations

import hashlib
import io
import json
import os
import tempfile
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
from platformdirs import user_cache_dir

from rlsim.costs import engine_step
from rlsim.costs.engine_step import EngineShape
from rlsim.costs.kernels import Kernels
from rlsim.costs.kernels.roofline import FITS
from rlsim.costs.kernels.tables import Floats, tables_version
from rlsim.costs.kernels.work import Gpu

FORMAT = 3
"""Raised when the composition of the step changes: older files are then not read."""
SHIPPED = Path(__file__).parent / "data"
KNOTS = np.array([0, 256, 512, 1024, 2048, 4096, 8192, 16384, 32768, 65536, 131072], dtype=np.float64)
BATCHES = (1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 40, 48, 64, 80, 96, 112, 128, 160, 192, 224, 256, 320, 384, 448, 512)
CHUNKS = (1, 16, 32, 64, 128, 256, 512, 1024, 1536, 2048, 3072, 4096, 6144, 8192, 12288, 16384, 32768, 65536)


@dataclass(frozen=True)
class SurfaceTable:
    """Kernel seconds of an engine without host time.

    knots [K] contexts; batches [B] sequences per rank; rank [B, K]; totals [T] sequences of the engine; joint
    [T]; chunks [P] prompt tokens of a rank; prefill [P] beyond `base`, the pass over the weights, LM head included,
    that a chunk shares with a decode; prefill_totals [Q] prompt tokens of all attention ranks, prefill_joint [Q] of the
    experts that they share; `pair` seconds of attention per (new token, context token).
    """

    knots: Floats
    batches: Floats
    rank: Floats
    totals: Floats
    joint: Floats
    chunks: Floats
    prefill: Floats
    prefill_totals: Floats
    prefill_joint: Floats
    base: float
    pair: float
    provenance: dict[str, float]
    notes: tuple[str, ...]


def grid_to(values: tuple[int, ...], limit: int) -> Floats:
    """The standard grid up to `limit`, doubling beyond its end, `limit` included."""
    points = [v for v in values if v < limit]
    while points and points[-1] == values[-1] and points[-1] * 1.25 < limit:
        points.append(int(points[-1] * 1.25))
    while points and points[-1] > values[-1] and points[-1] * 1.25 < limit:
        points.append(int(points[-1] * 1.25))
    return np.array([*points, limit], dtype=np.float64)


def knots_for(shape: EngineShape) -> Floats:
    """Context knots: the standard ones up to the model's maximum, and where a sliding window ends."""
    windows = [w for w, _ in shape.model.windows if w is not None]
    longest = max(shape.model.max_context, 1024)
    inner = KNOTS[longest > KNOTS]
    return np.unique(np.concatenate([inner, [float(longest)], np.array(windows, dtype=np.float64)]))


def build(k: Kernels, shape: EngineShape, max_num_seqs: int, max_tokens: int) -> SurfaceTable:
    """Price the grids.

    Pipeline: with p stages, p micro-batches of `b/p` are under way, and every sequence has got a token after p
    of them have passed a stage: `p · stage(b/p) = step(b/p)`; with fewer sequences than stages, one sequence's
    pass through all stages. Times are made monotone in batch and context (running maximum): a smaller batch may
    always be padded.
    """
    knots = knots_for(shape)
    batches = grid_to(BATCHES, max_num_seqs)
    per_pass = np.maximum(1.0, batches / shape.pp)
    rank = engine_step.decode_rank(k, shape, per_pass, np.maximum(knots, 1.0))
    seconds = np.maximum(rank.total, engine_step.weight_floor(k, shape))
    totals = grid_to(BATCHES, max_num_seqs)
    totals = np.unique(np.concatenate([totals, totals * shape.attn_dp])) if shape.attn_dp > 1 else totals
    joint = engine_step.decode_joint(k, shape, np.maximum(1.0, totals / shape.pp))
    chunks = grid_to(CHUNKS, max(max_tokens, 2))
    chunk = engine_step.prefill_chunk(k, shape, chunks)
    prefill_totals = grid_to(CHUNKS, max(max_tokens, 2) * shape.attn_dp)
    experts = engine_step.prefill_joint(k, shape, prefill_totals)
    times = np.maximum.accumulate(chunk.total)
    pair, _ = engine_step.prefill_pair(k, shape)
    return SurfaceTable(
        knots=knots,
        batches=batches,
        rank=_monotone(_monotone(seconds, 0), 1),
        totals=totals,
        joint=_monotone(joint.total, 0),
        chunks=chunks,
        prefill=times - times[0],
        prefill_totals=prefill_totals,
        prefill_joint=_monotone(experts.total, 0),
        base=float(times[0]) + engine_step.prefill_head(k, shape),
        pair=pair,
        provenance=_shares(rank, joint, batches, totals, shape.attn_dp),
        notes=_notes(k, shape),
    )


def _monotone(values: Floats, axis: int) -> Floats:
    return np.asarray(np.maximum.accumulate(values, axis=axis))


def _shares(rank: Any, joint: Any, batches: Floats, totals: Floats, ranks: int) -> dict[str, float]:
    """Shares of a decode iteration's kernel time by provenance, mean over batches at 4k-8k context."""
    column = min(rank.shape[1] - 1, 6)
    weights = {"measured": 0.0, "scaled": 0.0, "roofline": 0.0}
    for name, seconds in rank.sources.items():
        weights[name] += float(seconds[:, column].mean())
    for name, seconds in joint.sources.items():
        weights[name] += float(np.interp(batches * ranks, totals, seconds).mean())
    total = sum(weights.values())
    return {name: value / total for name, value in weights.items()}


def _notes(k: Kernels, shape: EngineShape) -> tuple[str, ...]:
    notes = list(k.replacements)
    if not k.covered:
        notes.append(f"no kernel tables for {k.gpu.name}: efficiencies of {k.reference.name}")
    if shape.attn_tp > shape.domain:
        notes.append(f"tensor parallel over {shape.attn_tp} GPUs spans nodes: hierarchical all-reduce, not measured")
    if any(window is not None for window, _ in shape.model.windows):
        notes.append("sliding-window layers are priced at the mean context of the batch")
    return tuple(notes)


# --- storage --------------------------------------------------------------------------------------------------------
def key(gpu: Gpu, engine: str, shape: EngineShape, max_num_seqs: int, max_tokens: int, kernels: str) -> str:
    """sha256 over everything that the table depends on."""
    model = asdict(shape.model)
    for name in ("name", "source", "architecture", "quantisation", "outputs"):
        model.pop(name, None)
    content = {
        "format": FORMAT,
        "tables": tables_version(),
        "fits": hashlib.sha256(FITS.read_bytes()).hexdigest() if FITS.exists() else "",
        "gpu": [
            sorted(gpu.peak_flops.items()),
            gpu.hbm_bandwidth,
            gpu.nvlink_bandwidth,
            gpu.nic_bandwidth,
            gpu.nvlink_domain,
            gpu.kernel_system,
            gpu.scaled_from,
        ],
        "engine": engine,
        "kernels": kernels,
        "model": model,
        "shape": {f: v for f, v in vars(shape).items() if f != "model"},
        "limits": [max_num_seqs, max_tokens],
    }
    return hashlib.sha256(json.dumps(content, sort_keys=True, default=str).encode()).hexdigest()


def find(name: str) -> SurfaceTable | None:
    """A stored table: shipped with the package, else from the user's cache; an unreadable file counts as none."""
    for path in (SHIPPED / f"surface-{name[:20]}.npz", cache_folder() / f"{name}.npz"):
        try:
            with np.load(path, allow_pickle=False) as data:
                if str(data["key"]) == name:
                    return unpack({n: data[n] for n in data.files})
        except (OSError, ValueError, KeyError, EOFError):
            continue
    return None


def cache_folder() -> Path:
    """Where tables built on this machine are kept."""
    return Path(user_cache_dir("rlsim")) / "surfaces"


def save(table: SurfaceTable, name: str, path: Path) -> None:
    """Write atomically, so that two runs at once never see half a file; a folder that cannot be written is no
    error.
    """
    buffer = io.BytesIO()
    np.savez_compressed(buffer, key=np.array(name), **pack(table))
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        handle, temporary = tempfile.mkstemp(dir=path.parent, suffix=".tmp")
        with os.fdopen(handle, "wb") as file:
            file.write(buffer.getvalue())
        Path(temporary).replace(path)
    except OSError:
        return


ARRAYS = ("knots", "batches", "rank", "totals", "joint", "chunks", "prefill", "prefill_totals", "prefill_joint")


def pack(table: SurfaceTable) -> dict[str, Any]:
    """Arrays for `np.savez`; the small fields as one JSON text."""
    small = {"base": table.base, "pair": table.pair, "provenance": table.provenance, "notes": list(table.notes)}
    return {name: getattr(table, name) for name in ARRAYS} | {"small": np.array(json.dumps(small))}


def unpack(data: dict[str, Any]) -> SurfaceTable:
    """The inverse of `pack`."""
    small = json.loads(str(data["small"]))
    arrays = {name: np.asarray(data[name], dtype=np.float64) for name in ARRAYS}
    return SurfaceTable(
        **arrays,
        base=small["base"],
        pair=small["pair"],
        provenance=small["provenance"],
        notes=tuple(small["notes"]),
    )
