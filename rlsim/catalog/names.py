"""Nearest names for error messages. Suggestions only: a look-up never takes a name that was not written."""

from __future__ import annotations

from collections.abc import Sequence
from difflib import get_close_matches


def nearest(name: str, known: Sequence[str]) -> str:
    """Up to three known names that look like `name`, as text; "" when none does."""
    by_key: dict[str, str] = {}
    for candidate in known:
        by_key.setdefault(candidate.lower(), candidate)
        by_key.setdefault(candidate.lower().rsplit("/", 1)[-1], candidate)
    close = get_close_matches(name.lower(), by_key, n=6, cutoff=0.5)
    short = get_close_matches(name.lower().rsplit("/", 1)[-1], by_key, n=6, cutoff=0.5)
    chosen = list(dict.fromkeys(by_key[key] for key in [*close, *short]))[:3]
    return " or ".join(chosen)
