"""Pre-flight checks that need only the scenario: small named functions, each yielding what is wrong.

What has to divide what in a layout is checked when it is built, in `trainer_checks.py` and `engine_checks.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

from rlsim.distributions import UnreachableError
from rlsim.memory_lengths import image_tokens
from rlsim.scenario.lengths import curve_of, mixture_table
from rlsim.scenario.policies import POLICIES
from rlsim.scenario.pool_checks import POOL_CHECKS
from rlsim.scenario.role_checks import ROLE_CHECKS
from rlsim.scenario.schema import LengthSpec, Scenario, SecondsSpec
from rlsim.scenario.source import path_of
from rlsim.scenario.translate import Complaint

Check = Callable[[Scenario], Iterator[Complaint]]


def _wrong(key: str, message: str, fix: str | None = None) -> Complaint:
    return Complaint(path_of(key), message, fix)


def schedule_suits_placement(s: Scenario) -> Iterator[Complaint]:
    """Roles that share GPUs take turns, so they cannot overlap."""
    if s.placement == "colocated" and s.schedule != "sync":
        yield _wrong(
            "schedule",
            f"{s.schedule} needs GPUs for each role, but placement is colocated",
            "schedule: sync, or placement: disaggregated",
        )


def nodes_are_whole(s: Scenario) -> Iterator[Complaint]:
    cluster = s.cluster
    if cluster.gpus > cluster.gpus_per_node and cluster.gpus % cluster.gpus_per_node:
        whole = -(-cluster.gpus // cluster.gpus_per_node) * cluster.gpus_per_node
        yield _wrong(
            "cluster.gpus",
            f"{cluster.gpus} GPUs are not whole nodes of {cluster.gpus_per_node}",
            f"for example {whole}",
        )


def roles_fit_cluster(s: Scenario) -> Iterator[Complaint]:
    """Co-located: both roles have the same GPUs; disaggregated: together no more than there are."""
    if s.cluster.pools:
        return
    total, training, rolling = s.cluster.gpus - s.roles.gpus, s.trainer.gpus, sum(entry.gpus for entry in s.rollout)
    rest = f" beside the {s.roles.gpus} of other roles" if s.roles.gpus else ""
    if s.placement == "colocated":
        if training != rolling:
            yield _wrong(
                "rollout.gpus",
                f"co-located roles share GPUs, but trainer.gpus is {training} and rollout.gpus is {rolling}",
                f"the same number for both, for example {min(total, max(training, rolling))}",
            )
        for key, gpus in (("trainer.gpus", training), ("rollout.gpus", rolling)):
            if gpus > total:
                yield _wrong(key, f"{gpus} GPUs, but the cluster has {total}{rest}", f"at most {total}")
    elif training + rolling > total:
        fix = f"trainer.gpus + rollout.gpus ≤ {total}"
        if training < total:
            fix += f", for example rollout.gpus: {total - training}"
        message = (
            f"trainer {training} + rollout {rolling} = {training + rolling} GPUs, but the cluster has {total}{rest}"
        )
        yield _wrong("rollout.gpus", message, fix)


def prefill_feeds_decode(s: Scenario) -> Iterator[Complaint]:
    """Prefill engines need decode engines and the other way round; engines that do both don't mix with them."""
    roles = [entry.role for entry in s.rollout]
    if set(roles) == {"mixed"}:
        return
    if sorted(roles) != ["decode", "prefill"]:
        yield _wrong(
            "rollout",
            f"entries with role {', '.join(roles)}",
            "one entry with role: prefill and one with role: decode, or role: mixed for all",
        )
        return
    if s.rollout[0].kv_dtype != s.rollout[1].kv_dtype:
        yield _wrong("rollout[1].kv_dtype", "KV that travels has one dtype", f"kv_dtype: {s.rollout[0].kv_dtype}")
    for remedy in ("consolidate", "elastic"):
        if getattr(s.remedies, remedy) is not None:
            yield _wrong(
                f"remedies.{remedy}", "it moves samples between engines that prefill and decode", "role: mixed"
            )


def mini_batches_divide(s: Scenario) -> Iterator[Complaint]:
    samples, parts = s.workload.samples, s.workload.updates.mini_batches
    if samples % parts:
        yield _wrong(
            "workload.updates.mini_batches",
            f"{parts} mini-batches do not divide {samples} samples (prompts·group_size)",
            f"for example {_divisor_near(samples, parts)}",
        )


def mini_batch_feeds_ranks(s: Scenario) -> Iterator[Complaint]:
    """Every data-parallel rank gets at least one sample of a mini-batch."""
    t = s.trainer
    ranks = t.gpus // (t.tp * t.pp * t.cp * t.ulysses)
    mini_batch = s.workload.samples // s.workload.updates.mini_batches
    if mini_batch < ranks:
        yield _wrong(
            "workload.updates.mini_batches",
            f"{mini_batch} samples in a mini-batch leave some of {ranks} data-parallel ranks without work",
            "fewer mini-batches, more prompts, or a larger tp, pp or cp",
        )


