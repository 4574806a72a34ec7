"""Section `measured` of a profile: seconds by role, for machines that have no kernel tables (a CPU cluster).

A role's seconds are linear in what it works on; each coefficient is a parameter like any other, under the name
`measured.ROLE.TERM`. Where a line is too simple, `knots: {at: […], seconds: […]}` gives a curve along the role's axis
instead of `fixed_s` and the axis' own coefficient; `scale` (default 1) stretches it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt

from rlsim.catalog.profile_file import Parameter, ProfileFile, fields_of, nearest, parameter_of

PASS = {"fixed_s": "s", "micro_batch_s": "s", "token_s": "s/token", "pair_s": "s/pair"}
COPY = {"fixed_s": "s", "byte_s": "s/B"}
TERMS: Mapping[str, Mapping[str, str]] = {
    "decode": {"fixed_s": "s", "sequence_s": "s/sequence", "context_token_s": "s/token"},
    "prefill": {"fixed_s": "s", "token_s": "s/token", "pair_s": "s/pair"},
    "train": PASS,
    "logprob": PASS,
    "weight_sync": {**COPY, "engine_s": "s/engine"},
    "offload": COPY,
    "onload": COPY,
    "controller": {"step_s": "s", "call_s": "s", "sample_s": "s/sample", "token_s": "s/token"},
}
"""Role -> its terms and their units."""
AXIS = {"decode": "batch", "prefill": "tokens", "train": "tokens", "logprob": "tokens"}
"""What `knots.at` counts: sequences of an iteration, prompt tokens of an iteration, tokens of a micro-batch."""
TOGETHER = (("decode", "prefill"), ("offload", "onload"))
"""Roles of which one without the other prices half a thing."""


@dataclass(frozen=True)
class Knots:
    """A curve: ascending positions on the role's axis, and seconds there."""

    at: tuple[float, ...]
    seconds: tuple[float, ...]

    def __call__(self, x: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
        """Linear between knots, the first value before them, the last slope after them."""
        inside = np.interp(x, self.at, self.seconds)
        (x0, x1), (y0, y1) = self.at[-2:], self.seconds[-2:]
        beyond = np.maximum(x - x1, 0.0) * max(0.0, (y1 - y0) / (x1 - x0))
        return np.asarray(inside + beyond)


def full_name(role: str, term: str) -> str:
    """A term's name among the profile's parameters."""
    return f"measured.{role}.{term}"


def read(file: ProfileFile) -> tuple[dict[str, Parameter], dict[str, Knots], frozenset[str]]:
    """(parameters by full name, knots by role, measured roles) of a file's section."""
    parameters: dict[str, Parameter] = {}
    knots: dict[str, Knots] = {}
    for role, terms in file.measured.items():
        at = ("measured", role)
        if role not in TERMS:
            raise file.error(at, f"no role {role!r}", nearest(role, tuple(TERMS)))
        if not isinstance(terms, dict) or not terms:
            raise file.error(at, "not a mapping of terms", f"`{role}: {{{next(iter(TERMS[role]))}: {{value: …}}}}`")
        curve = role in AXIS and "knots" in terms
        allowed = _allowed(role, curve)
        for term, written in terms.items():
            if term == "knots" and curve:
                knots[role] = _knots(file, role, written)
            elif term not in allowed:
                raise file.error((*at, term), f"no term {term!r} of {role}", nearest(term, tuple(allowed)))
            else:
                fields = fields_of(file, (*at, term), written)
                parameters[full_name(role, term)] = parameter_of(file, (*at, term), fields, allowed[term])
    for pair in TOGETHER:
        there = [role for role in pair if role in file.measured]
        if len(there) == 1:
            missing = pair[1 - pair.index(there[0])]
            raise file.error(("measured", there[0]), f"{there[0]} without {missing}", f"a block `{missing}` as well")
    return parameters, knots, frozenset(file.measured)


def _allowed(role: str, curve: bool) -> dict[str, str]:
    """Terms beside `knots`: the curve takes the place of the line."""
    terms = dict(TERMS[role])
    if not curve:
        return terms
    for covered in ("fixed_s", "micro_batch_s", "sequence_s", "token_s"):
        if covered != "fixed_s" or role in ("decode", "prefill"):
            terms.pop(covered, None)
    if role == "prefill":
        terms["fixed_s"] = "s"
    return {**terms, "scale": ""}


def _knots(file: ProfileFile, role: str, written: Any) -> Knots:
    at = ("measured", role, "knots")
    fix = f"`{{at: [1, 2, 4], seconds: [0.01, 0.015, 0.02]}}`, at: {AXIS[role]}, ascending"
    if not isinstance(written, dict) or set(written) != {"at", "seconds"}:
        raise file.error(at, "not a mapping of at and seconds", fix)
    columns: list[tuple[float, ...]] = []
    for name in ("at", "seconds"):
        values = written[name]
        numbers = isinstance(values, list) and all(
            isinstance(v, int | float) and not isinstance(v, bool) and 0 <= v < float("inf") for v in values
        )
        if not numbers:
            raise file.error((*at, name), "not a list of numbers ≥ 0", fix)
        columns.append(tuple(float(v) for v in values))
    positions, seconds = columns
    if len(positions) != len(seconds) or len(positions) < 2:
        raise file.error(at, f"{len(positions)} positions, {len(seconds)} seconds", "two or more, equally many of both")
    if any(b <= a for a, b in pairwise(positions)):
        raise file.error((*at, "at"), "not ascending", fix)
    return Knots(positions, seconds)
