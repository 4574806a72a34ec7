"""Numbers that divide, and the ones nearest to what the user wrote."""

from __future__ import annotations


def divisors(n: int, limit: int | None = None) -> list[int]:
    """Divisors of n, ascending, at most `limit`."""
    top = n if limit is None else min(n, limit)
    return [d for d in range(1, top + 1) if n % d == 0]


def nearest(value: int, allowed: list[int], count: int = 4) -> str:
    """The allowed values nearest to one, ascending: "2, 4, 7, 14"."""
    best = sorted(sorted(allowed, key=lambda a: (abs(a - value), a))[:count])
    return ", ".join(str(a) for a in best) if best else "none"
