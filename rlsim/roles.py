"""Models besides the policy, each as a system of its own that the trainer's cost and memory models price.

A role without GPUs of its own takes turns with the policy on the trainer's. With its own it is cut by its own tp and
pp: the critic into data-parallel ranks under the trainer's back end, the reference and the reward model, which only
go forward, into replicas that keep whole weights.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from rlsim import catalog
from rlsim.architecture import ModelSpec, value_model
from rlsim.errors import UserError
from rlsim.grids import train_layout
from rlsim.system import Pool, System, pool_of

if TYPE_CHECKING:
    from rlsim.scenario.schema import Role, Scenario

ROLES = ("critic", "reference", "reward_model")


def role_block(scenario: Scenario, name: str) -> Role | None:
    """What the file says of a role; None: nothing, so it has the policy's size and the trainer's GPUs."""
    block: Role | None = getattr(scenario.roles, name)
    return block


def has_role(scenario: Scenario, name: str) -> bool:
    """Whether the step needs this model: PPO a critic, the KL term a reference, `reward.kind: model` a reward model."""
    work = scenario.workload
    return {
        "critic": work.algorithm == "ppo",
        "reference": work.reference_model,
        "reward_model": work.reward.kind == "model" and scenario.roles.reward_model is not None,
    }[name]


def own_gpus(scenario: Scenario, name: str) -> int:
    """GPUs that a role has to itself; 0: it shares the trainer's, or is not there."""
    block = role_block(scenario, name)
    return block.gpus or 0 if block is not None and has_role(scenario, name) else 0


def shares_trainer(scenario: Scenario, name: str) -> bool:
    return has_role(scenario, name) and not own_gpus(scenario, name)


def role_model(system: System, name: str) -> ModelSpec:
    """The policy's model unless the file names another; critic and reward model with a head of one output."""
    block = role_block(system.scenario, name)
    model = system.model if block is None or block.model is None else catalog.model(block.model)
    return model if name == "reference" else value_model(model)


def role_system(system: System, name: str) -> System:
    """The system as if the role's model were the policy: its model, its layout, its GPUs.

    Raises `UserError` at the role's key when the model does not divide as its layout asks.
    """
    scenario = system.scenario
    block = role_block(scenario, name)
    update: dict[str, Any] = {"trainer": scenario.trainer.model_copy(update=_layout_keys(scenario, name))}
    if name != "critic" or (block is not None and block.model is not None):
        update["model"] = scenario.model.model_copy(update={"lora": None})
    own = scenario.model_copy(update=update)
    try:
        model = role_model(system, name)
        layout = train_layout(own, model)
    except UserError as error:
        raise scenario.error(f"roles.{name}", f"{_spoken(name)}: {error.message}", error.fix) from None
    return replace(system, scenario=own, model=model, trainer=layout, trainer_pool=_pool(system, name))


def _pool(system: System, name: str) -> Pool:
    """The role's pool; the trainer's where it has no GPUs of its own."""
    block = role_block(system.scenario, name)
    if block is None or block.gpus is None or block.pool is None:
        return system.trainer_pool
    return pool_of(system.scenario, block.pool)


def _layout_keys(scenario: Scenario, name: str) -> dict[str, Any]:
    """Trainer keys of a role; none change where it shares the trainer's GPUs and layout."""
    block = role_block(scenario, name)
    if block is None or block.gpus is None:
        return {}
    alone = {"vpp": 1, "cp": 1, "ulysses": 1, "ep": 1, "etp": None, "pp_layers": None, "fsdp_size": None}
    keys = {**alone, "gpus": block.gpus, "tp": block.tp, "pp": block.pp, "pool": block.pool}
    return keys if name == "critic" else {**keys, "backend": "megatron", "optimizer_device": "gpu"}


def _spoken(name: str) -> str:
    return name.replace("_", " ")
