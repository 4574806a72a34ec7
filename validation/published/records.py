"""Records of published measurements: facts with their source, one YAML file per source.

A file holds `records`, each `{id, kind, spec, source, config, measured, notes}`. `spec`: A can be simulated without
guessing, B needs one or two assumptions, C is listed and never scored.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from rlsim.errors import UserError

FOLDER = Path(__file__).parent.parent / "records"
LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
"""libyaml's safe loader where it is there: ten times faster."""
REQUIRED = ("id", "kind", "spec", "config", "measured")


@dataclass(frozen=True)
class Record:
    """One published measurement. `source` is the stem of its file, `reference` what it was read from."""

    id: str
    kind: str
    spec: str
    source: str
    config: Mapping[str, Any]
    measured: Mapping[str, Any]
    notes: tuple[str, ...] = field(default=())
    reference: str = ""


class SkipError(Exception):
    """The record is listed and not predicted; the text says why."""


def load(folder: Path = FOLDER) -> tuple[Record, ...]:
    """All records of a folder, file by file in alphabetical order."""
    files = sorted(folder.glob("*.yaml"))
    if not files:
        raise UserError("no records (*.yaml) in this folder", file=str(folder))
    return tuple(record for file in files for record in load_file(file))


def load_file(file: Path) -> tuple[Record, ...]:
    """The records of one file."""
    content = yaml.load(file.read_text(encoding="utf-8"), Loader=LOADER)
    if not isinstance(content, dict) or not isinstance(content.get("records"), list):
        raise UserError("not a file of records", file=str(file), fix="a mapping with `records: [...]`")
    return tuple(_record(entry, file) for entry in content["records"])


def _record(entry: Any, file: Path) -> Record:
    missing = [key for key in REQUIRED if not isinstance(entry, dict) or key not in entry]
    if missing:
        name = entry.get("id", "?") if isinstance(entry, dict) else "?"
        raise UserError(f"record {name} has no {', '.join(missing)}", file=str(file))
    return Record(
        id=str(entry["id"]),
        kind=str(entry["kind"]),
        spec=str(entry["spec"]),
        source=file.stem,
        config=_stated(entry["config"]),
        measured=_stated(entry["measured"]),
        notes=tuple(map(str, entry.get("notes") or ())),
        reference=str((entry.get("source") or {}).get("ref", "")),
    )


def _stated(value: Any) -> Any:
    """Mappings without the keys that the source does not state (null)."""
    if isinstance(value, dict):
        return {key: _stated(part) for key, part in value.items() if part is not None}
    return value
