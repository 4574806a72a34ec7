"""Quantities as people write them, `50 GB/s`, `400 Gb/s`, `80 GiB`, `3 ms`, `2.5 $/h`, to SI floats and back.

`b` is bits, `B` bytes; GB is 1e9 bytes, GiB 2**30. A number without a unit, a unit of another dimension, or a
prefix that cannot be meant (`50 mB/s`) is refused with an example of what would be right.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

from quantiphy import InvalidNumber, Quantity

GB = 1e9
GiB = 1024.0**3


class MistakeError(ValueError):
    """A value that cannot be meant; `fix` says what would be right."""

    def __init__(self, message: str, fix: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.fix = fix


@dataclass(frozen=True, eq=False)
class Dimension:
    """What a quantity measures: SI unit, factors of the accepted units to it, and an example of good text."""

    name: str
    si: str
    units: Mapping[str, float]
    example: str
    small: bool = False  # whether prefixes below one (m, u, n) make sense
    big: bool = True  # whether prefixes above one (k, G, Gi) make sense


BYTES = Dimension("size", "B", MappingProxyType({"B": 1.0, "b": 0.125, "bit": 0.125}), "141 GB or 80 GiB")
RATE = Dimension(
    "bandwidth",
    "B/s",
    MappingProxyType({"B/s": 1.0, "b/s": 0.125, "bit/s": 0.125, "bps": 0.125}),
    "50 GB/s (bytes) or 400 Gb/s (bits)",
)
SECONDS = Dimension(
    "time", "s", MappingProxyType({"s": 1.0, "min": 60.0, "h": 3600.0}), "3 ms or 60 s", small=True, big=False
)
PRICE = Dimension("price", "$/h", MappingProxyType({"$/h": 1.0, "$": 1.0}), "2.5 $/h (dollars per GPU-hour)", big=False)
DIMENSIONS = (BYTES, RATE, SECONDS, PRICE)


class _Parsed(Quantity):
    """quantiphy with minutes and hours as units of their own, not as prefixes."""


_Parsed.set_prefs(known_units=["min", "h"])


def parse(value: object, dimension: Dimension) -> float:
    """SI float of a quantity written as text.

    Raises `MistakeError` for a missing unit, a wrong dimension, a negative or infinite amount, an impossible prefix.
    """
    example = f"for example {dimension.example}"
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        raise MistakeError(f"{value!r} is not a {dimension.name}", example)
    text = str(value).strip()
    try:
        quantity = _Parsed(text, binary=True)
    except InvalidNumber:
        raise MistakeError(f"{text!r} is not a {dimension.name}", example) from None
    amount, unit = float(quantity), str(quantity.units)
    if unit not in dimension.units:
        raise MistakeError(*_unit_problem(text, unit, dimension))
    if not math.isfinite(amount) or amount < 0:
        raise MistakeError(f"{text!r} is not a possible {dimension.name}", example)
    prefix = _prefix(text, unit)
    if (prefix in _SMALL and not dimension.small) or (prefix and prefix not in _SMALL and not dimension.big):
        raise MistakeError(f"the prefix {prefix!r} of {text!r} cannot be meant", example)
    return amount * dimension.units[unit]


_SMALL = frozenset({"m", "u", "µ", "μ", "n", "p", "f", "a"})


def _prefix(text: str, unit: str) -> str:
    """The letters between the number and the unit: `G` of `50 GB/s`."""
    return text.removesuffix(unit).rstrip().lstrip("+-0123456789._, eE").strip() if unit else ""


def _unit_problem(text: str, unit: str, dimension: Dimension) -> tuple[str, str]:
    """Message and fix for a unit that is not one of the dimension's."""
    if not unit:
        return f"{text!r} has no unit", f"a {dimension.name} with its unit, for example {dimension.example}"
    for other in DIMENSIONS:
        if unit in other.units and other is not dimension:
            message = f"{text!r} is a {other.name}, but a {dimension.name} is needed"
            return message, f"for example {dimension.example}"
    return f"unknown unit in {text!r}", f"a {dimension.name}, for example {dimension.example}"


_SCALES: Mapping[str, tuple[tuple[str, float], ...]] = MappingProxyType(
    {
        "B": (("TB", 1e12), ("TiB", 1024.0**4), ("GiB", GiB), ("GB", 1e9), ("MiB", 1024.0**2), ("MB", 1e6)),
        "B/s": (("TB/s", 1e12), ("GB/s", 1e9), ("MB/s", 1e6)),
        "s": (("ms", 1e-3), ("us", 1e-6)),
        "$/h": (),
    }
)


def render(amount: float, dimension: Dimension) -> str:
    """Text that `parse` turns back into exactly the same float: the shortest of the usual units."""
    texts = [f"{_plain(amount)} {dimension.si}"]
    texts += [
        f"{number} {unit}" for unit, scale in _SCALES[dimension.si] if "e" not in (number := _plain(amount / scale))
    ]
    exact = [text for text in texts if parse(text, dimension) == amount]
    return min(exact, key=len) if exact else texts[0]


def _plain(number: float) -> str:
    return str(int(number)) if number.is_integer() and abs(number) < 1e15 else repr(number)
