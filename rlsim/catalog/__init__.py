"""Data with sources: GPUs, models, calibration profiles; and the look-up."""

from rlsim.catalog.architectures import model, models
from rlsim.catalog.hardware import GpuSpec, gpu, gpus

__all__ = ["GpuSpec", "gpu", "gpus", "model", "models"]
