"""A scenario back to plain data and YAML text: defaults are left out, quantities get their units."""

from __future__ import annotations

import io
from collections.abc import Mapping
from typing import Any

from pydantic import BaseModel
from pydantic.fields import FieldInfo
from ruamel.yaml import YAML

from rlsim.scenario.quantity import Dimension, render
from rlsim.scenario.schema import Scenario
from rlsim.scenario.tree import dimension_of, key_of

# Always written out: what the loader would otherwise derive from other keys.
EXPLICIT = frozenset(
    {"gpus", "attn_tp", "attn_dp", "moe_tp", "moe_ep", "on_sync", "max_staleness", "distribution", "return_logprobs"}
)


def to_dict(scenario: Scenario) -> dict[str, Any]:
    """Plain data that `scenario_from_dict` turns back into an equal scenario."""
    data = _block(scenario)
    if len(scenario.rollout) == 1:
        data["rollout"] = data["rollout"][0]
    return data


def dump_yaml(scenario: Scenario) -> str:
    """YAML text that `loads_scenario` turns back into an equal scenario."""
    yaml = YAML(typ="safe", pure=True)
    yaml.default_flow_style = False
    yaml.sort_base_mapping_type_on_output = False  # type: ignore[assignment]
    yaml.width = 4096
    stream = io.StringIO()
    yaml.dump(to_dict(scenario), stream)
    return stream.getvalue()


def _block(block: BaseModel) -> dict[str, Any]:
    data: dict[str, Any] = {}
    for name, field in type(block).model_fields.items():
        value = getattr(block, name)
        default = _is_default(field, value)
        if value is None or (default and (name not in EXPLICIT or (value == 0 and name == "gpus"))):
            continue
        data[key_of(name, field)] = _value(value, dimension_of(field))
    return data


def _is_default(field: FieldInfo, value: Any) -> bool:
    return not field.is_required() and bool(value == field.get_default(call_default_factory=True))


def _value(value: Any, dimension: Dimension | None) -> Any:
    if isinstance(value, BaseModel):
        return _block(value)
    if isinstance(value, tuple):
        return [_value(one, dimension) for one in value]
    if isinstance(value, Mapping):
        return {key: _value(one, dimension) for key, one in value.items()}
    if dimension is not None:
        return render(value, dimension)
    return value
