"""What was fitted, on which records, and what a fit gives without some of them: read from the files beside this one."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

import yaml

FOLDER = Path(__file__).parent


@cache
def _read(name: str) -> dict[str, Any]:
    return dict(yaml.safe_load((FOLDER / f"{name}.yaml").read_text(encoding="utf-8")))


def nemo_rl() -> dict[str, Any]:
    """`rows`: ids; `layouts`: recipe -> layout; `held_out`: model -> values; `values`."""
    return _read("nemo_rl")


def training() -> dict[str, Any]:
    """`rows`: ids; `values`; `models`: id -> model; `held_out`: "model" and "source" -> what was left out -> values."""
    return _read("training")


def weight_sync() -> list[str]:
    """Ids of the records that the profiles' rates of weight sync were set with."""
    return list(_read("weight_sync")["rows"])
