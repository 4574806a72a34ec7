"""Results that other measurements leave as JSON under `validation/measurements/`, as sections of the page.

Each folder may hold `results.json`: {"title", "text", "tables": [{"title", "columns", "rows"}]}; what is not there is
not shown.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

MEASUREMENTS = Path(__file__).parent / "measurements"
ORDER = ("collectives", "netcluster", "minigrpo", "gpu")
TITLES = {
    "collectives": "CPU collectives and resharding",
    "netcluster": "Weight sync over a cluster on one machine",
    "minigrpo": "The miniature real system",
    "gpu": "One GPU",
}


def sections(folder: Path = MEASUREMENTS) -> list[tuple[str, str]]:
    """(title, Markdown) of every folder with results, the known ones first."""
    files = sorted(folder.glob("*/results.json"), key=lambda f: (_place(f.parent.name), f.parent.name))
    return [_section(file) for file in files]


def _place(name: str) -> int:
    return ORDER.index(name) if name in ORDER else len(ORDER)


def _section(file: Path) -> tuple[str, str]:
    content = json.loads(file.read_text(encoding="utf-8"))
    title = str(content.get("title") or TITLES.get(file.parent.name, file.parent.name))
    parts = [str(content["text"])] if content.get("text") else []
    parts += [_table(one) for one in content.get("tables", [])]
    return title, "\n\n".join(parts) or _plain(content)


def _table(one: dict[str, Any]) -> str:
    lines = [f"**{one['title']}**\n"] if one.get("title") else []
    lines += ["| " + " | ".join(map(str, one["columns"])) + " |", "|" + "---|" * len(one["columns"])]
    lines += ["| " + " | ".join(_cell(value) for value in row) + " |" for row in one["rows"]]
    return "\n".join(lines)


def _plain(content: dict[str, Any]) -> str:
    """A mapping of figures without a table of its own: its top-level numbers."""
    numbers = {k: v for k, v in content.items() if isinstance(v, int | float | str) and k != "title"}
    return _table({"columns": ["figure", "value"], "rows": list(numbers.items())})


def _cell(value: Any) -> str:
    return f"{value:.4g}" if isinstance(value, float) else str(value)
