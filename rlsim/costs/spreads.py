"""How wrong each phase may be: the ranges of the profile's parameters carried over to the phases they price.

First order: a part of a phase that is proportional to a parameter (or to its inverse) moves by the parameter's range;
a phase's log-deviation is the sum over its parts, weighted by their shares; independent parameters add in quadrature.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from rlsim.catalog.profiles import Profile

Spread = tuple[float, float]
Rules = Mapping[str, tuple[tuple[str, int], ...]]

FAINT = 0.05  # share of a value below which a range's lower end, which may be 0, makes no difference
COMPUTE = (("gemm_derate", 1),)
TRAINING: Rules = {
    "compute": COMPUTE,
    "attention": (("attention_forward_efficiency", -1), ("attention_backward_efficiency", -1)),
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
}
UPDATE: Rules = {**TRAINING, "fixed": (("update_fixed_s", 1),)}
LOGPROB: Rules = {**TRAINING, "fixed": (("logprob_fixed_s", 1),)}
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
    "fixed": (("refit_fixed_s", 1),),
}
FSDP_SYNC: Rules = {**WEIGHT_SYNC, "gather": (("refit_fsdp_gather_rate", -1),)}
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
}
REWARD: Rules = {"rule": (("reward_rule_s", 1),)}
Parts = Mapping[str, float]


def spread(parts: Parts, rules: Rules, profile: Profile) -> Spread:
    """(10th, 90th percentile) of a phase's true duration over the predicted one.

    `parts` are seconds by cause; only their shares matter. A part without a rule is taken as exact.
    """
    total = sum(parts.values())
    below: dict[str, float] = defaultdict(float)
    above: dict[str, float] = defaultdict(float)
    for part, seconds in parts.items():
        itself = ((part, 1),) if part in profile.parameters else ()  # a measured term
        for name, sign in rules.get(part, itself):
            low, high = _log_range(profile, name, sign)
            share = seconds / total if total > 0 else 0.0
            below[name] += share * low
            above[name] += share * high
    return math.exp(-math.hypot(*below.values())), math.exp(math.hypot(*above.values()))


def _log_range(profile: Profile, name: str, sign: int) -> Spread:
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


def phase_spreads(profile: Profile, typical: Typical) -> dict[str, Spread]:
    """Every phase's range, and `software`: what adjacent versions of a framework differ by, in all phases at once."""
    forward = spread(typical.logprob, LOGPROB, profile)
    switch = spread(typical.switch, SWITCH, profile)
    engines = [spread(parts, ROLLOUT, profile) for parts in typical.iteration]
    rollout = (min(low for low, _ in engines), max(high for _, high in engines))
    down, up = _log_range(profile, "software_noise", 1)
    return {
        "rollout": rollout,
        "generate": rollout,
        "prefill": rollout,
        "reprefill": rollout,
        "reward": spread(typical.reward, REWARD, profile),
        "logprob": forward,
        "reference": forward,
        "train": spread(typical.update, UPDATE, profile),
        "weight_sync": spread(typical.weight_sync, FSDP_SYNC if typical.fsdp else WEIGHT_SYNC, profile),
        "offload": switch,
        "onload": switch,
        "other": spread(typical.controller, CONTROLLER, profile),
        "software": (math.exp(-down), math.exp(up)),
    }
