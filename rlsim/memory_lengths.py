"""Sequence lengths that memory depends on: the longest that may come, and the mean."""

from __future__ import annotations

from math import ceil
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from rlsim.scenario.schema import LengthSpec, Workload


class SequenceLengths(NamedTuple):
    """Prompt and response together, in tokens."""

    mean: float
    longest: int


def sequence_lengths(workload: Workload) -> SequenceLengths:
    """Mean and longest sequence: the caps of prompt and response, at most `total_tokens.max` (but a prompt that
    reaches it still gets one token of response).
    """
    text = spec_lengths(workload.prompt_tokens, "prompt_tokens")
    response = spec_lengths(workload.response_tokens)
    images = image_tokens(workload)
    prompt = SequenceLengths(text.mean + images.mean, text.longest + images.longest)
    if workload.turns is not None:
        from rlsim.workload import workload_lengths

        response = response._replace(mean=float(workload_lengths(workload).response.mean))
    limit = float("inf") if workload.total_tokens is None else workload.total_tokens.max
    mean = prompt.mean + response.mean
    longest = min(prompt.longest + response.longest, max(limit, prompt.longest + 1))
    return SequenceLengths(min(mean, limit), int(longest))


def image_tokens(workload: Workload) -> SequenceLengths:
    """Tokens that images add to a prompt: per_prompt·tokens, at most those of the next whole number of images."""
    if workload.images is None:
        return SequenceLengths(0.0, 0)
    images = workload.images
    return SequenceLengths(images.per_prompt * images.tokens, ceil(images.per_prompt) * images.tokens)


def spec_lengths(spec: LengthSpec, column: str = "response_tokens") -> SequenceLengths:
    """Mean and cap as written; what is not written comes from the fitted distribution, or the column of the trace.

    Lengths are whole tokens.
    """
    if spec.mean is not None and spec.distribution == "constant" and spec.max is None:
        return SequenceLengths(spec.mean, round(spec.mean))
    if spec.mean is not None and spec.max is not None:
        return SequenceLengths(spec.mean, int(spec.max))
    from rlsim.workload import length_model

    fitted = length_model(spec, column=column)
    return SequenceLengths(float(fitted.mean), int(fitted.max))