def backend_has_option(s: Scenario) -> Iterator[Complaint]:
    """Options belong to backends that have them (parallel sizes: `trainer_checks`)."""
    t = s.trainer
    if t.backend == "fsdp2":
        for key in ("pp", "vpp"):
            if getattr(t, key) > 1:
                yield _wrong(f"trainer.{key}", "backend fsdp2 has no pipeline", f"{key}: 1, or backend: megatron")
    elif t.fsdp_size is not None:
        yield _wrong("trainer.fsdp_size", f"backend {t.backend} has no FSDP group", "backend: fsdp2, or delete it")
    if t.pp_layers is not None and t.pp == 1:
        yield _wrong("trainer.pp_layers", "layers per stage need pp > 1", "delete pp_layers")


def lengths_have_a_cap(s: Scenario) -> Iterator[Complaint]:
    """A cap makes the longest sample finite; engines and memory need it."""
    for name in ("prompt_tokens", "response_tokens"):
        spec = getattr(s.workload, name)
        if spec.max is None and spec.trace is None and spec.distribution != "constant":
            yield _wrong(
                f"workload.{name}",
                "max is missing",
                "max: the cap in tokens, for example {mean: 900, max: 4096}",
            )


def lengths_fit_total(s: Scenario) -> Iterator[Complaint]:
    limit, longest = s.workload.total_tokens, s.workload.prompt_tokens.max
    if longest is not None:
        longest += image_tokens(s.workload).longest
    if limit is not None and longest is not None and longest >= limit.max:
        yield _wrong(
            "workload.total_tokens.max",
            f"the longest prompt ({longest:g}) leaves no token for a response",
            f"> {longest:g}",
        )


def lengths_can_be_met(s: Scenario) -> Iterator[Complaint]:
    """Some distribution of the family has the statistics given."""
    reward = s.workload.reward.seconds
    specs: dict[str, LengthSpec | SecondsSpec] = {
        "workload.prompt_tokens": s.workload.prompt_tokens,
        "workload.response_tokens": s.workload.response_tokens,
        **({"workload.reward.seconds": reward} if reward is not None else {}),
    }
    for key, spec in specs.items():
        try:
            if isinstance(spec, LengthSpec) and spec.components:
                mixture_table(spec.components)
            elif not isinstance(spec, LengthSpec) or spec.trace is None:
                curve_of(spec)
        except UnreachableError as error:
            yield _wrong(key, error.message, error.fix)


def traces_exist(s: Scenario) -> Iterator[Complaint]:
    for name in ("prompt_tokens", "response_tokens"):
        trace = getattr(s.workload, name).trace
        if trace is not None and not Path(trace).is_file():
            yield _wrong(f"workload.{name}.trace", f"no such file: {trace}", "a path relative to the scenario file")


def rewards_have_a_time(s: Scenario) -> Iterator[Complaint]:
    """Sandboxes and models take the time that the scenario gives; a trace may have it (`workload_checks`)."""
    reward = s.workload.reward
    if reward.kind == "model" and s.roles.reward_model is not None:
        for key in ("seconds", "workers", "timeout"):
            if getattr(reward, key) is not None:
                yield _wrong(f"workload.reward.{key}", "roles.reward_model says what a sample takes", f"delete {key}")
        return
    if reward.kind == "model" and reward.workers is None:
        yield _wrong(
            "workload.reward", "a model reward needs workers", "for example workers: 256, or roles.reward_model"
        )
    if reward.kind in ("sandbox", "model") and reward.seconds is None and s.workload.response_tokens.trace is None:
        yield _wrong("workload.reward", f"a {reward.kind} reward needs seconds", "for example seconds: 2 s")


HAND_OVERS = ("ipc", "verl-naive-ipc")


def sync_suits_placement(s: Scenario) -> Iterator[Complaint]:
    if s.weight_sync.strategy in HAND_OVERS and s.placement == "disaggregated":
        yield _wrong(
            "weight_sync.strategy",
            f"{s.weight_sync.strategy} hands weights over on one GPU, but the roles have different GPUs",
            "auto or broadcast",
        )


def partial_rollout_is_consistent(s: Scenario) -> Iterator[Complaint]:
    if not s.async_.partial_rollout and s.async_.on_sync in ("interrupt", "in-flight"):
        yield _wrong(
            "async.on_sync",
            f"{s.async_.on_sync} goes on with running samples, but partial_rollout is false",
            "drain or abort",
        )


