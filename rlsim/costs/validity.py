"""Whether a system lies inside the ranges that its profile's figures were measured in."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from typing import TYPE_CHECKING

from rlsim.memory_lengths import sequence_lengths
from rlsim.model import parameters

if TYPE_CHECKING:
    from rlsim.system import System

SLACK = 1.05  # beyond a range's end by less than this is still inside
MEASURED = "measured."


def extrapolations(system: System) -> Iterator[str]:
    """One sentence for each quantity outside the range of validity of parameters that are in the profile's file."""
    outside: dict[tuple[str, float, float, float], list[str]] = defaultdict(list)
    for name, one in system.profile.parameters.items():
        if not one.range:
            continue
        role = name.split(".")[1] if name.startswith(MEASURED) else ""
        for quantity, value in quantities(system, role).items():
            low, high = one.range.get(quantity, (value, value))
            if value > high * SLACK or value < low / SLACK:
                outside[quantity, value, low, high].append(role or name)
    for (quantity, value, low, high), names in outside.items():
        about = ", ".join(dict.fromkeys(names))
        yield f"{about}: measured for {quantity} {_span(low, high)}, extrapolated to {value:g}"


def quantities(system: System, role: str) -> dict[str, float]:
    """What a figure is asked for at most: largest batches and contexts, the model, the machines."""
    longest = float(sequence_lengths(system.scenario.workload).longest)
    common = {
        "parameters": float(parameters(system.model)),
        "receivers": float(sum(part.layout.engines for part in system.rollout)),
        "nic": system.trainer_pool.nic,
    }
    if role == "decode":
        seqs = float(max(part.entry.max_num_seqs for part in system.rollout))
        return {**common, "batch": seqs, "context": longest}
    if role == "prefill":
        return {**common, "tokens": float(max(part.entry.max_num_batched_tokens for part in system.rollout))}
    if role in ("train", "logprob"):
        return {**common, "sequence": longest, "world": float(system.trainer.gpus)}
    return common


def _span(low: float, high: float) -> str:
    return f"{low:g}" if low == high else f"{low:g} to {high:g}"
