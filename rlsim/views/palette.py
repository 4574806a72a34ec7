"""One colour per phase everywhere: text, HTML report, plots, trace, dashboard.

Okabe-Ito and Paul Tol's muted set, which people with colour-vision deficiencies can tell apart. Neighbouring phases
in a step get colours that differ in lightness too.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

PHASES: Mapping[str, str] = MappingProxyType(
    {
        "rollout": "#0072B2",
        "reward": "#CC79A7",
        "logprob": "#56B4E9",
        "reference": "#88CCEE",
        "train": "#009E73",
        "weight_sync": "#D55E00",
        "offload": "#E69F00",
        "onload": "#F0C05A",
        "wait_rollout": "#BBBBBB",
        "wait_trainer": "#999999",
        "other": "#666666",
    }
)
POOL: Mapping[str, str] = MappingProxyType(
    {
        "generate": PHASES["rollout"],
        "prefill": "#332288",
        "weight_sync": PHASES["weight_sync"],
        "reprefill": "#882255",
        "wait_trainer": PHASES["wait_trainer"],
        "idle": "#DDDDDD",
    }
)
MEMORY: Mapping[str, str] = MappingProxyType(
    {
        "engine weights": "#0072B2",
        "KV cache": "#56B4E9",
        "engine, other": "#A8D8F0",
        "trainer weights": "#005F45",
        "gradients": "#009E73",
        "master weights": "#66C2A0",
        "moments": "#B3E2CD",
        "activations": "#D55E00",
        "logits": "#E69F00",
        "gathered layers": "#F0C05A",
        "weight sync buffer": "#882255",
        "critic": "#CC79A7",
        "reference and reward model": "#332288",
        "context, buffers, slack": "#AAAAAA",
    }
)
"""Kinds of bytes on a GPU, in the order in which they are stacked."""
_ENGINE_OTHER = ("absorbed MLA weights", "engine activations", "CUDA graphs", "engine asleep")
UPKEEP: Mapping[str, str] = MappingProxyType(
    {"checkpoint": "#44AA99", "evaluation": "#117733", "restart": "#CC3311", "lost": "#661100"}
)
FAULTS: Mapping[str, str] = MappingProxyType({"down": "#CC3311", "slow": "#EE7733"})
LABELS: Mapping[str, str] = MappingProxyType(
    {
        "rollout": "rollout",
        "reward": "reward",
        "logprob": "log-prob recompute",
        "reference": "reference log-prob",
        "train": "update",
        "weight_sync": "weight sync",
        "offload": "offload",
        "onload": "onload",
        "wait_rollout": "wait for rollout",
        "wait_trainer": "wait for trainer",
        "other": "controller and fixed",
        "generate": "generate",
        "prefill": "prefill",
        "reprefill": "re-prefill",
        "idle": "idle",
        "weight sync": "weight sync",
        "critic onload": "critic in",
        "critic values": "critic values",
        "critic update": "critic update",
        "critic offload": "critic out",
        "evaluation": "evaluation",
        "restart": "restart after a crash",
        "lost": "lost in a crash",
        "down": "engine down",
        "slow": "slow node or NIC",
    }
)

SERIES = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9")
"""Curves of one figure that are not phases."""


def colour(name: str) -> str:
    """Hex colour of a phase, a rollout-pool state, upkeep or a fault; grey for anything else."""
    return PHASES.get(name) or POOL.get(name) or UPKEEP.get(name) or FAULTS.get(name) or "#666666"


def memory_group(part: str) -> str:
    """The kind of bytes that a part of the memory timeline is drawn as."""
    if part in MEMORY:
        return part
    if part in _ENGINE_OTHER:
        return "engine, other"
    if part.startswith("critic"):
        return "critic"
    if part.startswith(("reference", "reward model")) or part == "weights":
        return "reference and reward model"
    return "context, buffers, slack"


def label(name: str) -> str:
    return LABELS.get(name, name.replace("_", " "))
