"""Writes the golden outputs again: `python -m tests.frameworks.golden`. Read the difference against the facts first."""

from __future__ import annotations

from pathlib import Path

from rlsim.frameworks import NAMES
from tests.frameworks.exported import KINDS, text

FOLDER = Path(__file__).parent / "golden"


def path(framework: str, kind: str) -> Path:
    return FOLDER / f"{framework}_{kind}.txt"


if __name__ == "__main__":
    for framework in NAMES:
        for kind in KINDS:
            path(framework, kind).write_text(text(framework, kind) + "\n", encoding="utf-8")
