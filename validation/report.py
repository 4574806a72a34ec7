"""Predicted against measured: the rows, the page in Markdown and HTML, the JSON."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from validation import fits, html
from validation.ablation import Rung, ladder
from validation.page import markdown
from validation.predict import predict
from validation.published import records
from validation.published.rows import Row
from validation.sections import sections
from validation.summary import as_dict, finite

PAGE = Path(__file__).parents[1] / "docs" / "validation.md"
HTML = Path("validation.html")
FINDINGS = Path(__file__).parent / "findings.md"
"""What falls short and why: written by hand, without figures of its own that could go stale."""
PROCESSES = 2


def rows(folder: Path = records.FOLDER, processes: int = PROCESSES) -> list[Row]:
    """All rows of a folder of records, NeMo-RL's with their held-out predictions."""
    return predict(records.load(folder), fits.nemo_rl()["held_out"], processes)


def as_json(found: list[Row]) -> str:
    """The JSON of the rows; what is not a number is null."""
    data: dict[str, Any] = finite(as_dict(found))
    return json.dumps(data, indent=1)


def rungs(folder: Path = records.FOLDER, processes: int = PROCESSES) -> list[Rung]:
    """The ablation ladder of a folder's NeMo-RL recipes."""
    return ladder(records.load(folder), processes)


def page(found: list[Row], steps: list[Rung]) -> str:
    """The Markdown page."""
    findings = FINDINGS.read_text(encoding="utf-8") if FINDINGS.exists() else ""
    return markdown(found, findings, steps, sections())


def write_html(found: list[Row], steps: list[Rung], path: Path) -> None:
    """The HTML page with plots."""
    html.write(found, steps, page(found, steps), path)
