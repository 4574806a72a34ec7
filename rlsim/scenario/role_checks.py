"""Pre-flight checks of critic, reference and reward model."""

from __future__ import annotations

from collections.abc import Iterator

from rlsim.scenario.schema import Scenario
from rlsim.scenario.source import path_of
from rlsim.scenario.translate import Complaint


def wrong(key: str, message: str, fix: str | None = None) -> Complaint:
    """A complaint at a dotted key."""
    return Complaint(path_of(key), message, fix)


def roles_have_work(s: Scenario) -> Iterator[Complaint]:
    """A role is described only where the step needs that model."""
    needs = {
        "critic": (s.workload.algorithm == "ppo", "algorithm is grpo, which has no critic", "algorithm: ppo"),
        "reference": (s.workload.reference_model, "there is no reference pass", "reference_model: true"),
        "reward_model": (
            s.workload.reward.kind == "model",
            f"reward.kind is {s.workload.reward.kind}",
            "reward: {kind: model}",
        ),
    }
    for name, (needed, message, fix) in needs.items():
        if getattr(s.roles, name) is not None and not needed:
            yield wrong(f"roles.{name}", message, f"workload.{fix}, or delete roles.{name}")
    if s.roles.reference is not None and s.roles.reference.gpus is None:
        yield wrong("roles.reference", "without GPUs of its own the reference is as if left out", "give it gpus")


def roles_are_whole_replicas(s: Scenario) -> Iterator[Complaint]:
    """tp·pp divides a role's GPUs; both need GPUs of its own."""
    for name in ("critic", "reference", "reward_model"):
        role = getattr(s.roles, name)
        if role is None:
            continue
        if role.gpus is None:
            for key in ("tp", "pp", "pool"):
                if key in role.model_fields_set:
                    yield wrong(f"roles.{name}.{key}", "the role has the trainer's GPUs and layout", "give it gpus")
        elif role.gpus % (role.tp * role.pp):
            whole = -(-role.gpus // (role.tp * role.pp)) * role.tp * role.pp
            yield wrong(
                f"roles.{name}.gpus", f"tp {role.tp} · pp {role.pp} does not divide {role.gpus} GPUs", f"gpus: {whole}"
            )


ROLE_CHECKS = (roles_have_work, roles_are_whole_replicas)
