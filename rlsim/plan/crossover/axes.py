"""The two axes of a map: the values that an input takes on, and what a scenario is told for each."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from rlsim.errors import UserError
from rlsim.plan.case import Setting
from rlsim.plan.keys import attribute_of, value_at
from rlsim.plan.space import Range, range_of
from rlsim.scenario.schema import Scenario
from rlsim.workload import length_model

GPUS = "cluster.gpus"
LENGTHS = "workload.response_tokens."
QUANTILES = {"p50": 0.50, "p90": 0.90, "p95": 0.95, "p99": 0.99}
STEPS_PER_DOUBLING = 3
BELOW, ABOVE = 8.0, 4.0
"""How far an axis reaches down and up from the file's own value where no range is given."""
MOST = 65
"""Values of an axis at most: a wider range has coarser steps."""
ROOM = 1024
"""A micro-batch that has to hold a longer sample grows to a multiple of so many tokens."""


@dataclass(frozen=True)
class Axis:
    """One input.

    `settings`: what each value sets; `own`: the index of the file's own value, None where it is not there.
    """

    key: str
    label: str
    unit: str
    values: tuple[float, ...]
    settings: tuple[tuple[Setting, ...], ...]
    own: int | None

    def as_dict(self) -> dict[str, Any]:
        return {"key": self.key, "label": self.label, "unit": self.unit, "values": list(self.values)}


def axis(key: str, base: Scenario, given: str | None, option: str) -> Axis:
    """The axis of any key but `cluster.gpus`: response lengths are scaled as a whole, other keys are set."""
    if key.startswith(LENGTHS):
        return _lengths(key, base, given, option)
    known = attribute_of(key)
    if known is None:
        raise UserError("not a key of the scenario", key=option, fix="gpus, response_tokens.p99, or a key with numbers")
    own = value_at(base, key)
    if not isinstance(own, int | float) or isinstance(own, bool):
        own = None
    if given is None and own is None:
        raise UserError(f"the file has no number at {key}", key=option, fix=f"{option}-range low..high")
    reach = range_of(key, given if given is not None else _around(float(own or 0.0), key), f"{option}-range")
    values = _ladder(reach, own)
    texts = [reach.text(value) for value in values]
    settings = tuple(() if value == own else ((key, text),) for value, text in zip(values, texts, strict=True))
    return Axis(key, known.label, known.unit, values, settings, _index(values, own))


def _around(own: float, key: str) -> str:
    """A range around a value, in SI units as a scenario has them."""
    known = attribute_of(key)
    unit = known.unit if known is not None and known.unit in ("B/s", "B", "s", "$/h") else ""
    return f"{own / BELOW:.9g} {unit}..{own * ABOVE:.9g} {unit}".replace(" ..", "..").strip()


def _lengths(key: str, base: Scenario, given: str | None, option: str) -> Axis:
    """Every response longer or shorter by one factor, the cap too, so that the named statistic has the value."""
    name, work = key.removeprefix(LENGTHS), base.workload
    spec = work.response_tokens
    if spec.trace is not None or work.turns is not None:
        fix = "a distribution (`rlsim lengths` fits one to a trace)"
        raise UserError("the lengths of a trace, or of turns, cannot be scaled", key=option, fix=fix)
    model = length_model(spec)
    own = {"mean": model.mean, "max": model.cap, **{n: model.quantile(q) for n, q in QUANTILES.items()}}.get(name)
    if own is None or not math.isfinite(own):
        raise UserError(
            f"no statistic {name!r} to scale by", key=option, fix="response_tokens.p99, mean, p50, p90 or max"
        )
    text = given if given is not None else f"{own / BELOW:.0f}..{own * ABOVE:.0f}"
    values = _ladder(range_of(key, text, f"{option}-range"), own)
    known = attribute_of(key)
    settings = tuple(() if value == own else scaled(base, value / own) for value in values)
    return Axis(
        key,
        f"response length, {name}" if known is None else f"{known.label} of responses",
        "tokens",
        values,
        settings,
        _index(values, own),
    )


def scaled(base: Scenario, factor: float) -> tuple[Setting, ...]:
    """All lengths multiplied; a micro-batch holds the longest sample."""
    from rlsim.scenario.dump import to_dict

    spec = _scaled(to_dict(base)["workload"]["response_tokens"], factor)
    settings: list[Setting] = [("workload.response_tokens", json.dumps(spec))]
    longest = length_model(base.workload.response_tokens).max * factor
    longest += length_model(base.workload.prompt_tokens, None, "prompt_tokens").max
    tokens = base.trainer.micro_batch_tokens
    if tokens is not None and tokens < longest < math.inf:
        settings.append(("trainer.micro_batch_tokens", str(math.ceil(longest / ROOM) * ROOM)))
    return tuple(settings)


def _scaled(spec: Any, factor: float) -> Any:
    """A length distribution as a scenario has it, with all its lengths multiplied."""
    if isinstance(spec, int | float):
        return spec * factor
    found = dict(spec)
    for name in ("mean", *QUANTILES):
        if name in found:
            found[name] *= factor
    if "max" in found:
        found["max"] = max(1, round(found["max"] * factor))
    if "min" in found:
        found["min"] = max(1.0, found["min"] * factor)
    if "components" in found:
        found["components"] = [_scaled(one, factor) for one in found["components"]]
    return found


def _ladder(reach: Range, own: float | None) -> tuple[float, ...]:
    """Values from low to high, evenly in the logarithm and through the file's own value; whole where the key is."""
    if reach.low <= 0:
        values = [reach.low + n * (reach.high - reach.low) / 16 for n in range(17)]
    else:
        anchor = own if own is not None and reach.low <= own <= reach.high else reach.low
        values = list(_geometric(reach.low, reach.high, anchor))
    if reach.whole:
        values = [value if value == own else float(round(value)) for value in values]
    return tuple(sorted(set(values)))


def _geometric(low: float, high: float, anchor: float) -> Iterator[float]:
    """Both ends, and the anchor times powers of 2^(1/3); coarser where that were too many."""
    step = 2 ** (1 / STEPS_PER_DOUBLING)
    while math.log(high / low) / math.log(step) > MOST:
        step **= 2
    close = step**0.25
    first = math.ceil(math.log(low / anchor) / math.log(step) - 1e-9)
    inside = [anchor * step**n for n in range(first, first + MOST + 2) if anchor * step**n <= high * (1 + 1e-9)]
    if inside[0] > low * close:
        yield low
    yield from inside
    if inside[-1] < high / close:
        yield high


def _index(values: Sequence[float], own: float | None) -> int | None:
    return values.index(own) if own in values else None
