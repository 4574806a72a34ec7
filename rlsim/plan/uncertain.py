"""Inputs that a user is unsure of: each with a low and a high value, and why those."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import Literal

from rlsim.api import Check, simulate
from rlsim.catalog.profiles import Profile
from rlsim.distributions import DEFAULT_SIGMA
from rlsim.errors import UserError
from rlsim.inputs import Change
from rlsim.memory import check_memory
from rlsim.plan.keys import PROFILE, attribute_of, resolve_key, value_at
from rlsim.plan.space import Range, range_of
from rlsim.scenario.quantity import DIMENSIONS
from rlsim.scenario.schema import LengthSpec
from rlsim.workload import DEFAULT_CORRELATION

STATISTICS = ("mean", "p50", "p90", "p95", "p99")
ASSUMED = (0.30, 0.80)
"""Spread of the lengths (standard deviation of the logarithm) where a file gives none and 0.45 is assumed."""
WIDE = 4.0
"""Ratio of high to low from which values between them are spread evenly in the logarithm."""


@dataclass(frozen=True)
class Input:
    """One input and its range. `value`: what the run has, as text; `source`: why low and high are what they are."""

    key: str
    label: str
    unit: str
    kind: Literal["profile", "scenario"]
    source: str
    value: str
    range: Range

    @property
    def low(self) -> str:
        return self.range.text(self.range.low)

    @property
    def high(self) -> str:
        return self.range.text(self.range.high)


def inputs_of(reports: Sequence[Check], over: Sequence[str], priced: bool) -> tuple[tuple[Input, ...], tuple[str, ...]]:
    """The inputs to vary, and keys of the profile that these runs do not read, so that they cannot change them.

    `over`: `key=low..high[:log]`, or `key` with its default range; empty: every default. `priced`: the figure looked at
    is in dollars.
    """
    report = reports[0]
    profile = report.system.profile
    ranged = [name for name, one in profile.parameters.items() if one.low < one.high]
    if over:
        found = tuple(_asked(text, report, priced) for text in over)
        keys = [one.key for one in found]
        twice = next((key for key in keys if keys.count(key) > 1), None)
        if twice is not None:
            raise UserError("given twice", key=f"--over {twice}", fix="one --over for each input")
        return found, ()
    read = set().union(*(used(one) for one in reports))
    own = (*defaults(report, priced), *(_of_profile(profile, name) for name in ranged if name in read))
    return own, tuple(PROFILE + name for name in ranged if name not in read)


def _asked(text: str, report: Check, priced: bool) -> Input:
    profile = report.system.profile
    name, equals, given = text.partition("=")
    key = resolve_key(name, "--over", profile)
    short = key.removeprefix(PROFILE)
    default = next((one for one in defaults(report, priced) if one.key == key), None)
    if key.startswith(PROFILE) and profile.parameters[short].low < profile.parameters[short].high:
        default = _of_profile(profile, short)
    if not equals:
        if default is None:
            raise UserError("no range is known for it", key=f"--over {key}", fix=f"--over {key}=low..high")
        return default
    if ".." not in given:
        raise UserError(f"{given!r} is not a range", key=f"--over {key}", fix=f"--over {key}=low..high")
    reach = range_of(key, given, "--over")
    if default is not None:
        return replace(default, range=reach, source="as asked")
    known = attribute_of(key)
    if known is not None:
        own = value_at(report.scenario, key)
        value = reach.text(float(own)) if isinstance(own, int | float) else ""
    else:
        value = f"{profile.value(short):.6g}"
    unit = known.unit if known is not None else profile.parameters[short].unit
    label = known.label if known is not None else profile.parameters[short].description
    return Input(key, label, unit, "scenario" if known is not None else "profile", "as asked", value, reach)


# --- scenario --------------------------------------------------------------------------------------------------------
def defaults(report: Check, priced: bool) -> list[Input]:
    """What a scenario says and people seldom know well, as far as it says it."""
    scenario, work = report.scenario, report.scenario.workload
    found = [] if work.turns is not None else list(_lengths("workload.response_tokens", work.response_tokens))
    found += _lengths("workload.prompt_tokens", work.prompt_tokens)
    if work.group_size > 1 and work.response_tokens.trace is None:
        why = "prior: answers to one prompt are alike, nobody publishes how much"
        given = work.group_correlation
        found.append(
            _scenario("workload.group_correlation", DEFAULT_CORRELATION if given is None else given, 0, 0.6, why)
        )
    if not scenario.cluster.pools:
        nic = report.system.trainer_pool.nic
        found.append(_factor("cluster.nic", nic, 0.5, 2.0, "half or twice the network"))
    for i, entry in enumerate(scenario.rollout):
        key = "rollout" if len(scenario.rollout) == 1 else f"rollout[{i}]"
        share, seqs = entry.memory_utilization, entry.max_num_seqs
        why = "KV budget: 0.1 of the memory less or more"
        found.append(_scenario(f"{key}.memory_utilization", share, share - 0.1, min(0.95, share + 0.1), why))
        most = min(2.0, entry.max_num_batched_tokens / seqs)
        found.append(_factor(f"{key}.max_num_seqs", seqs, 0.5, most, "half or twice"))
    if scenario.trainer.micro_batch_tokens is not None:
        found.append(
            _factor("trainer.micro_batch_tokens", scenario.trainer.micro_batch_tokens, 0.5, 2.0, "half or twice")
        )
    if scenario.weight_sync.bucket is not None:
        found.append(_factor("weight_sync.bucket", scenario.weight_sync.bucket, 0.5, 2.0, "half or twice"))
    if priced:
        price = report.system.trainer_pool.price
        found.append(_factor("costs.gpu_hour", price, 0.75, 4 / 3, "a quarter cheaper, a third dearer"))
    return [one for one in found if one.range.low < one.range.high]


def _lengths(key: str, spec: LengthSpec) -> Iterator[Input]:
    """A quarter less or a third more of every statistic that is given, and the spread."""
    if spec.trace is not None or spec.components or spec.distribution == "constant":
        return
    given = [name for name in STATISTICS if getattr(spec, name) is not None]
    top = (spec.max or math.inf) * 0.98
    for name in given:
        value = getattr(spec, name)
        yield _factor(f"{key}.{name}", value, 0.75, min(4 / 3, top / value), "a quarter shorter, a third longer")
    if spec.clip_ratio:
        yield _factor(f"{key}.clip_ratio", spec.clip_ratio, 0.5, 2.0, "half or twice as many reach the cap")
    if spec.sigma is not None:
        yield _factor(f"{key}.sigma", spec.sigma, 0.7, 1.4, "narrower, wider")
    elif given == ["mean"] and spec.clip_ratio is None and spec.distribution in (None, "lognormal"):
        why = f"the file gives no spread: {DEFAULT_SIGMA:g} is assumed"
        yield _scenario(f"{key}.sigma", DEFAULT_SIGMA, *ASSUMED, why)


def _factor(key: str, value: float, low: float, high: float, source: str) -> Input:
    return _scenario(key, value, value * low, value * high, source)


def _scenario(key: str, value: float, low: float, high: float, source: str) -> Input:
    known = attribute_of(key)
    if known is None:
        raise ValueError(f"no attribute {key}")
    dimension = next((d for d in DIMENSIONS if known.type == d.name), None)
    whole = "whole number" in known.type or known.unit == "tokens"
    reach = Range(low, high, low > 0 and high / low >= WIDE, whole, dimension)
    return Input(key, known.label, known.unit, "scenario", source, reach.text(value), reach)


# --- profile ---------------------------------------------------------------------------------------------------------
@dataclass(frozen=True)
class _Watched(Profile):
    """A profile that remembers which values were asked for."""

    read: set[str] = field(default_factory=set)

    def value(self, name: str) -> float:
        self.read.add(name)
        return super().value(name)


def used(report: Check) -> set[str]:
    """Parameters of the profile that memory, prices and simulation of a scenario read. A run that does not read one
    is the same run whatever its value, as long as nothing else is changed too.
    """
    profile = report.system.profile
    watched = _Watched(**{one.name: getattr(profile, one.name) for one in fields(profile)})
    check_memory(replace(report.system, profile=watched))
    simulate(report.scenario, steps=1, change=Change(system=lambda system: replace(system, profile=watched)))
    return watched.read | {name for name in profile.parameters if name.startswith("measured.")}


def _of_profile(profile: Profile, name: str) -> Input:
    one = profile.parameters[name]
    reach = Range(one.low, one.high, one.low > 0 and one.high / one.low >= WIDE, False, None)
    return Input(PROFILE + name, one.description, one.unit, "profile", one.source, f"{one.value:.6g}", reach)
