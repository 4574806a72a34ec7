"""Keys as people write them on a command line: the scenario's dotted keys, short names of them, profile parameters."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from rlsim.catalog.profiles import Profile
from rlsim.errors import UserError
from rlsim.scenario.attributes import Attribute, attributes
from rlsim.scenario.schema import Scenario
from rlsim.scenario.source import path_of
from rlsim.scenario.tree import field_at
from rlsim.scenario.variants import nearest

PROFILE = "profile."
"""`profile.gemm_derate`: a parameter of the calibration profile."""
SHORT: Mapping[str, str] = MappingProxyType(
    {"gpus": "cluster.gpus", "gpu": "cluster.gpu", "nic": "cluster.nic", "model": "model.base"}
)
"""Short names that several keys share and that plainly mean the cluster's or the policy's."""


def resolve_key(text: str, option: str, profile: Profile) -> str:
    """The full key that a short name stands for. `option` is what the message names.

    Raises `UserError` for a name that no key or more than one key ends with.
    """
    key = text.strip()
    if key.startswith(PROFILE):
        name = key.removeprefix(PROFILE)
        if name not in profile.parameters:
            close = nearest(name, sorted(profile.parameters))
            fix = PROFILE + close if close else "a parameter of `rlsim/catalog/profiles/generic.yaml`"
            raise UserError(f"no profile parameter {name!r}", key=option, fix=fix)
        return key
    path = path_of(key)
    below = path[2:] if path[0] == "variants" else path
    full = SHORT.get(key, key)
    if full != key or (below and field_at(Scenario, below) is not None):
        return full
    found = [a.key for a in attributes() if a.key.endswith(f".{key}") and not a.key.startswith("cluster.pools.")]
    if len(found) == 1:
        return found[0]
    if found:
        raise UserError(f"{key!r} may be any of {', '.join(found)}", key=option, fix=f"the whole key: {found[0]}")
    last = [a.key for a in attributes() if not a.block]
    close = nearest(key, last) or nearest(path[-1], sorted({one.split(".")[-1] for one in last}))
    raise UserError(f"no key {key!r} in a scenario", key=option, fix=close or "a key of docs/scenario.md")


def attribute_of(key: str) -> Attribute | None:
    """Type and unit of a scenario's key; None for profile parameters (plain SI numbers) and keys of named pools."""
    parts = [part for part in path_of(key) if not part.isdigit()]
    if parts[0] == "variants":
        parts = parts[2:]
    if parts[:2] == ["cluster", "pools"]:
        del parts[2:3]
    plain = ".".join(parts)
    return next((a for a in attributes() if a.key == plain), None)


def value_at(scenario: Scenario, key: str) -> Any:
    """What a scenario has at a dotted key, SI; None where it has nothing."""
    found: Any = scenario
    for part in path_of(key):
        if isinstance(found, tuple):
            found = found[int(part) if part.isdigit() else 0]
            if part.isdigit():
                continue
        if isinstance(found, Mapping):
            found = found.get(part)
        else:
            found = getattr(found, "async_" if part == "async" else part, None)
    return found
