"""What changed between two scenarios, and what it did to the step."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from rlsim import api
from rlsim.errors import UserError
from rlsim.scenario.schema import Scenario

ABSENT = "-"


@dataclass(frozen=True)
class Difference:
    """`changed`: key -> (value in A, value in B), for keys that differ; summaries as in the JSON contract."""

    a: dict[str, Any]
    b: dict[str, Any]
    changed: dict[str, tuple[Any, Any]]

    def as_dict(self) -> dict[str, Any]:
        deltas: dict[str, Any] = {}
        if self.a["feasible"] and self.b["feasible"]:
            deltas = {name: self.b["phases_s"][name] - seconds for name, seconds in self.a["phases_s"].items()}
        changed = {key: {"a": a, "b": b} for key, (a, b) in self.changed.items()}
        return {"changed": changed, "a": self.a, "b": self.b, "phases_s_change": deltas}


def diff(a: str, b: str, *, steps: int | None = None, progress: Callable[[int], api.Bar] | None = None) -> Difference:
    """Compare `FILE` or `FILE#VARIANT` with another: the keys that differ, and both simulated."""
    first, second = _pick(a), _pick(b)
    answer = api.compare([first, second], steps=steps, progress=progress)
    before, after = flat(first.to_dict()), flat(second.to_dict())
    keys = [k for k in {**before, **after} if before.get(k, ABSENT) != after.get(k, ABSENT)]
    changed = {k: (before.get(k, ABSENT), after.get(k, ABSENT)) for k in keys if k not in ("name", "variant")}
    return Difference(answer.summaries[0], answer.summaries[1], changed)


def flat(tree: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Nested mappings as dotted keys."""
    rows: dict[str, Any] = {}
    for key, value in tree.items():
        name = f"{prefix}{key}"
        if isinstance(value, Mapping):
            rows.update(flat(value, name + "."))
        elif isinstance(value, list) and value and all(isinstance(v, Mapping) for v in value):
            for index, item in enumerate(value):
                rows.update(flat(item, f"{name}." if len(value) == 1 else f"{name}.{index}."))
        else:
            rows[name] = value
    return rows


def _pick(spec: str) -> Scenario:
    path, _, variant = spec.partition("#")
    if not path:
        raise UserError(f"no file in {spec!r}", fix="FILE or FILE#VARIANT")
    return api.load_scenario(path, variant=variant or None).variants[0]
