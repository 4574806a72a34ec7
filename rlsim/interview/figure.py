"""A figure of an answer: a value that somebody computed, and how it is written in each language."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

from rlsim.errors import UserError

STEPS = ((1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "K"))
NOISE = 0.03
"""Relative difference of steps below which nothing is said to win: real runs differ by more."""


@dataclass(frozen=True)
class Figure:
    """A computed value, SI inside. `unit` is a key of `WRITERS` (the same in every language) or of `CHANGES`."""

    value: float | str
    unit: str

    def __str__(self) -> str:
        return self.text("en")

    def text(self, lang: str) -> str:
        if self.unit in CHANGES:
            return _change(float(self.value), CHANGES[self.unit][lang])
        return WRITERS[self.unit](self.value)


@dataclass(frozen=True)
class Pick:
    """Which of a phrase's wordings the results call for, for example "ahead" or "behind"."""

    key: str


Facts: TypeAlias = Mapping[str, "Figure | Pick"]


def at(summary: Mapping[str, Any], path: str) -> float:
    """A number of a summary by its path: `step_time_s.mean`."""
    found: Any = summary
    for key in path.split("."):
        found = found[key]
    if found is None:
        raise UserError(f"{path} has no value for this variant", fix="a variant that has it")
    return float(found)


def seconds(value: float) -> Figure:
    return Figure(value, "s")


def size(value: float) -> Figure:
    return Figure(value, "B")


def gib(value: float) -> Figure:
    return Figure(value, "GiB")


def rate(value: float) -> Figure:
    return Figure(value, "B/s")


def share(value: float) -> Figure:
    return Figure(value, "%")


def ratio(value: float) -> Figure:
    return Figure(value, "×")


def count(value: float) -> Figure:
    return Figure(value, "n")


def plain(value: float) -> Figure:
    return Figure(value, "1")


def usd(value: float) -> Figure:
    return Figure(value, "$")


def word(value: str) -> Figure:
    return Figure(value, "word")


def slower(new: float, old: float) -> Figure:
    """A time against another: "12% longer", "8.0% shorter"."""
    return Figure(new / old - 1, "longer")


def more(new: float, old: float) -> Figure:
    """An amount against another: "12% more", "8.0% less"."""
    return Figure(new / old - 1, "more")


CHANGES: Mapping[str, Mapping[str, tuple[str, str, str]]] = {
    "longer": {"en": ("{} longer", "{} shorter", "the same"), "zh": ("增加 {}", "缩短 {}", "不变")},
    "more": {"en": ("{} more", "{} less", "the same"), "zh": ("增加 {}", "减少 {}", "不变")},
}
"""Unit of a relative change -> language -> how up, down and level are written."""

# Writers ----------


def _change(value: float, words: tuple[str, str, str]) -> str:
    up, down, level = words
    if abs(value) < 0.0005:
        return level
    return (up if value > 0 else down).format(WRITERS["%"](abs(value)))


def _digits(value: float) -> str:
    """Three significant digits, no more than two decimals, thousands apart: 1,315  28.1  0.35."""
    size = abs(value)
    if size >= 99.95:
        return f"{value:,.0f}"
    if size >= 9.995:
        return f"{value:.1f}"
    return f"{value:.2f}"


def _seconds(value: Any) -> str:
    if 0 < abs(value) < 1e-3:
        return f"{value * 1e6:.0f} µs"
    if 0 < abs(value) < 0.0995:
        return f"{value * 1e3:.3g} ms"
    return f"{_digits(value)} s"


def _scaled(value: float, suffix: str) -> str:
    for factor, letter in STEPS:
        if abs(value) >= factor * 0.9995:
            return f"{_digits(value / factor)} {letter}{suffix}"
    return f"{value:.0f} {suffix}"


def _billions(value: Any) -> str:
    return f"{value / 1e9:,.0f}B" if value >= 99.5e9 else f"{value / 1e9:.2f}B"


WRITERS: Mapping[str, Callable[[Any], str]] = {
    "s": _seconds,
    "B": lambda value: _scaled(value, "B"),
    "B/s": lambda value: _scaled(value, "B/s"),
    "GiB": lambda value: f"{_digits(value)} GiB",
    "%": lambda value: f"{value * 100:.0f}%" if abs(value) >= 0.0995 else f"{value * 100:.1f}%",
    "×": lambda value: f"{_digits(value)}×",
    "n": lambda value: f"{value:,.0f}",
    "1": _digits,
    "$": lambda value: f"${_digits(value)}",
    "params": _billions,
    "days": lambda value: f"{_digits(value)} d",
    "h": lambda value: f"{_digits(value)} h",
    "word": str,
}
