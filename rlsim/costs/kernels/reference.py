"""Which tables stand for a GPU, and the GPU they were measured on."""

from __future__ import annotations

from functools import cache

from rlsim import catalog
from rlsim.costs.kernels.work import Gpu

DEFAULT_SYSTEM = "h100_sxm"
SAME = 0.01


@cache
def covered_systems() -> dict[str, Gpu]:
    """The catalog's GPUs that have tables of their own, by system folder."""
    specs = [catalog.gpu(name) for name in catalog.gpus()]
    return {s.kernel_system: s for s in specs if s.kernel_system is not None and s.scaled_from is None}


def reference_for(gpu: Gpu) -> tuple[Gpu, str, bool]:
    """(GPU the tables were measured on, system folder, whether its compute tables hold for `gpu`).

    A GPU without tables uses those of `scaled_from` when it is the same chip (bf16 peak and HBM within 1%: H800 is an
    H100 with a slower NVLink); else only the link tables, and the jointly fitted roofline for compute.
    """
    covered = covered_systems()
    if gpu.kernel_system in covered:
        return covered[gpu.kernel_system], gpu.kernel_system, True
    source = catalog.gpu(gpu.scaled_from) if gpu.scaled_from else covered[DEFAULT_SYSTEM]
    system = source.kernel_system or DEFAULT_SYSTEM
    source = covered.get(system, covered[DEFAULT_SYSTEM])
    close = (
        abs(source.peak_flops["bf16"] / gpu.peak_flops["bf16"] - 1) < SAME
        and abs(source.hbm_bandwidth / gpu.hbm_bandwidth - 1) < SAME
    )
    return source, system, close
