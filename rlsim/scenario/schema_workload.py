"""Block `workload`: what one step of the algorithm has to do."""

from __future__ import annotations

from typing import Annotated, Literal, Self

from pydantic import BeforeValidator, model_validator

from rlsim.scenario.block import Block, Seconds, block, from_scalar, item, needed, whole_keys
from rlsim.scenario.quantity import MistakeError
from rlsim.scenario.schema_lengths import LengthSpec, SecondsSpec, TokenLimit


class Updates(Block):
    """Optimizer updates of one step: mini_batches × epochs."""

    mini_batches: int = item(1, "mini-batches per step", unit="mini-batches", ge=1)
    epochs: int = item(1, "epochs over the batch of a step", unit="epochs", ge=1)


class Reward(Block):
    """How samples are scored."""

    kind: Literal["rule", "sandbox", "model", "environment"] = item(
        "rule", "reward: rule (CPU), sandbox (pool of workers), model (GPU) or environment (comes with its last answer)"
    )
    seconds: SecondsSpec | None = item(
        None, "reward time of one sample; default the trace's, or the profile's for rules"
    )
    workers: int | None = item(None, "reward workers: samples scored at the same time", unit="workers", ge=1)
    timeout: Seconds | None = item(None, "reward time-out of one try", gt=0)
    retries: int = item(0, "reward retries after a time-out", ge=0)
    streaming: bool = item(
        True,
        "streaming reward: samples are scored as they finish; else the whole batch (async: the group) once it is done",
    )

    @model_validator(mode="after")
    def _complete(self) -> Self:
        if self.kind == "sandbox" and self.workers is None:
            raise MistakeError("a sandbox reward needs workers", "for example workers: 256")
        if self.kind == "environment" and (self.seconds, self.workers, self.timeout) != (None, None, None):
            raise MistakeError(
                "the reward of an environment comes with its last answer, at no time of its own",
                "only `kind: environment`; times and workers of the environment belong to workload.turns",
            )
        if self.retries and self.timeout is None:
            raise MistakeError("retries need a time-out", "for example timeout: 30 s")
        return self


class Images(Block):
    """Images in the prompt."""

    per_prompt: float = needed("images per prompt", unit="images", gt=0)
    tokens: int = needed("tokens of one image", unit="tokens", ge=1)


class Turns(Block):
    """Several turns with an environment between them."""

    count: LengthSpec = needed("turns of a sample")
    tokens: LengthSpec = needed("tokens generated per turn")
    observation_tokens: LengthSpec | None = item(None, "tokens of the environment's answer")
    wait: SecondsSpec | None = item(None, "environment time of one turn")
    kv: Literal["keep", "drop"] = item("keep", "KV cache while waiting: keep or drop")
    workers: int | None = item(None, "environment workers", unit="workers", ge=1)
    timeout: Seconds | None = item(None, "environment time-out of one turn", gt=0)
    failure_rate: float = item(0.0, "environment failure rate: share of calls that fail", ge=0, lt=1)
    retries: int = item(0, "environment retries after a failure or a time-out", ge=0)
    on_failure: Literal["end", "drop"] = item(
        "end", "sample whose environment has failed for good: end (trained as far as it is) or drop (its group is lost)"
    )


class PassRate(Block):
    """How often a prompt's samples are right; a bare number is the same for all prompts."""

    mean: float = needed("pass rate: mean share of right samples", ge=0, le=1)
    concentration: float | None = item(None, "pass rate concentration: of a beta distribution over prompts", gt=0)

    _short = model_validator(mode="before")(from_scalar("mean", int, float))


class Drift(Block):
    """How response lengths change over the steps; a bare number is growth per step.

    The mean after the cap moves; the cap stays, so the clip ratio moves too.
    """

    per_step: float | None = item(
        None, "drift: growth of the mean length per step, relative to the first measured step", gt=-1
    )
    table: Annotated[dict[int, float], BeforeValidator(whole_keys)] | None = item(
        None, "drift table: factor of the mean length by step, linear between, constant outside"
    )

    _short = model_validator(mode="before")(from_scalar("per_step", int, float))

    @model_validator(mode="after")
    def _one_of_two(self) -> Self:
        if (self.per_step is None) == (self.table is None):
            raise MistakeError(
                "drift is either per_step or a table", "drift: 0.01, or drift: {table: {0: 1, 100: 1.4}}"
            )
        if self.table is not None and (not self.table or min(self.table) < 0 or min(self.table.values()) <= 0):
            raise MistakeError("a drift table has steps from 0 and factors above 0", "table: {0: 1.0, 100: 1.4}")
        return self


class DynamicSampling(Block):
    """Groups whose samples all have the same reward carry no gradient: they are dropped and replaced."""

    refill: Literal["auto", "batch", "replace", "double", "fetch"] = item(
        "auto",
        "refill after dropped groups: batch (whole batches again, NeMo-RL), replace (one for one, OpenRLHF), double "
        "(two for one, verl), fetch (a fixed number, slime); auto is the framework's own",
    )
    fetch: int | None = item(None, "groups fetched at a time (refill: fetch); default prompts", unit="groups", ge=1)
    max_batches: int = item(10, "batches generated at most for one step", unit="batches", ge=1)


def _whole_or_real_keys(value: object) -> object:
    """Staleness as numbers: the keys of a YAML mapping are read as text."""
    if not isinstance(value, dict):
        return value
    try:
        return {float(key): factor for key, factor in value.items()}
    except (TypeError, ValueError):
        return value


class Workload(Block):
    """The batch of one step."""

    algorithm: Literal["grpo", "ppo"] = item("grpo", "algorithm")
    prompts: int = needed("prompts per step", unit="prompts", ge=1)
    group_size: int = needed("group size: responses per prompt", unit="samples", ge=1)
    prompt_tokens: LengthSpec = needed("prompt length")
    response_tokens: LengthSpec = needed("response length")
    total_tokens: TokenLimit | None = item(None, "limit of prompt and response together")
    group_correlation: float | None = item(
        None, "group correlation: of the lengths within a group; default 0.3, or the trace's own", ge=0, lt=1
    )
    updates: Updates = block(Updates, "optimizer updates of a step")
    logprob: Literal["recompute", "rollout", "decoupled"] = item(
        "recompute", "log-probs of the old policy: recompute, rollout (the engine's, bypass) or decoupled"
    )
    reference_model: bool = item(False, "reference model: a forward pass of it for the KL term")
    reward: Reward = block(Reward, "reward")
    images: Images | None = item(None, "images in the prompt")
    turns: Turns | None = item(None, "turns with an environment; default one turn")
    pass_rate: PassRate | None = item(None, "pass rate of the samples, for dynamic sampling")
    dynamic_sampling: DynamicSampling | None = item(
        None, "dynamic sampling: groups of equal rewards are dropped and replaced; needs pass_rate"
    )
    drift: Drift | None = item(None, "drift of the lengths over steps")
    learning_efficiency: Annotated[dict[float, float], BeforeValidator(_whole_or_real_keys)] | None = item(
        None, "learning efficiency: worth of a sample by its staleness, {0: 1, 4: 0.9}; default 1 whatever its age"
    )

    @property
    def samples(self) -> int:
        """Samples per step: prompts × group size."""
        return self.prompts * self.group_size
