"""Bytes of the models besides the policy: on the trainer's GPUs beside it or in turn with it, on GPUs of their own, and
on the host.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from rlsim.errors import UserError
from rlsim.memory_report import GIB, Breakdown, Problem
from rlsim.memory_trainer import (
    communication_bytes,
    forward_activation_bytes,
    logits_bytes,
    micro_batch_tokens,
    offloadable,
    reference_bytes,
    resident_states,
    trainer_moments,
)
from rlsim.roles import ROLES, own_gpus, role_block, role_system, shares_trainer

if TYPE_CHECKING:
    from rlsim.system import System

STATES = ("weights", "gradients", "optimizer states")


def staying_parts(system: System) -> dict[str, float]:
    """States of a trained model that stay on its fullest GPU while another model has its turn there."""
    leaves = offloadable(system) if system.colocated else dict.fromkeys(STATES, False)
    stages = (resident_states(system, stage) for stage in range(system.trainer.pp))
    kept = ({role: size for role, size in parts.items() if not leaves[role]} for parts in stages)
    return max(kept, key=lambda parts: sum(parts.values()))


def staying_states(system: System) -> float:
    """Their bytes together."""
    return float(sum(staying_parts(system).values()))


def critic_beside(system: System) -> dict[str, float]:
    """The critic's states that stay while the policy works on the same GPUs: all, unless co-located lets them go."""
    if not shares_trainer(system.scenario, "critic"):
        return {}
    staying = staying_states(role_system(system, "critic"))
    return {"critic": staying} if staying else {}


def shared_moments(system: System, asleep: float) -> dict[str, Breakdown]:
    """Moments of the models that take turns with the policy on its GPUs: the critic's passes, the reward model's."""
    moments: dict[str, Breakdown] = {}
    if shares_trainer(system.scenario, "critic"):
        found = trainer_moments(_trained_alone(role_system(system, "critic")), asleep)
        staying = staying_states(system)
        beside = {"policy": staying} if staying else {}
        for name, moment in (("critic values", "logprob"), ("critic update", "train")):
            own = found[moment]
            parts = {f"critic {role}" if role in STATES else role: size for role, size in own.parts.items()}
            moments[name] = Breakdown({**parts, **beside}, name, own.cause)
    if shares_trainer(system.scenario, "reward_model"):
        parts = forward_parts(role_system(system, "reward_model"), "reward model weights", sharded=True)
        staying = staying_states(system)
        if staying:
            parts["policy"] = staying
        parts |= {"engine asleep": asleep} if asleep else {}
        moments["reward"] = Breakdown(parts, "reward", "weights of the reward model")
    return moments


def forward_parts(system: System, weights: str, *, sharded: bool) -> dict[str, float]:
    """One forward-only model on its fullest GPU: bf16 weights (`sharded`: as the trainer's are), one micro-batch."""
    tokens = micro_batch_tokens(system.scenario, logprob=True)
    last = system.trainer.pp - 1
    activations = max(forward_activation_bytes(system, stage, tokens) for stage in range(system.trainer.pp))
    logits = logits_bytes(system, last, tokens, 6.0)
    held = system if sharded else replace(system, trainer=replace(system.trainer, backend="megatron", zero_stage=1))
    return {
        weights: max(reference_bytes(held, stage) for stage in range(system.trainer.pp)),
        "activations": activations,
        "logits": logits,
        "communication buffers": communication_bytes(system),
        "context": system.profile.value("cuda_context_bytes"),
        "allocator slack": system.profile.value("allocator_slack") * (activations + logits),
    }


def own_breakdowns(system: System) -> dict[str, Breakdown]:
    """Each model that has GPUs of its own, on its fullest GPU at its peak."""
    found: dict[str, Breakdown] = {}
    for name in ROLES:
        if not own_gpus(system.scenario, name):
            continue
        found[name.replace("_", " ")] = _own(system, name)
    return found


def _own(system: System, name: str) -> Breakdown:
    role = role_system(system, name)
    if name == "critic":
        alone = trainer_moments(_trained_alone(role), 0.0)
        return max(alone.values(), key=lambda breakdown: breakdown.total)
    parts = forward_parts(role, "weights", sharded=False)
    return Breakdown(parts, "reward" if name == "reward_model" else name, "weights")


def role_problems(system: System, roles: dict[str, Breakdown]) -> list[Problem]:
    """Roles whose own GPUs are too small, without a fix."""
    problems = []
    for spoken, breakdown in roles.items():
        name = spoken.replace(" ", "_")
        have = role_system(system, name).trainer_pool.gpu.hbm_bytes
        if breakdown.total > have:
            by = f"{(breakdown.total - have) / GIB:.1f} GiB too much: {breakdown.consumers()}"
            problems.append(Problem(spoken, breakdown.total, have, by, ""))
    return problems


def host_roles(system: System, gpus: int) -> dict[str, float]:
    """Host bytes of a node of `gpus` trainer GPUs: what the critic offloads, the weights that wait for their turn."""
    parts: dict[str, float] = {}
    if shares_trainer(system.scenario, "critic") and system.colocated:
        critic = role_system(system, "critic")
        leaves = offloadable(critic)
        stages = (resident_states(critic, stage) for stage in range(critic.trainer.pp))
        kept = ("weights", "optimizer states")
        parts["critic"] = gpus * max(sum(s[role] for role in kept if leaves[role]) for s in stages)
    if shares_trainer(system.scenario, "reward_model"):
        role = role_system(system, "reward_model")
        parts["reward model weights"] = gpus * max(reference_bytes(role, s) for s in range(role.trainer.pp))
    return {role: size for role, size in parts.items() if size > 0}


def _trained_alone(system: System) -> System:
    """The system with a log-prob (values) pass and an update, no reference pass."""
    work = system.scenario.workload.model_copy(update={"logprob": "recompute", "reference_model": False})
    return replace(system, scenario=system.scenario.model_copy(update={"workload": work}))


def wider_role(system: System, spoken: str) -> str:
    """The smallest tp, and GPUs for it, at which a model with GPUs of its own fits; found by trying."""
    name = spoken.replace(" ", "_")
    block = role_block(system.scenario, name)
    if block is None or block.gpus is None:
        return ""
    pool = role_system(system, name).trainer_pool
    tp = block.tp
    while tp * 2 <= pool.gpus_per_node:
        tp *= 2
        gpus = -(-block.gpus // (tp * block.pp)) * tp * block.pp
        roles = system.scenario.roles.model_copy(update={name: block.model_copy(update={"tp": tp, "gpus": gpus})})
        changed = replace(system, scenario=system.scenario.model_copy(update={"roles": roles}))
        try:
            total = _own(changed, name).total
        except UserError:
            continue
        if total <= pool.gpu.hbm_bytes:
            wide = f"roles.{name}: {{gpus: {gpus}, tp: {tp}}}"
            return f"{wide} ({total / GIB:.1f} of {pool.gpu.hbm_bytes / GIB:.1f} GiB)"
    return f"no tp of one node fits: a smaller model, or a larger pp of roles.{name}"