def dynamic_sampling_has_a_pass_rate(s: Scenario) -> Iterator[Complaint]:
    """Dynamic sampling drops groups whose samples are all right or all wrong: some must be neither."""
    work = s.workload
    if work.dynamic_sampling is None:
        return
    if work.pass_rate is None:
        yield _wrong(
            "workload.dynamic_sampling",
            "which groups are dropped follows from the pass rate, and workload.pass_rate is missing",
            "for example pass_rate: {mean: 0.5, concentration: 2}",
        )
    elif work.pass_rate.mean in (0, 1):
        yield _wrong(
            "workload.pass_rate.mean",
            f"at {work.pass_rate.mean:g} all samples of every group have the same reward: dynamic sampling keeps none",
            "between 0 and 1, for example 0.5",
        )
    if work.group_size == 1:
        yield _wrong(
            "workload.group_size",
            "a group of one sample has no unequal rewards: dynamic sampling keeps none",
            "at least 2, for example 8",
        )


def policy_has_whole_rounds(s: Scenario) -> Iterator[Complaint]:
    """verl's trainer takes `require_batches` mini-batches of whole prompts at a time."""
    if s.schedule != "async" or s.async_.policy != "verl":
        return
    prompts, parts, wait = s.workload.prompts, s.workload.updates.mini_batches, s.async_.require_batches or 1
    if prompts % parts:
        yield _wrong(
            "workload.updates.mini_batches",
            f"policy verl trains on mini-batches of prompts, but {parts} do not divide {prompts} prompts",
            f"for example {_divisor_near(prompts, parts)}",
        )
    if parts % wait:
        yield _wrong(
            "async.require_batches",
            f"a step has {parts} mini-batches, which {wait} do not divide",
            f"for example {_divisor_near(parts, wait)}",
        )


def elastic_has_plain_engines(s: Scenario) -> Iterator[Complaint]:
    """Lent engines do both prefill and decode, like those of the first rollout entry."""
    if s.schedule == "async" and s.remedies.elastic is not None and any(entry.role != "mixed" for entry in s.rollout):
        yield _wrong(
            "remedies.elastic",
            "trainer GPUs are lent to engines that prefill and decode, but the rollout has engines for one of them",
            "role: mixed, or delete it",
        )


def policy_can_start(s: Scenario) -> Iterator[Complaint]:
    if s.schedule == "async" and s.async_.policy == "trl" and s.async_.max_staleness < 1:
        yield _wrong(
            "async.max_staleness",
            "policy trl keeps max_staleness · prompts groups in flight, so below 1 a step never gets its groups",
            "max_staleness ≥ 1, or schedule: sync",
        )


def policy_samples_dynamically(s: Scenario) -> Iterator[Complaint]:
    policy = s.async_.policy
    if s.schedule == "async" and s.workload.dynamic_sampling is not None and not POLICIES[policy].dynamic_sampling:
        have = ", ".join(name for name, keys in POLICIES.items() if keys.dynamic_sampling)
        yield _wrong(
            "workload.dynamic_sampling",
            f"policy {policy} has none: its framework trains on every group when it is asynchronous",
            f"one of the policies {have}, or delete it",
        )


def _divisor_near(number: int, near: int) -> int:
    """The largest divisor that is not above `near` (nor above 100,000, which bounds the search)."""
    return next(d for d in range(min(near, number, 100_000), 0, -1) if number % d == 0)


def speculation_is_possible(s: Scenario) -> Iterator[Complaint]:
    """Acceptance is a chance; method draft, and no other, has a model that drafts."""
    for number, entry in enumerate(s.rollout):
        spec = entry.speculative
        if spec is None:
            continue
        key = "rollout.speculative" if len(s.rollout) == 1 else f"rollout.{number}.speculative"
        chances = spec.acceptance.values() if isinstance(spec.acceptance, dict) else [spec.acceptance]
        for chance in chances:
            if not 0 <= chance <= 1:
                yield _wrong(f"{key}.acceptance", f"{chance} is no chance", "from 0 to 1")
        if spec.method == "draft" and spec.draft_model is None:
            yield _wrong(f"{key}.method", "draft needs a model that drafts", "draft_model: a small model")
        if spec.method != "draft" and spec.draft_model is not None:
            yield _wrong(f"{key}.draft_model", f"method {spec.method} has no model of its own", "method: draft")


CHECKS: tuple[Check, ...] = (
    schedule_suits_placement,
    nodes_are_whole,
    roles_fit_cluster,
    prefill_feeds_decode,
    *ROLE_CHECKS,
    mini_batches_divide,
    mini_batch_feeds_ranks,
    backend_has_option,
    lengths_have_a_cap,
    lengths_fit_total,
    lengths_can_be_met,
    traces_exist,
    rewards_have_a_time,
    sync_suits_placement,
    partial_rollout_is_consistent,
    dynamic_sampling_has_a_pass_rate,
    speculation_is_possible,
    *POOL_CHECKS,
    policy_has_whole_rounds,
    policy_can_start,
    elastic_has_plain_engines,
    policy_samples_dynamically,
)


def complaints(scenario: Scenario) -> list[Complaint]:
    """Everything that is wrong with a scenario whose keys are all valid one by one."""
    return [complaint for check in CHECKS for complaint in check(scenario)]
