"""How wrong each phase may be: the ranges of the profile's parameters carried over to the phases they price.

A Monte Carlo over parameters: a part of a phase is proportional to a parameter or to its inverse, so a draw of all
parameters stretches each part, and a phase is the sum of its parts. Phases that rest on one parameter move together.
`rlsim.calibrate.monte_carlo` simulates every draw instead; docs/calibration.md says how far the two are apart.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from rlsim.catalog.profile_file import Z90
from rlsim.catalog.profiles import Profile
from rlsim.interval import DRAWS, SEED

Spread = tuple[float, float]
Floats = npt.NDArray[np.float64]
Rules = Mapping[str, tuple[tuple[str, int], ...]]

FAINT = 0.05  # share of a value below which a range's lower end, which may be 0, makes no difference
COMPUTE = (("gemm_derate", 1),)
TRAINING: Rules = {
    "compute": COMPUTE,
    "attention": (("attention_backward_efficiency", -1),),
    "logits": (("logits_passes", 1),),
    "tp_comm": (("nvlink_efficiency", -1),),
    "cp_comm": (("nvlink_efficiency", -1),),
    "ep_comm": (("nic_efficiency", -1), ("expert_imbalance", 1)),
    "dp_comm": (("nic_efficiency", -1),),
    "pp_comm": (("nic_efficiency", -1),),
    "moe_floor": (("moe_layer_floor_s", 1), ("moe_layer_sync_s", 1)),
    "host": (("layer_floor_s", 1),),
    "bubble": COMPUTE,
    "imbalance": COMPUTE,
    "optimizer": (("optimizer_hbm_efficiency", -1),),
    "reference_in": (("host_link_rate", -1),),
    "vision": (("vision_parameters", 1),),
    "micro_batches": (("microbatch_host_s", 1),),
}
UPDATE: Rules = {**TRAINING, "fixed": (("update_fixed_s", 1),)}
LOGPROB: Rules = {
    **TRAINING,
    "attention": (("attention_forward_efficiency", -1),),
    "fixed": (("logprob_fixed_s", 1),),
}
WEIGHT_SYNC: Rules = {
    "gather": (("refit_gather_rate", -1),),
    "handover": (("refit_ipc_rate", -1),),
    "wire": (("sync_nic_efficiency", -1),),
    "replicate": (("nvlink_efficiency", -1),),
    "load": (("refit_load_rate", -1),),
    "host_to_device": (("host_link_rate", -1),),
    "device_to_host": (("host_link_rate", -1),),
    "write": (("filesystem_write_rate", -1),),
    "read": (("filesystem_read_rate", -1),),
    "tensors": (("refit_per_tensor_s", 1),),
    "buckets": (("refit_per_bucket_s", 1),),
    "fixed": (("refit_fixed_s", 1),),
}
FSDP_SYNC: Rules = {
    **WEIGHT_SYNC,
    "gather": (("refit_fsdp_gather_rate", -1),),
    "tensors": (("refit_fsdp_per_tensor_s", 1),),
}
ROLLOUT: Rules = {
    "kernels": (("rollout_kernel_factor", 1),),
    "host_base": (("engine_step_base_s", 1),),
    "host_per_sequence": (("engine_step_per_seq_s", 1),),
}
SWITCH: Rules = {"moved": (("host_link_rate", -1),), "fixed": (("switch_fixed_s", 1),)}
CONTROLLER: Rules = {
    "fixed": (("step_fixed_s", 1),),
    "async_fixed": (("async_step_fixed_s", 1),),
    "batch": (("controller_bytes_rate", -1),),
    "samples": (("controller_sample_s", 1),),
    "async_samples": (("async_sample_overhead_s", 1),),
    "calls": (("controller_call_s", 1),),
}
REWARD: Rules = {"rule": (("reward_rule_s", 1),)}
Parts = Mapping[str, float]


class ParameterDraws:
    """Each parameter over its value, float64[DRAWS]: lognormal on either side, low and high its p10 and p90.

    One stream of normals per name, the same in every run; those of a fit's parameters are correlated as it found.
    """

    def __init__(self, profile: Profile) -> None:
        self.profile = profile
        self._scores = _correlated(profile.correlations)

    def stretch(self, name: str, sign: int) -> Floats:
        """What a duration is multiplied by that is proportional to the parameter (sign 1) or to its inverse (-1)."""
        z = self._scores.get(name)
        z = _normals(name) if z is None else z
        down, up = log_range(self.profile, name, 1)
        return np.asarray(np.exp(sign * z * np.where(z < 0, down, up) / Z90))


def multipliers(parts: Parts, rules: Rules, draws: ParameterDraws) -> Floats:
    """A phase's true duration over the predicted one, float64[DRAWS].

    `parts` are seconds by cause; only their shares matter. A part without a rule is taken as exact.
    """
    total = sum(parts.values())
    if total <= 0:
        return np.ones(DRAWS)
    out = np.zeros(DRAWS)
    for part, seconds in parts.items():
        itself = ((part, 1),) if part in draws.profile.parameters else ()  # a measured term
        stretched = np.full(DRAWS, seconds / total)
        for name, sign in rules.get(part, itself):
            stretched = stretched * draws.stretch(name, sign)
        out += stretched
    return out


def _normals(name: str) -> Floats:
    return np.random.default_rng([SEED, *name.encode()]).standard_normal(DRAWS)


def _correlated(pairs: Mapping[tuple[str, str], float]) -> dict[str, Floats]:
    """Normals of the parameters in `pairs`, correlated; pairs that contradict each other as nearly as can be."""
    names = sorted({name for pair in pairs for name in pair})
    if not names:
        return {}
    scores = correlation_root(pairs, names) @ np.stack([_normals(name) for name in names])
    return dict(zip(names, scores, strict=True))


def correlation_root(pairs: Mapping[tuple[str, str], float], names: Sequence[str]) -> Floats:
    """A square root [names, names] of the correlation matrix; negative eigenvalues (pairs that don't go together) cut
    off.
    """
    matrix = np.eye(len(names))
    for (a, b), rho in pairs.items():
        if a in names and b in names:
            i, j = names.index(a), names.index(b)
            matrix[i, j] = matrix[j, i] = rho
    values, vectors = np.linalg.eigh(matrix)
    root = vectors * np.sqrt(np.maximum(values, 0.0))
    return np.asarray(root / np.sqrt((root**2).sum(axis=1, keepdims=True)))


def log_range(profile: Profile, name: str, sign: int) -> Spread:
    """Log distances from the value down and up, as durations see them: an inverse parameter swaps the sides."""
    value = profile.value(name)
    if value == 0:  # a measured term that is not there
        return 0.0, 0.0
    down, up = math.log(value / max(profile.low(name), FAINT * value)), math.log(profile.high(name) / value)
    return (down, up) if sign > 0 else (up, down)


@dataclass(frozen=True)
class Typical:
    """Seconds by cause of every phase, at a typical batch. iteration: one decode iteration of each kind of engine."""

    update: Parts
    logprob: Parts
    weight_sync: Parts
    iteration: Sequence[Parts]
    switch: Parts
    controller: Parts
    reward: Parts
    fsdp: bool


def phase_spreads(profile: Profile, typical: Typical) -> dict[str, Floats]:
    """Every phase's multipliers, and `software`: what versions of a framework differ by, in all phases at once."""
    draws = ParameterDraws(profile)
    forward = multipliers(typical.logprob, LOGPROB, draws)
    switch = multipliers(typical.switch, SWITCH, draws)
    rollout = np.mean([multipliers(parts, ROLLOUT, draws) for parts in typical.iteration], axis=0)
    return {
        "rollout": rollout,
        "generate": rollout,
        "prefill": rollout,
        "reprefill": rollout,
        "reward": multipliers(typical.reward, REWARD, draws),
        "logprob": forward,
        "reference": forward,
        "train": multipliers(typical.update, UPDATE, draws),
        "weight_sync": multipliers(typical.weight_sync, FSDP_SYNC if typical.fsdp else WEIGHT_SYNC, draws),
        "offload": switch,
        "onload": switch,
        "other": multipliers(typical.controller, CONTROLLER, draws),
        "software": draws.stretch("software_noise", 1),
    }
