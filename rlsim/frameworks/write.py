"""Settings as text: Hydra overrides, command-line flags, YAML; what they leave out as comments."""

from __future__ import annotations

import io
from collections.abc import Iterable, Sequence
from typing import Any

from ruamel.yaml import YAML

from rlsim.frameworks.sheet import Setting, Sheet


def comments(sheet: Sheet) -> list[str]:
    """`# not expressible: KEY = VALUE (why)` for everything that the scenario gives and the settings do not say."""
    return [f"# not expressible: {key} = {_plain(value)} ({why})" for key, value, why in sheet.left()]


def hydra(launch: str, sheet: Sheet) -> str:
    """`launch \\ key=value \\ …`, then the comments."""
    lines = [launch, *(f"  {s.key}={_hydra(s.value)}" for s in _told(sheet.settings))]
    return "\n".join([*_head(sheet), " \\\n".join(lines), *comments(sheet)])


def flags(launch: str, sheet: Sheet) -> str:
    """`launch \\ --flag value \\ …`, then the comments. True is the flag alone, False no flag."""
    shown = [s for s in _told(sheet.settings) if s.value is not False]
    lines = [launch, *(f"  --{s.key}" + ("" if s.value is True else f" {_plain(s.value)}") for s in shown)]
    return "\n".join([*_head(sheet), " \\\n".join(lines), *comments(sheet)])


def yaml(sheet: Sheet, documents: Sequence[tuple[str, str]] = (("", ""),)) -> str:
    """Nested YAML. `documents`: (title, prefix of the keys that are in it), each a document of its own."""
    parts = []
    for title, prefix in documents:
        mine = [s for s in _told(sheet.settings) if s.key.startswith(prefix)]
        text = _dump(nested((s.key.removeprefix(prefix), s.value) for s in mine))
        parts.append((f"# {title}\n" if title else "") + text)
    return "\n".join([*_head(sheet), "---\n".join(parts).rstrip(), *comments(sheet)])


def nested(pairs: Iterable[tuple[str, Any]]) -> dict[str, Any]:
    """Dotted keys as nested mappings."""
    tree: dict[str, Any] = {}
    for key, value in pairs:
        *blocks, last = key.split(".")
        here = tree
        for block in blocks:
            here = here.setdefault(block, {})
        here[last] = value
    return tree


def _told(settings: Iterable[Setting]) -> list[Setting]:
    return [setting for setting in settings if setting.key]


def _head(sheet: Sheet) -> list[str]:
    scenario = sheet.scenario
    return [f"# {scenario.name}, {scenario.variant}: {scenario.placement}, {scenario.schedule}, {sheet.framework}"]


def _dump(tree: dict[str, Any]) -> str:
    writer = YAML(typ="safe", pure=True)
    writer.default_flow_style = False
    writer.sort_base_mapping_type_on_output = False  # type: ignore[assignment]
    writer.width = 4096
    stream = io.StringIO()
    writer.dump(tree, stream)
    return stream.getvalue()


def _plain(value: Any) -> str:
    """A number without needless digits, a text as it is; a block without values is there."""
    if value == {}:
        return "as by default"
    return f"{value:g}" if isinstance(value, float) else str(value)


def _hydra(value: Any) -> str:
    return "null" if value is None else _plain(value)
