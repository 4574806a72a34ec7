"""Keys that a file gives and the rest of it leaves without effect: allowed, and told by `rlsim check`."""

from __future__ import annotations

from collections.abc import Iterator

from rlsim.catalog.switch_orders import order_of
from rlsim.scenario.policies import unused_keys
from rlsim.scenario.schema import Scenario


def inert_blocks(scenario: Scenario) -> list[str]:
    """Blocks and keys the file gives that the rest of it leaves without effect, each with the reason."""
    inert = []
    given = scenario.model_fields_set
    lends = scenario.schedule == "async" and scenario.remedies.elastic is not None
    if scenario.remedies.elastic is not None and not lends:
        inert.append("remedies.elastic (schedule is not async)")
    if "offload" in given and scenario.placement != "colocated" and not lends:
        inert.append("offload (placement is not colocated)")
    if "async_" in given and scenario.schedule != "async":
        inert.append("async (schedule is not async)")
    if scenario.weight_sync.overlap and scenario.schedule != "async":
        inert.append("weight_sync.overlap (schedule is not async)")
    if scenario.weight_sync.rebuild_group and scenario.placement == "colocated":
        inert.append("weight_sync.rebuild_group (placement is colocated: weights are handed over on the GPU)")
    if scenario.weight_sync.pause and scenario.schedule != "async":
        inert.append("weight_sync.pause (schedule is not async: no engine runs)")
    if scenario.schedule == "async":
        long_tail = [name for name in ("over_sampling", "consolidate") if getattr(scenario.remedies, name) is not None]
        inert += [f"remedies.{name} (schedule is async: no step waits for the last samples)" for name in long_tail]
    unused = (_unused_remedies, _unused_by_policy, _kept_parameters, _unused_by_trainer)
    return [*inert, *(line for keys in unused for line in keys(scenario))]


def _unused_remedies(s: Scenario) -> Iterator[str]:
    dynamic, together = s.workload.dynamic_sampling, s.remedies.consolidate
    if dynamic is not None and dynamic.fetch is not None:
        fetches = dynamic.refill == "fetch" or (dynamic.refill == "auto" and s.framework.name == "slime")
        if not fetches:
            yield f"workload.dynamic_sampling.fetch (refill is {dynamic.refill})"
    if together is not None and s.schedule == "sync" and "early_logprob" in together.model_fields_set:
        if s.placement != "colocated":
            yield "remedies.consolidate.early_logprob (placement is not colocated)"
        elif s.workload.logprob == "rollout":
            yield "remedies.consolidate.early_logprob (there is no log-prob pass)"


def _unused_by_policy(s: Scenario) -> Iterator[str]:
    """Every framework bounds staleness by parameters of its own."""
    if s.schedule == "async":
        for key in unused_keys(s.async_):
            yield f"async.{key} (policy {s.async_.policy} does not use it)"


def _kept_parameters(s: Scenario) -> Iterator[str]:
    """Some frameworks keep the trainer's weights on the GPU whatever the file says."""
    asked = s.placement == "colocated" and "params" in s.offload.model_fields_set and s.offload.params
    if asked and order_of(s.framework.name, s.trainer.backend).keeps_parameters:
        yield f"offload.params (framework {s.framework.name} keeps them on the GPU)"


def _unused_by_trainer(s: Scenario) -> Iterator[str]:
    """Keys of other backends, and of passes and parallelism that this trainer does not have."""
    t, w = s.trainer, s.workload
    gathers = t.backend == "fsdp2" or (t.backend == "zero" and t.zero_stage == 3)
    unused = {
        "zero_stage": (t.backend != "zero", f"backend is {t.backend}"),
        "param_dtype": (t.backend != "fsdp2", f"backend is {t.backend}"),
        "reshard_after_forward": (not gathers, "weights are not sharded"),
        "sequence_parallel": (t.tp == 1, "tp is 1"),
        "dispatcher": (t.ep == 1, "ep is 1"),
    }
    forward_alone = w.logprob != "rollout" or w.reference_model
    for size in ("tokens", "size"):
        unused[f"logprob_micro_batch_{size}"] = (not forward_alone, "there is no log-prob or reference pass")
    for key, (inert, reason) in unused.items():
        if inert and key in t.model_fields_set:
            yield f"trainer.{key} ({reason})"
