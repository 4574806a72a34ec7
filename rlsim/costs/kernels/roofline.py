"""Scaled roofline: the shape of a kernel's time from its work, with efficiencies fitted on the measured tables.

`t = t0 + ((F / (peak·e_F·u))^p + (B / (HBM·e_B·u))^p)^(1/p)`, `u = min(1, tiles / T)^a`: launch time, FLOPs and
bytes that overlap partly, and the loss when there are too few output tiles for the chip. Fitted offline
(`rlsim.costs.fit_roofline`) per system, op and format into `data/roofline.json`, with the number of points and
the residuals; `hopper` is the joint fit that GPUs without tables use with their own peaks.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import numpy as np

from rlsim.costs.kernels.tables import Floats
from rlsim.costs.kernels.work import Gpu, Work, peak

FITS = Path(__file__).parent.parent / "data" / "roofline.json"


@dataclass(frozen=True)
class Fit:
    """Efficiencies of one op and format; `median_error` and `p90_error` are relative residuals on the `points`
    used.
    """

    launch: float
    flops_efficiency: float
    bytes_efficiency: float
    overlap: float
    tiles: float
    tile_power: float
    points: int = 0
    median_error: float = 0.0
    p90_error: float = 0.0

    def seconds(self, work: Work, gpu: Gpu, dtype: str) -> Floats:
        """Seconds of `work` on `gpu`, never below the floor."""
        use = np.minimum(1.0, np.maximum(work.tiles, 1.0) / self.tiles) ** self.tile_power
        compute = work.flops / (peak(gpu, dtype) * self.flops_efficiency * use)
        memory = work.bytes / (gpu.hbm_bandwidth * self.bytes_efficiency * use)
        largest = np.maximum(np.maximum(compute, memory), 1e-30)
        p = self.overlap
        busy = largest * ((compute / largest) ** p + (memory / largest) ** p) ** (1 / p)
        return np.maximum(self.launch + busy, work.floor(gpu, dtype))


PRIOR = Fit(5e-6, 0.6, 0.75, 4.0, 64.0, 0.3)


@cache
def _fits() -> Mapping[str, Mapping[str, Fit]]:
    if not FITS.exists():
        return {}
    content = json.loads(FITS.read_text())
    return {system: {op: Fit(**f) for op, f in ops.items()} for system, ops in content["fits"].items()}


def fit_for(system: str | None, op: str, dtype: str) -> Fit:
    """The fit of (system, op, format): the system's own, else the joint one, else that of a format of the same
    width.
    """
    fits = _fits()
    for place in (system or "hopper", "hopper"):
        ops = fits.get(place, {})
        for name in (dtype, "fp8_block" if dtype == "fp8" else "fp8", "bf16"):
            if f"{op}/{name}" in ops:
                return ops[f"{op}/{name}"]
    return PRIOR
