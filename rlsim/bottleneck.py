"""One plain sentence: what decides the step time, with its numbers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

TAIL_DECIDES = 1 / 3  # share of the rollout spent in its tail from which the tail is the story
WASTE = {
    "zero_variance": "most are in groups of equal rewards",
    "aborted": "most are of samples that were stopped",
    "surplus": "most are of samples beyond what a step needs",
    "stale": "most are of samples too old to train on",
}
THROWN_AWAY = 0.2  # share of the generated tokens from which waste is worth a word
THRASHING = 0.5  # preemptions a sample from which the engine thrashes
PACE = 0.05  # share of the step below which waiting is no story
NO_WAIT = 0.005  # share of the step below which the trainer does not wait at all

ADVICE = {
    "rollout": "more or faster rollout GPUs shorten it",
    "reward": "more reward workers shorten it",
    "logprob": "bypassing the log-prob pass (rollout log-probs) removes it",
    "reference": "dropping the KL reference removes it",
    "train": "a better trainer layout or more trainer GPUs shorten it",
    "weight_sync": "a faster sync strategy or more sending ranks shorten it",
    "offload": "keeping the state on the GPU or pinned host memory shortens it",
    "onload": "keeping the state on the GPU or pinned host memory shortens it",
    "other": "it is the controller's own and fixed cost, which GPUs do not shorten",
}
NOUN = {
    "rollout": "Generation",
    "reward": "The reward",
    "logprob": "The log-prob pass",
    "reference": "The reference pass",
    "train": "The update",
    "weight_sync": "The weight sync",
    "offload": "Offloading",
    "onload": "Onloading",
    "other": "The controller",
}


UPKEEP = {
    "checkpoint": ("Checkpoints", "fewer or asynchronous ones, or faster storage, shorten that"),
    "evaluation": ("Evaluation", "fewer prompts or longer intervals shorten it"),
    "restart": ("The restart", "a quicker restart shortens it"),
    "lost": ("Work lost in crashes", "more frequent checkpoints shorten it"),
}


def bottleneck(summary: Mapping[str, Any], regime: str) -> str:
    """Derived from the summary's phases; names the largest cause and its share of the step."""
    text = _overlapped(summary, regime) if regime in ("one-step-off", "async") else _serial(summary)
    return text + _thrashing(summary) + _thrown_away(summary)


def _serial(summary: Mapping[str, Any]) -> str:
    phases, step = summary["phases_s"], summary["step_time_s"]["mean"]
    name = max(phases, key=lambda n: float(phases[n]))
    tail = summary["tail"]
    if name == "rollout" and tail and tail["seconds"] >= TAIL_DECIDES * phases["rollout"]:
        return (
            f"The rollout tail decides: {tail['share']:.0%} of the step ({tail['seconds']:.1f} s) runs with "
            f"fewer than a quarter of the samples; the rollout takes {_part(phases['rollout'], step)}; "
            f"{_second(summary, name, step)}."
        )
    noun, advice = NOUN[name], ADVICE[name]
    if name == "other":
        noun, advice = _other(summary)
    return f"{noun} decides: {_part(phases[name], step)}; {_second(summary, name, step)}; {advice}."


def _overlapped(summary: Mapping[str, Any], regime: str) -> str:
    phases, pool, step = summary["phases_s"], summary["rollout_pool_s"], summary["step_time_s"]["mean"]
    wait, free = phases["wait_rollout"], pool["wait_trainer"] + pool["idle"]
    passes = sum(phases[n] for n in ("logprob", "reference", "train"))
    rest = f"the weight sync adds {_part(phases['weight_sync'], step)}, {_upkeep(summary)} "
    rest += _part(phases["other"], step)
    if wait >= PACE * step and wait > free:
        text = f"The rollout sets the pace: the trainer waits {_part(wait, step)} for samples and its passes take "
        text += f"{passes:.1f} s; {rest}"
        tail = summary["tail"]
        if tail and tail["seconds"] >= TAIL_DECIDES * wait:
            text += f"; for {tail['seconds']:.1f} s fewer than a quarter of the samples run"
        return text + _stale(summary, regime) + "; more rollout GPUs shorten it."
    if wait > NO_WAIT * step and free < PACE * step:
        text = f"Trainer and rollout are balanced: the trainer waits {_part(wait, step)} for samples, the rollout pool "
        text += f"stands still {_part(free, step)}; {rest}"
        return text + _stale(summary, regime) + "; only more GPUs on both sides, or less of the rest, shorten it."
    text = f"The trainer sets the pace: {_part(passes, step)} in its passes; {rest}; the rollout pool stands "
    text += f"still {_part(free, step)}" + _stale(summary, regime)
    return text + "; more trainer GPUs shorten the passes, not the rest."


def _other(summary: Mapping[str, Any]) -> tuple[str, str]:
    """Name and advice of the largest part of the phase `other`."""
    split = summary.get("other_s", {})
    return UPKEEP.get(max(split, key=lambda n: float(split[n]), default=""), (NOUN["other"], ADVICE["other"]))


def _upkeep(summary: Mapping[str, Any]) -> str:
    """Everything that makes up a tenth of the phase `other` or more, largest first."""
    split = {name: float(seconds) for name, seconds in summary.get("other_s", {}).items()}
    large = sorted((n for n in split if split[n] >= sum(split.values()) / 10 > 0), key=lambda n: -split[n])
    nouns = [_lower(UPKEEP[n][0] if n in UPKEEP else NOUN["other"]) for n in large]
    return " and ".join(nouns) or _lower(NOUN["other"])


def _lower(noun: str) -> str:
    return noun[0].lower() + noun[1:]


def _stale(summary: Mapping[str, Any], regime: str) -> str:
    dropped = summary["samples"]["dropped"].get("stale", 0)
    if regime != "async" or not dropped:
        return ""
    share = dropped / (dropped + summary["samples"]["trained"])
    return f"; {share:.1%} of the finished samples are dropped as too old"


def _thrashing(summary: Mapping[str, Any]) -> str:
    """A warning when engines preempt so often that their work is done over and over."""
    each = summary["preemptions"] / max(1, summary["samples"]["trained"])
    if each < THRASHING:
        return ""
    return (
        f" The engines run out of KV cache, {each:.1f} preemptions a sample: fewer sequences at a time "
        "(rollout.max_num_seqs, async.max_concurrent) or more KV memory stop that."
    )


def _thrown_away(summary: Mapping[str, Any]) -> str:
    """How much of the generation is for nothing, and mostly why."""
    tokens, dropped = summary.get("tokens"), summary["samples"]["dropped"]
    if not tokens or tokens["wasted"] < THROWN_AWAY * tokens["generated"]:
        return ""
    text = f" {tokens['wasted'] / tokens['generated']:.0%} of the generated tokens are thrown away"
    if not dropped:
        return text + ": what is stopped begins again."
    reason = max(dropped, key=lambda name: int(dropped[name]))
    return f"{text}: {WASTE[reason]}." if reason in WASTE else f"{text}."


def _second(summary: Mapping[str, Any], first: str, step: float) -> str:
    rest = {n: s for n, s in summary["phases_s"].items() if n != first}
    name = max(rest, key=lambda n: float(rest[n]))
    noun = _other(summary)[0] if name == "other" else NOUN[name]
    return f"next is {_lower(noun)} with {_part(rest[name], step)}" if rest[name] > 0 else "nothing else counts"


def _part(seconds: float, step: float) -> str:
    return f"{seconds:.1f} of {step:.1f} s ({seconds / step:.0%})"
