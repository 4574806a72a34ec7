"""The costs that a step can be simulated without, and when a scenario has them at all."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial

from rlsim.counterfactual import alter
from rlsim.inputs import AS_IT_IS, Change, Inputs
from rlsim.scenario.schema import Scenario
from rlsim.system import System


@dataclass(frozen=True)
class Removal:
    """One cost.

    noun     what it is called in a sentence: "the long tail"
    without  the world in which it is gone: "if every response had the mean length"
    change   how that world differs from the scenario's
    present  whether the scenario can have this cost
    caution  why a step may get longer without it
    """

    name: str
    noun: str
    without: str
    change: Change
    present: Callable[[Scenario], bool] = lambda scenario: True
    caution: str = "other samples are then trained on, or wait for each other"


def _settings(**fields: object) -> Change:
    def changed(inputs: Inputs) -> Inputs:
        return replace(inputs, settings=replace(inputs.settings, **fields))  # type: ignore[arg-type]

    return Change(inputs=changed)


def _profile(**values: float) -> Change:
    return Change(system=partial(alter.profile_values, values=values))


def _balanced(system: System) -> System:
    """Every expert is asked for by equally many tokens, in the trainer and in the engines."""
    return replace(alter.profile_values(system, {"expert_imbalance": 1.0}), balanced_experts=True)


def _no_reference(inputs: Inputs) -> Inputs:
    return replace(
        inputs, settings=replace(inputs.settings, reference=False), costs=replace(inputs.costs, reference=None)
    )


def _no_critic(inputs: Inputs) -> Inputs:
    return replace(inputs, costs=replace(inputs.costs, critic=None))


def _no_faults(inputs: Inputs) -> Inputs:
    return replace(inputs, costs=replace(inputs.costs, faults=()))


def _instant_kv(inputs: Inputs) -> Inputs:
    moved = inputs.costs.kv_transfer
    instant = None if moved is None else replace(moved, bytes_per_token=0.0, latency=0.0)
    return replace(inputs, costs=replace(inputs.costs, kv_transfer=instant))


def _moe(s: Scenario) -> bool:
    return s.trainer.ep > 1 or any(entry.moe_ep > 1 for entry in s.rollout)


def _several_nodes(s: Scenario) -> bool:
    return bool(s.cluster.pools) or s.cluster.gpus > s.cluster.gpus_per_node


def _roles(s: Scenario) -> bool:
    return len({entry.role for entry in s.rollout}) > 1


REMOVALS: tuple[Removal, ...] = (
    Removal(
        "tail",
        "the long tail of response lengths",
        "if every response had the mean length",
        Change(inputs=alter.even_lengths),
    ),
    Removal("weight-sync", "the weight sync", "if new weights were there at once", Change(inputs=alter.free_sync)),
    Removal(
        "interruption",
        "what a weight sync does to running samples",
        "if running samples kept their KV through a weight sync",
        _settings(on_sync="in-flight"),
        lambda s: s.schedule == "async" and s.async_.on_sync != "in-flight",
    ),
    Removal(
        "network",
        "the network between nodes",
        "if NICs and links between pools were infinitely fast",
        Change(system=alter.fast_nics),
        _several_nodes,
    ),
    Removal(
        "communication",
        "exposed communication of the trainer",
        "if the trainer's collectives took no time",
        Change(inputs=lambda inputs: alter.without_parts(inputs, *alter.COMMUNICATION)),
        lambda s: s.trainer.gpus > 1,
    ),
    Removal(
        "imbalance",
        "imbalance between the trainer's ranks",
        "if every data-parallel rank had the mean rank's work",
        Change(inputs=lambda inputs: alter.without_parts(inputs, "imbalance")),
        lambda s: s.trainer.gpus > 1,
    ),
    Removal(
        "bubble",
        "the pipeline bubble",
        "if no pipeline stage ever waited",
        Change(inputs=lambda inputs: alter.without_parts(inputs, "bubble")),
        lambda s: s.trainer.pp > 1,
    ),
    Removal(
        "recompute",
        "recomputing activations",
        "if all activations were kept for nothing",
        Change(system=lambda system: alter.trainer_options(system, recompute="none")),
        lambda s: s.trainer.recompute != "none",
    ),
    Removal(
        "experts",
        "uneven load of the experts",
        "if every expert got equally many tokens",
        Change(system=_balanced),
        _moe,
        "few tokens spread evenly reach more experts, and the weights of each are read",
    ),
    Removal(
        "host",
        "host overhead of engines and trainer",
        "if no GPU ever waited for the host that launches its kernels",
        _profile(**dict.fromkeys(alter.HOST, 0.0)),
    ),
    Removal(
        "gpu-spread",
        "the unequal speed of GPUs",
        "if all GPUs of the trainer were equally fast",
        _profile(gpu_speed_spread=0.0),
        lambda s: s.trainer.gpus > 1,
    ),
    Removal(
        "kv",
        "the limited KV cache",
        "if KV memory had no end",
        Change(inputs=lambda inputs: alter.surfaces(inputs, kv_capacity_tokens=alter.ENDLESS_KV)),
    ),
    Removal(
        "prefill",
        "prefill (prompts, and contexts that lost their KV)",
        "if prefill took no time",
        Change(inputs=alter.free_prefill),
    ),
    Removal(
        "kv-transfer",
        "moving KV from prefill to decode engines",
        "if KV were there at once",
        Change(inputs=_instant_kv),
        _roles,
    ),
    Removal(
        "offload",
        "the switch (offload and onload)",
        "if states and engines came and went in no time",
        Change(inputs=alter.free_switch),
        lambda s: s.placement == "colocated" or s.remedies.elastic is not None,
    ),
    Removal("reward", "the reward", "if every score were there with the last token", Change(inputs=alter.no_reward)),
    Removal(
        "environment",
        "waiting for environments",
        "if environments answered at once",
        Change(inputs=alter.no_waits),
        lambda s: s.workload.turns is not None,
    ),
    Removal(
        "zero-variance",
        "replacing groups whose rewards are all equal",
        "if every group carried a gradient",
        _settings(pass_rate=None),
        lambda s: s.workload.dynamic_sampling is not None,
    ),
    Removal(
        "logprob",
        "the log-prob pass",
        "if the engines' log-probs were taken",
        _settings(logprob="rollout"),
        lambda s: s.workload.logprob != "rollout",
    ),
    Removal(
        "reference",
        "the reference model's pass",
        "if there were no KL term",
        Change(inputs=_no_reference),
        lambda s: s.workload.reference_model,
    ),
    Removal(
        "critic",
        "the critic",
        "if its passes took no time",
        Change(inputs=_no_critic),
        lambda s: s.workload.algorithm == "ppo",
    ),
    Removal(
        "controller",
        "the controller with its fixed cost of a step",
        "if the driver took no time",
        Change(inputs=alter.free_controller),
    ),
    Removal(
        "checkpoints",
        "checkpointing",
        "if nothing were saved",
        _settings(checkpoint_every=None),
        lambda s: s.run.checkpoint_every is not None,
    ),
    Removal(
        "evaluation",
        "evaluation",
        "if nothing were evaluated",
        _settings(evaluation=None),
        lambda s: s.run.eval is not None,
    ),
    Removal(
        "faults",
        "what goes wrong (faults)",
        "if nothing went wrong",
        Change(inputs=_no_faults),
        lambda s: bool(s.faults),
    ),
)
BY_NAME = {removal.name: removal for removal in REMOVALS}


def present(scenario: Scenario) -> Iterator[Removal]:
    """The costs that this scenario can have."""
    return (removal for removal in REMOVALS if removal.present(scenario))


def together(names: tuple[str, ...]) -> Change:
    """Several costs removed at once."""
    change = AS_IT_IS
    for name in names:
        change = change.then(BY_NAME[name].change)
    return change
